//! The owners, and which of them may have changed since the shortcuts last looked at them.
//!
//! What the shortcuts keep in their books (`book`) is derived from owners. Who changes an owner need not know of that:
//! each mutable look marks the owner, and the books are brought up to date before they are read.

use std::ops::{Index, IndexMut};

use slab::Slab;

use super::owner::Owner;

/// All owners, by their index.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    // Boxed: owners are large, and come and go with every reservation.
    slab: Slab<Box<Owner>>,
    /// Owners that were looked at mutably, inserted or removed, each once.
    touched: Vec<usize>,
    /// Whether an index is among `touched`.
    is_touched: Vec<bool>,
}

impl Owners {
    pub(super) fn insert(&mut self, owner: Owner) -> usize {
        let index = self.slab.insert(Box::new(owner));
        self.touch(index);
        index
    }

    pub(super) fn remove(&mut self, index: usize) -> Box<Owner> {
        self.touch(index);
        self.slab.remove(index)
    }

    /// Inserts an owner that no book has an entry for.
    pub(super) fn insert_unmarked(&mut self, owner: Box<Owner>) -> usize {
        self.slab.insert(owner)
    }

    /// Removes an owner that no book has an entry for.
    pub(super) fn remove_unmarked(&mut self, index: usize) -> Box<Owner> {
        self.slab.remove(index)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Owner> {
        self.slab.get(index).map(|owner| &**owner)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Owner)> + Clone {
        self.slab.iter().map(|(index, owner)| (index, &**owner))
    }

    /// A mutable look that leaves no mark, for what no shortcut depends on: how often a waiting request was passed.
    pub(super) fn unmarked(&mut self, index: usize) -> &mut Owner {
        &mut self.slab[index]
    }

    /// The next owner that may have changed; it is no longer marked.
    pub(super) fn next_touched(&mut self) -> Option<usize> {
        let index = self.touched.pop()?;
        self.is_touched[index] = false;
        Some(index)
    }

    fn touch(&mut self, index: usize) {
        if self.is_touched.len() <= index {
            self.is_touched.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.is_touched[index], true) {
            self.touched.push(index);
        }
    }
}

impl Index<usize> for Owners {
    type Output = Owner;

    fn index(&self, index: usize) -> &Owner {
        &self.slab[index]
    }
}

impl IndexMut<usize> for Owners {
    fn index_mut(&mut self, index: usize) -> &mut Owner {
        self.touch(index);
        &mut self.slab[index]
    }
}
