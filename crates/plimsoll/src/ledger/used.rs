//! How much of a grant a stage really used.

use smallvec::SmallVec;

use crate::{Bytes, Class};

/// Keeps the high-water mark of each class of a grant.
#[derive(Debug)]
pub(super) struct Meter {
    classes: SmallVec<[Entry; 4]>,
}

/// One class of a grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    class: Class,
    pub(super) given: Bytes,
    pub(super) used: Bytes,
}

impl Meter {
    pub(super) fn new(granted: &[(Class, Bytes)]) -> Meter {
        let entry = |&(class, given)| Entry { class, given, used: Bytes::ZERO };
        Meter { classes: granted.iter().map(entry).collect() }
    }

    pub(super) fn of(&self, class: Class) -> Option<&Entry> {
        self.classes.iter().find(|entry| entry.class == class)
    }

    /// Bytes of a class were asked for while `left` were left.
    pub(super) fn asked(&mut self, class: Class, bytes: Bytes, left: Bytes) {
        if !self.classes.iter().any(|entry| entry.class == class) {
            self.classes.push(Entry { class, given: Bytes::ZERO, used: Bytes::ZERO });
        }
        if let Some(entry) = self.classes.iter_mut().find(|entry| entry.class == class) {
            // What was put back beyond what was given is not counted.
            let out = entry.given.checked_sub(left).unwrap_or(Bytes::ZERO);
            entry.used = entry.used.max(Bytes(out.0.saturating_add(bytes.0)));
        }
    }
}
