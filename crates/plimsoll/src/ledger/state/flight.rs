//! The owners in flight, in no particular order.

/// A set of owners' indices, with a place for each, so that one is taken out without looking for it.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    list: Vec<usize>,
    /// The place of each owner in the list, by its index.
    place: Vec<usize>,
}

const NOWHERE: usize = usize::MAX;

impl InFlight {
    pub(super) fn push(&mut self, index: usize) {
        if self.place.len() <= index {
            self.place.resize(index + 1, NOWHERE);
        }
        debug_assert_eq!(self.place[index], NOWHERE, "it is in flight already");
        self.place[index] = self.list.len();
        self.list.push(index);
    }

    /// Takes an owner out, if it is there.
    pub(super) fn remove(&mut self, index: usize) {
        let Some(place) = self.place.get_mut(index).map(|place| std::mem::replace(place, NOWHERE)) else { return };
        if place == NOWHERE {
            return;
        }
        self.list.swap_remove(place);
        if let Some(moved) = self.list.get(place) {
            self.place[*moved] = place;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &usize> + Clone {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_moves_up_is_found() {
        let mut all = InFlight::default();
        (0..5).for_each(|index| all.push(index));
        for index in [1, 4, 1, 0, 7, 3, 2] {
            all.remove(index);
            assert!(all.iter().all(|at| all.list[all.place[*at]] == *at && *at != index));
        }
        assert_eq!(all.iter().count(), 0);
    }
}
