//! One piece of device memory, allocated when the device is opened, from which everything else is taken.
//!
//! CUDA's own allocation and free wait for all work on the device and take milliseconds; here both are a look at a map.
//! What stays long (points of a key) is taken from the top, what is gone after a stage from the bottom, so that the two do
//! not leave holes in each other. Sizes are rounded up to [`ALIGNMENT`]; what plans ask for is rounded already.
//!
//! This file only counts: it knows offsets, not memory.

use std::collections::BTreeMap;

use crate::plan::{ALIGNMENT, aligned};

/// From which end of the arena a piece is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// For what is gone after a stage.
    Bottom,
    /// For what stays.
    Top,
}

/// Which parts of an arena are free.
#[derive(Clone, Debug)]
pub struct Arena {
    capacity: u64,
    /// Offset to length. Neighbours are merged, so no two touch.
    free: BTreeMap<u64, u64>,
    used: u64,
    used_peak: u64,
}

/// There is no piece of that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no piece of {wanted} bytes is free; {free} are, the largest piece has {largest}")]
pub struct NoRoom {
    /// What was asked for.
    pub wanted: u64,
    /// What is free in all.
    pub free: u64,
    /// The largest piece.
    pub largest: u64,
}

impl Arena {
    /// An arena of so many bytes, rounded down to [`ALIGNMENT`].
    pub fn new(capacity: u64) -> Self {
        let capacity = capacity / ALIGNMENT * ALIGNMENT;
        let free = if capacity > 0 { BTreeMap::from([(0, capacity)]) } else { BTreeMap::new() };
        Self { capacity, free, used: 0, used_peak: 0 }
    }

    /// How large it is.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How much is free.
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// The most that was ever taken at once.
    pub fn used_peak_bytes(&self) -> u64 {
        self.used_peak
    }

    /// Takes a piece, and says where it is. Nothing is taken for 0 bytes.
    ///
    /// # Errors
    ///
    /// If no piece is so large, though in all there may be as much.
    pub fn allocate(&mut self, bytes: u64, end: End) -> Result<u64, NoRoom> {
        let wanted = aligned(bytes);
        if wanted == 0 {
            return Ok(0);
        }
        let fits = |(_, length): &(&u64, &u64)| **length >= wanted;
        // First fit from either end: long-lived pieces gather at the top, short-lived ones at the bottom.
        let found = match end {
            End::Bottom => self.free.iter().find(fits),
            End::Top => self.free.iter().rev().find(fits),
        };
        let Some((&at, &length)) = found else {
            let largest = self.free.values().copied().max().unwrap_or(0);
            return Err(NoRoom { wanted: bytes, free: self.free_bytes(), largest });
        };
        self.free.remove(&at);
        self.used += wanted;
        self.used_peak = self.used_peak.max(self.used);
        let rest = length - wanted;
        let (taken, left) = match end {
            End::Bottom => (at, at + wanted),
            End::Top => (at + rest, at),
        };
        if rest > 0 {
            self.free.insert(left, rest);
        }
        Ok(taken)
    }

    /// Gives a piece back.
    ///
    /// # Panics
    ///
    /// If part of it is free already, or it lies beyond the end: then somebody has two owners for one piece of memory.
    pub fn release(&mut self, at: u64, bytes: u64) {
        let mut length = aligned(bytes);
        if length == 0 {
            return;
        }
        let mut start = at;
        assert!(start + length <= self.capacity, "a piece beyond the end of the arena");
        if let Some((&next, &next_length)) = self.free.range(start..).next() {
            assert!(start + length <= next, "a piece was given back twice");
            if start + length == next {
                self.free.remove(&next);
                length += next_length;
            }
        }
        if let Some((&before, &before_length)) = self.free.range(..start).next_back() {
            assert!(before + before_length <= start, "a piece was given back twice");
            if before + before_length == start {
                self.free.remove(&before);
                start = before;
                length += before_length;
            }
        }
        self.free.insert(start, length);
        self.used -= aligned(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_are_taken_from_their_end_and_merge_again() {
        let mut arena = Arena::new(4096 + 100);
        assert_eq!(arena.capacity(), 4096);
        let bottom = arena.allocate(1, End::Bottom).expect("empty");
        let top = arena.allocate(257, End::Top).expect("nearly empty");
        assert_eq!((bottom, top), (0, 4096 - 512));
        let next = arena.allocate(256, End::Bottom).expect("there is room");
        assert_eq!(next, 256);
        arena.release(bottom, 1);
        assert_eq!(arena.allocate(256, End::Bottom), Ok(0), "the hole at the bottom is used first");
        for (at, bytes) in [(0, 256), (256, 256), (top, 257)] {
            arena.release(at, bytes);
        }
        assert_eq!(arena.allocate(4096, End::Bottom), Ok(0), "all in one piece again");
    }

    #[test]
    fn what_does_not_fit_says_why() {
        let mut arena = Arena::new(1024);
        let pieces: Vec<_> = (0..4).map(|_| arena.allocate(256, End::Bottom).expect("there is room")).collect();
        arena.release(pieces[0], 256);
        arena.release(pieces[2], 256);
        assert_eq!(arena.allocate(512, End::Bottom), Err(NoRoom { wanted: 512, free: 512, largest: 256 }));
        assert_eq!(arena.allocate(0, End::Top), Ok(0));
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn a_piece_is_not_given_back_twice() {
        let mut arena = Arena::new(1024);
        let at = arena.allocate(512, End::Bottom).expect("empty");
        arena.release(at, 512);
        arena.release(at, 256);
    }

    proptest! {
        /// Whatever is taken and given back in whatever order: pieces never overlap, and the bytes add up.
        #[test]
        fn pieces_never_overlap(steps in prop::collection::vec((1_u64..2000, any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            let mut arena = Arena::new(1 << 14);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (bytes, from_top, index) in steps {
                if bytes % 3 == 0 && !held.is_empty() {
                    let (at, bytes) = held.swap_remove(index.index(held.len()));
                    arena.release(at, bytes);
                } else if let Ok(at) = arena.allocate(bytes, if from_top { End::Top } else { End::Bottom }) {
                    let apart = |&(other, length): &(u64, u64)| at + aligned(bytes) <= other || other + aligned(length) <= at;
                    prop_assert!(held.iter().all(apart));
                    held.push((at, bytes));
                }
                let used: u64 = held.iter().map(|&(_, bytes)| aligned(bytes)).sum();
                prop_assert_eq!(arena.free_bytes(), (1 << 14) - used);
            }
        }
    }
}
