//! Light owners: free-standing reservations that came along the short way (`quick`), each in one cache line.
//!
//! An owner has a dozen fields and four vectors, of which such a reservation has no use: it claims what it holds, leaves
//! nothing, and pins nothing. Two cores that take turns at the ledger have to fetch whatever the other one has written, line
//! by line, and that is most of what a contended reservation costs; so what is written for one is kept together.
//!
//! Light owners are only there while nothing but the short way is gone. Before anything else looks at the state they are
//! *unfolded* into ordinary ones ([`unfold`](super::LedgerState::unfold)), each at most once, which costs no more than if they
//! had been made so at once. Those that have ended keep their names until then, and hand them to the next, last in first out,
//! as the table of owners would: names are given out in the same order either way.

use std::panic::Location;

/// What the shell wants to know of an owner and the state machine does not: kept with it, and handed back when it is unfolded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Where in the source it was asked for.
    pub place: Option<&'static Location<'static>>,
    /// When it was last granted something, or has asked.
    pub since: u64,
}

/// One light owner, or the name of one that has ended.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Light {
    pub(super) bytes: u64,
    /// Rank of arrival.
    pub(super) age: u64,
    /// Which owner it is, of all there ever were.
    pub(super) born: u64,
    pub(super) mark: Mark,
    /// The index of the owner.
    pub(super) owner: u32,
    /// Where the class stands among those that the short way knows.
    pub(super) known: u32,
    pub(super) priority: i32,
    pub(super) stand: LightStand,
}

impl Light {
    /// Nobody's.
    pub(super) const NOBODYS: Light = Light {
        bytes: 0,
        age: 0,
        born: 0,
        mark: Mark { place: None, since: 0 },
        owner: 0,
        known: 0,
        priority: 0,
        stand: LightStand::Waits,
    };
}

/// Where a light owner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LightStand {
    Waits,
    Holds,
    /// It has ended; the name is to be used again, and after that the one of the record behind it.
    Ended(u32),
}

/// All light owners.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Lights {
    records: Vec<Light>,
    /// The last one that has ended.
    ended: u32,
}

const NOBODY: u32 = u32::MAX;

impl Default for Lights {
    fn default() -> Lights {
        Lights { records: Vec::new(), ended: NOBODY }
    }
}

impl Lights {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut Light {
        &mut self.records[at as usize]
    }

    /// Puts an owner in the place of the one that has ended last. Returns its index.
    #[inline]
    pub(super) fn reuse(&mut self, light: Light) -> Option<usize> {
        if self.ended == NOBODY {
            return None;
        }
        let record = &mut self.records[self.ended as usize];
        let LightStand::Ended(before) = record.stand else { unreachable!("it has ended") };
        let owner = record.owner;
        *record = Light { owner, ..light };
        self.ended = before;
        Some(owner as usize)
    }

    /// Adds a record for an owner. Returns its place.
    pub(super) fn push(&mut self, light: Light, owner: usize) -> u32 {
        self.records.push(Light { owner: owner as u32, ..light });
        self.records.len() as u32 - 1
    }

    pub(super) fn end(&mut self, at: u32) {
        self.get_mut(at).stand = LightStand::Ended(std::mem::replace(&mut self.ended, at));
    }

    /// Takes all out: the indices of those that have ended, in that order, and the others.
    pub(super) fn take(&mut self) -> (Vec<usize>, Vec<Light>) {
        let mut ended = Vec::new();
        while self.ended != NOBODY {
            let Light { stand: LightStand::Ended(before), owner, .. } = self.records[self.ended as usize] else {
                unreachable!("it has ended")
            };
            ended.push(owner as usize);
            self.ended = before;
        }
        ended.reverse();
        let others = self.records.drain(..).filter(|light| !matches!(light.stand, LightStand::Ended(_))).collect();
        (ended, others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_used_again_last_in_first_out() {
        let light = Light { stand: LightStand::Holds, ..Light::NOBODYS };
        assert_eq!(size_of::<Light>(), 64);
        let mut lights = Lights::default();
        let all: Vec<u32> = (10..14).map(|owner| lights.push(light, owner)).collect();
        lights.end(all[2]);
        lights.end(all[0]);
        lights.end(all[3]);
        assert_eq!(lights.reuse(light), Some(13));
        let (ended, others) = lights.take();
        assert_eq!((ended, others.iter().map(|light| light.owner).collect()), (vec![12, 10], vec![11, 13]));
        assert!(lights.is_empty() && lights.reuse(light).is_none());
    }
}
