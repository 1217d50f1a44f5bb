//! What something needs, known before it runs.

use crate::{Bytes, Class, Resource, Slots};

/// Bytes by class and slots by kind: what something needs, known before it runs.
///
/// ```
/// use plimsoll::{Bytes, Class, Demand, Slots, Space};
/// const PROVERS: Class = Class::new("provers", Space::HOST);
/// const THREADS: Slots = Slots::new("threads");
/// let demand = Demand::new().bytes(PROVERS, Bytes::GIB).slots(THREADS, 2);
/// assert_eq!(demand.of(PROVERS), 1 << 30);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Demand {
    /// Sorted by resource, without zero amounts, so that equal demands are equal values.
    entries: Vec<(Resource, u64)>,
}

impl Demand {
    /// Nothing.
    pub const fn new() -> Demand {
        Demand { entries: Vec::new() }
    }

    /// Adds bytes of a class to the demand. Sums saturate, and a saturated demand fits no budget.
    #[must_use]
    pub fn bytes(self, class: Class, bytes: Bytes) -> Demand {
        self.with(class.into(), bytes.0)
    }

    /// Adds slots to the demand.
    #[must_use]
    pub fn slots(self, slots: Slots, count: u64) -> Demand {
        self.with(slots.into(), count)
    }

    /// The amount of one resource in the demand: bytes of a class, a number of slots.
    pub fn of(&self, resource: impl Into<Resource>) -> u64 {
        let resource = resource.into();
        self.entries.binary_search_by_key(&resource, |entry| entry.0).map_or(0, |at| self.entries[at].1)
    }

    /// Each resource that is needed, with its amount, in a fixed order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Resource, u64)> + '_ {
        self.entries.iter().copied()
    }

    /// Whether nothing is needed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn with(mut self, resource: Resource, amount: u64) -> Demand {
        if amount == 0 {
            return self;
        }
        match self.entries.binary_search_by_key(&resource, |entry| entry.0) {
            Ok(at) => self.entries[at].1 = self.entries[at].1.saturating_add(amount),
            Err(at) => self.entries.insert(at, (resource, amount)),
        }
        self
    }
}
