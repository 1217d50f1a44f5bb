//! Residencies: what is loaded once, used by many, and evicted when its room is needed.

use std::fmt;

use super::state::ResidencyId;

/// A residency that a job needs: see [`JobSpec::needs`](super::JobSpec::needs).
#[derive(Clone)]
pub struct Need {
    id: ResidencyId,
}

impl Need {
    pub(super) fn id(&self) -> ResidencyId {
        self.id
    }
}

impl From<ResidencyId> for Need {
    /// For simulators and checkers, which drive the state machine themselves.
    fn from(id: ResidencyId) -> Need {
        Need { id }
    }
}

impl fmt::Debug for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Need({})", self.id.index())
    }
}
