//! The owners, and which of them may have changed since the shortcuts last looked at them.
//!
//! What the shortcuts keep in their books (`book`) is derived from owners. Who changes an owner need not know of that:
//! each mutable look marks the owner, and the books are brought up to date before they are read.
//!
//! Some owners are [light](super::light). Whoever looks at one as if it were not has forgotten to unfold them, and panics.

use std::ops::{Index, IndexMut};

use slab::Slab;

use super::light::{Light, Lights};
use super::owner::Owner;

/// All owners, by their index.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Owners {
    slab: Slab<Slot>,
    /// Owners that were looked at mutably, inserted or removed, each once.
    touched: Vec<usize>,
    /// Whether an index is among `touched`.
    is_touched: Vec<bool>,
    lights: Lights,
}

#[derive(Clone, Debug)]
enum Slot {
    // Boxed: owners are large, and come and go with every reservation.
    Full(Box<Owner>),
    /// Its place among the light ones.
    Light(u32),
}

impl Slot {
    fn full(&self) -> &Owner {
        match self {
            Slot::Full(owner) => owner,
            Slot::Light(_) => panic!("{NOT_UNFOLDED}"),
        }
    }

    fn full_mut(&mut self) -> &mut Owner {
        match self {
            Slot::Full(owner) => owner,
            Slot::Light(_) => panic!("{NOT_UNFOLDED}"),
        }
    }

    fn into_full(self) -> Box<Owner> {
        match self {
            Slot::Full(owner) => owner,
            Slot::Light(_) => panic!("{NOT_UNFOLDED}"),
        }
    }
}

const NOT_UNFOLDED: &str = "after requests that went the short way, `unfold` comes before anything else";

impl Owners {
    pub(super) fn insert(&mut self, owner: Owner) -> usize {
        let index = self.slab.insert(Slot::Full(Box::new(owner)));
        self.touch(index);
        index
    }

    pub(super) fn remove(&mut self, index: usize) -> Box<Owner> {
        self.touch(index);
        self.slab.remove(index).into_full()
    }

    /// Inserts an owner that no book has an entry for.
    pub(super) fn insert_unmarked(&mut self, owner: Box<Owner>) -> usize {
        self.slab.insert(Slot::Full(owner))
    }

    /// Removes an owner that no book has an entry for. While the short way is gone its name is kept for the next.
    pub(super) fn remove_unmarked(&mut self, index: usize, is_open: bool) -> Box<Owner> {
        if !is_open {
            return self.slab.remove(index).into_full();
        }
        let at = self.lights.push(Light::NOBODYS, index);
        self.lights.end(at);
        std::mem::replace(&mut self.slab[index], Slot::Light(at)).into_full()
    }

    /// Adds a light owner.
    #[inline]
    pub(super) fn insert_light(&mut self, light: Light) -> usize {
        if let Some(index) = self.lights.reuse(light) {
            return index;
        }
        let entry = self.slab.vacant_entry();
        let index = entry.key();
        entry.insert(Slot::Light(self.lights.push(light, index)));
        index
    }

    /// An owner, if it is a light one.
    pub(super) fn light(&mut self, index: usize) -> Option<&mut Light> {
        match self.slab[index] {
            Slot::Light(at) => Some(self.lights.get_mut(at)),
            Slot::Full(_) => None,
        }
    }

    /// A light owner ends.
    pub(super) fn end_light(&mut self, index: usize) {
        let Slot::Light(at) = self.slab[index] else { unreachable!("it is a light one") };
        self.lights.end(at);
    }

    pub(super) fn has_lights(&self) -> bool {
        !self.lights.is_empty()
    }

    /// Takes the light owners out, each of which is to be put back with [`unfold`](Owners::unfold).
    pub(super) fn take_lights(&mut self) -> Vec<Light> {
        let (ended, others) = self.lights.take();
        for index in ended {
            self.slab.remove(index);
        }
        others
    }

    /// Puts an owner in the place of a light one. No book has an entry for it.
    pub(super) fn unfold(&mut self, index: usize, owner: Box<Owner>) {
        self.slab[index] = Slot::Full(owner);
    }

    pub(super) fn get(&self, index: usize) -> Option<&Owner> {
        self.slab.get(index).map(Slot::full)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Owner)> + Clone {
        self.slab.iter().map(|(index, slot)| (index, slot.full()))
    }

    /// A mutable look that leaves no mark, for what no shortcut depends on: how often a waiting request was passed.
    pub(super) fn unmarked(&mut self, index: usize) -> &mut Owner {
        self.slab[index].full_mut()
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
        self.slab[index].full()
    }
}

impl IndexMut<usize> for Owners {
    fn index_mut(&mut self, index: usize) -> &mut Owner {
        self.touch(index);
        self.slab[index].full_mut()
    }
}
