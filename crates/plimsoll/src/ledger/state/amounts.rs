//! Sparse vectors over the ledger's components.

use smallvec::SmallVec;

/// The index of one component of the ledger's vector: a space, a child's limit, a kind of slots.
pub(super) type ComponentId = u32;

/// An amount per component: sorted by component, without zeros, so that equal vectors are equal values.
///
/// Sparse, because an owner touches a handful of components however many children and devices the ledger has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Amounts(SmallVec<[(ComponentId, u64); 4]>);

impl Amounts {
    pub(super) fn of(&self, component: ComponentId) -> u64 {
        // Linear: vectors have one to four entries.
        self.0.iter().find(|entry| entry.0 == component).map_or(0, |entry| entry.1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ComponentId, u64)> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is no more of any component than in `other`.
    pub(super) fn is_within(&self, other: &Amounts) -> bool {
        self.iter().all(|(component, amount)| amount <= other.of(component))
    }

    /// Forgets the components for which `keep` says no.
    pub(super) fn retain(&mut self, keep: impl Fn(ComponentId) -> bool) {
        self.0.retain(|entry| keep(entry.0));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds, saturating: a sum that does not fit 64 bits must be refused by a limit, not wrap below it.
    pub(super) fn add(&mut self, component: ComponentId, amount: u64) {
        self.update(component, |held| held.saturating_add(amount));
    }

    /// Adds each component of `other`.
    pub(super) fn add_all(&mut self, other: &Amounts) {
        for (component, amount) in other.iter() {
            self.add(component, amount);
        }
    }

    /// Subtracts.
    ///
    /// # Panics
    ///
    /// When more is taken than there is: the books would be wrong from here on.
    pub(super) fn sub(&mut self, component: ComponentId, amount: u64) {
        self.update(component, |held| held.checked_sub(amount).expect("more was returned than was held"));
    }

    /// Takes off as much of `other` as there is.
    pub(super) fn sub_up_to(&mut self, other: &Amounts) {
        for (component, amount) in other.iter() {
            self.update(component, |held| held.saturating_sub(amount));
        }
    }

    /// Makes it this amount, which is not zero, of this component alone.
    pub(super) fn set_only(&mut self, component: ComponentId, amount: u64) {
        debug_assert!(amount != 0);
        match &mut self.0[..] {
            [only] => *only = (component, amount),
            _ => {
                self.0.clear();
                self.0.push((component, amount));
            }
        }
    }

    /// Raises each component to at least `other`'s.
    pub(super) fn raise_to(&mut self, other: &Amounts) {
        for (component, amount) in other.iter() {
            self.update(component, |held| held.max(amount));
        }
    }

    /// Lowers each component to at most `other`'s.
    pub(super) fn lower_to(&mut self, other: &Amounts) {
        self.0.retain(|entry| {
            entry.1 = entry.1.min(other.of(entry.0));
            entry.1 != 0
        });
    }

    fn update(&mut self, component: ComponentId, f: impl FnOnce(u64) -> u64) {
        let at = self.0.iter().position(|entry| entry.0 >= component).unwrap_or(self.0.len());
        match self.0.get_mut(at) {
            Some(entry) if entry.0 == component => {
                entry.1 = f(entry.1);
                if entry.1 == 0 {
                    self.0.remove(at);
                }
            }
            _ => {
                let amount = f(0);
                if amount != 0 {
                    self.0.insert(at, (component, amount));
                }
            }
        }
    }
}

/// A number that equal vectors have in common, and others hardly ever.
pub(super) fn digest(all: &[&Amounts]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut digest = 0u64;
    for amounts in all {
        for (component, amount) in amounts.iter() {
            digest = (digest ^ u64::from(component)).wrapping_mul(ODD);
            digest = (digest.rotate_left(29) ^ amount).wrapping_mul(ODD);
        }
        digest = digest.rotate_left(17).wrapping_add(ODD);
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_vectors_are_equal_values() {
        let mut one = Amounts::default();
        one.add(3, 5);
        one.add(1, 2);
        let mut other = Amounts::default();
        other.add(1, 7);
        other.add(2, 1);
        other.add(3, 5);
        other.sub(1, 5);
        other.sub(2, 1);
        assert_eq!(one, other);
        assert_eq!((one.of(1), one.of(2), one.of(3)), (2, 0, 5));
    }

    #[test]
    #[should_panic(expected = "more was returned")]
    fn returning_more_than_held_is_caught() {
        Amounts::default().sub(0, 1);
    }
}
