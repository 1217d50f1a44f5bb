//! Where owners come from: what the shell knows of an owner and the state machine need not.

use std::panic::Location;

use super::snapshot::{Holding, Snapshot};
use super::state::{Mark, OwnerId};

/// Of one owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    /// Where in the source it was reserved or submitted.
    place: Option<&'static Location<'static>>,
    /// When it last asked, or was last granted something.
    since: u64,
    /// What it waits for outside of the ledger, and since when: forks of a stage may wait at once, and end in any order.
    external: Vec<(&'static str, u64)>,
}

/// Of all owners, by the owner's index. What is left of owners that are gone is overwritten by the next of that index
/// before it can hold anything.
#[derive(Debug, Default)]
pub(super) struct Origins {
    by_owner: Vec<Origin>,
    /// When anything was last granted.
    granted_at: u64,
}

impl Origins {
    pub(super) fn asked(&mut self, owner: OwnerId, place: &'static Location<'static>, now: u64) {
        self.put(owner, Origin { place: Some(place), since: now, external: Vec::new() });
    }

    fn put(&mut self, owner: OwnerId, origin: Origin) {
        if self.by_owner.len() <= owner.index() {
            self.by_owner.resize(owner.index() + 1, Origin::default());
        }
        self.by_owner[owner.index()] = origin;
    }

    /// What was kept elsewhere of an owner until now.
    pub(super) fn unfolded(&mut self, owner: OwnerId, Mark { place, since }: Mark) {
        self.put(owner, Origin { place, since, external: Vec::new() });
    }

    /// Something was granted.
    pub(super) fn moved(&mut self, now: u64) {
        // Who is granted something at once is stamped by a coarse clock, which is behind.
        if self.granted_at < now {
            self.granted_at = now;
        }
    }

    pub(super) fn granted(&mut self, owner: OwnerId, now: u64) {
        self.moved(now);
        self.by_owner[owner.index()].since = now;
    }

    /// An owner begins to wait for something outside.
    pub(super) fn waits_outside(&mut self, owner: OwnerId, what: &'static str, now: u64) {
        self.by_owner[owner.index()].external.push((what, now));
    }

    /// That wait is over.
    pub(super) fn waited_outside(&mut self, owner: OwnerId, what: &'static str, since: u64) {
        let external = &mut self.by_owner[owner.index()].external;
        if let Some(at) = external.iter().rposition(|wait| *wait == (what, since)) {
            external.remove(at);
        }
    }

    /// Adds to a picture of the state what is known here.
    pub(super) fn complete(&self, snapshot: &mut Snapshot, now: u64) {
        for holding in &mut snapshot.holders {
            let origin = self.by_owner.get(holding.owner.index());
            let (place, since) = origin.map_or((None, 0), |origin| (origin.place, origin.since));
            // The one that began last.
            let external = origin.and_then(|origin| origin.external.last().copied());
            *holding = Holding { reserved_at: place, since, external, ..holding.clone() };
        }
        snapshot.holders.sort_by_key(|holding| (holding.since, holding.owner));
        (snapshot.time, snapshot.granted_at) = (now, self.granted_at);
    }
}
