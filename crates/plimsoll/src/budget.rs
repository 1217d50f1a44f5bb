//! The limit of each space and of each kind of slots.

use crate::{Bytes, Slots, Space};

/// The limit of each space and slot kind, and how requests may pass each other.
///
/// What is not named has no room at all: asking for it is an error, not a wait.
///
/// ```
/// use plimsoll::{Budget, Bytes, Slots, Space};
/// const THREADS: Slots = Slots::new("threads");
/// let budget = Budget::new().space(Space::HOST, Bytes(2 << 30)).slots(THREADS, 2);
/// assert_eq!(budget.limit(Space::HOST), Some(Bytes(2 << 30)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    pub(crate) spaces: Vec<(Space, u64)>,
    pub(crate) slots: Vec<(Slots, u64)>,
    pub(crate) urgent: Vec<(Space, u64)>,
    pub(crate) bypass: u32,
    pub(crate) unlimited: bool,
}

impl Budget {
    /// How many later admissions may pass a waiting request, unless [`Budget::bypass`] says otherwise.
    ///
    /// More than a line lets in while a job waits for its turn at the drum. With fewer, jobs that wait for no more than their turn hold new
    /// ones back, which then come all at once and wait all at once: with eight devices and K = 8 such waves cost a quarter of the
    /// throughput, and did not end.
    pub const DEFAULT_BYPASS: u32 = 32;

    /// A budget of nothing.
    pub const fn new() -> Budget {
        Budget {
            spaces: Vec::new(),
            slots: Vec::new(),
            urgent: Vec::new(),
            bypass: Budget::DEFAULT_BYPASS,
            unlimited: false,
        }
    }

    /// A budget without limits: everything is counted and nothing waits.
    pub(crate) fn unlimited() -> Budget {
        Budget { unlimited: true, ..Budget::new() }
    }

    /// Sets the limit of a space.
    #[must_use]
    pub fn space(mut self, space: Space, limit: Bytes) -> Budget {
        set(&mut self.spaces, space, limit.0);
        self
    }

    /// Sets the number of slots of a kind.
    #[must_use]
    pub fn slots(mut self, slots: Slots, count: u64) -> Budget {
        set(&mut self.slots, slots, count);
        self
    }

    /// Sets a part of a space's limit aside for urgent jobs. Nobody else is served from it, and what is served wholly
    /// from it passes nobody.
    #[must_use]
    pub fn urgent_reserve(mut self, space: Space, bytes: Bytes) -> Budget {
        set(&mut self.urgent, space, bytes.0);
        self
    }

    /// Sets how many later admissions may pass a waiting request (K). Zero is strict order of arrival.
    #[must_use]
    pub fn bypass(mut self, admissions: u32) -> Budget {
        self.bypass = admissions;
        self
    }

    /// The limit of a space, if the budget names it.
    pub fn limit(&self, space: Space) -> Option<Bytes> {
        self.spaces.iter().find(|entry| entry.0 == space).map(|entry| Bytes(entry.1))
    }

    /// The number of slots of a kind, if the budget names it.
    pub fn slots_of(&self, slots: Slots) -> Option<u64> {
        self.slots.iter().find(|entry| entry.0 == slots).map(|entry| entry.1)
    }
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new()
    }
}

fn set<K: PartialEq>(entries: &mut Vec<(K, u64)>, key: K, value: u64) {
    match entries.iter_mut().find(|entry| entry.0 == key) {
        Some(entry) => entry.1 = value,
        None => entries.push((key, value)),
    }
}
