//! The state machine and where its owners come from, in one piece: what the short way has left behind is put in order before
//! anything else looks at either.

use crate::ledger::origin::Origins;
use crate::ledger::state::{LedgerState, Mark, OwnerId};

/// Part of what the ledger's lock guards.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Books {
    state: LedgerState,
    origins: Origins,
}

impl Books {
    pub(super) fn new(state: LedgerState) -> Books {
        Books { state, origins: Origins::default() }
    }

    /// For the short way alone.
    pub(super) fn short(&mut self) -> &mut LedgerState {
        &mut self.state
    }

    /// For everything else.
    pub(super) fn state(&mut self) -> &mut LedgerState {
        self.both().0
    }

    /// The same, and where the owners come from.
    pub(super) fn both(&mut self) -> (&mut LedgerState, &mut Origins) {
        let Books { state, origins } = self;
        state.unfold(|owner, mark| origins.unfolded(owner, mark));
        (state, origins)
    }

    /// Something was granted, or asked for, the short way.
    pub(super) fn went_the_short_way(&mut self, owner: OwnerId, mark: Mark) {
        // With a light owner all of it is kept that has to be.
        if !self.state.is_light(owner) {
            self.origins.unfolded(owner, mark);
        }
    }

    /// Something was granted to an owner at this time.
    pub(super) fn granted(&mut self, owner: OwnerId, now: u64) {
        if self.state.holds_since(owner, now) {
            self.origins.moved(now);
        } else {
            self.origins.granted(owner, now);
        }
    }

    /// Something was granted at this time.
    pub(super) fn moved(&mut self, now: u64) {
        self.origins.moved(now);
    }
}
