//! Steering a ledger that runs, from outside: pausing admission, evicting a residency, cancelling a job by its name.

use std::sync::{Arc, Weak};

use thiserror::Error;

use super::Ledger;
use crate::Bytes;

/// A residency was not evicted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EvictError {
    /// There is none of this name.
    #[error("there is no residency {name:?}; {}", list(known))]
    Unknown {
        /// The name.
        name: Arc<str>,
        /// Those that there are.
        known: Vec<Arc<str>>,
    },
    /// It is not loaded.
    #[error("the residency {name:?} is not loaded; there is nothing to evict")]
    NotResident {
        /// The residency.
        name: Arc<str>,
    },
    /// It is on its way out already.
    #[error("the residency {name:?} is on its way out already; it is gone when its memory is")]
    Leaving {
        /// The residency.
        name: Arc<str>,
    },
    /// Jobs in flight use it.
    #[error("{pins} jobs in flight use the residency {name:?}; pause admission, and evict it when they have ended")]
    InUse {
        /// The residency.
        name: Arc<str>,
        /// How many jobs pin it.
        pins: u32,
    },
}

fn list(names: &[Arc<str>]) -> String {
    if names.is_empty() { "there are none at all".to_owned() } else { format!("there are {}", names.join(", ")) }
}

/// Something that has jobs under way which can be cancelled.
pub(crate) trait Steered: Send + Sync {
    /// Cancels the jobs of this name; says how many there were.
    fn cancel(&self, job: &str) -> usize;
}

/// The pipelines that work on a ledger, as far as they still exist.
pub(super) type Steereds = Vec<Weak<dyn Steered>>;

impl Ledger {
    /// Holds back everything that is not in flight, for this ledger and all that share it. Requests keep their place and
    /// wait; what is asked for with `try_now` fails. Jobs in flight go on to their end, so the ledger comes to rest.
    ///
    /// ```
    /// # use plimsoll::{Budget, Bytes, Class, Ledger, Space};
    /// # const SCRATCH: Class = Class::new("scratch", Space::HOST);
    /// let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::MIB));
    /// ledger.pause();
    /// assert!(ledger.reserve(SCRATCH, Bytes(1)).try_now().is_err());
    /// ledger.resume();
    /// assert!(ledger.reserve(SCRATCH, Bytes(1)).try_now().is_ok());
    /// ```
    pub fn pause(&self) {
        self.inner.event(|state, _| state.pause());
    }

    /// Ends a [`pause`](Ledger::pause): what has waited is admitted in its order.
    pub fn resume(&self) {
        self.inner.event(|state, out| state.resume(out));
    }

    /// Evicts the residency of this name now, though nobody needs its room; the next job that needs it loads it again. Returns
    /// its bytes, which are back when its memory is gone.
    ///
    /// # Errors
    ///
    /// If there is none of this name, it is not loaded, or a job in flight uses it.
    pub fn evict(&self, residency: &str) -> Result<Bytes, EvictError> {
        self.inner.event(|state, out| state.evict_by_name(residency, out))
    }

    /// Cancels the jobs of this name that pipelines on this ledger, or on any that shares it, have under way, as
    /// [`Ticket::cancel`](crate::pipeline::Ticket::cancel) does. Returns how many there were.
    pub fn cancel(&self, job: &str) -> usize {
        // Called outside of every lock: cancelling drops what the job holds, which is a user's code.
        self.inner.steered().iter().filter_map(Weak::upgrade).map(|pipeline| pipeline.cancel(job)).sum()
    }

    /// Lets jobs of a pipeline be cancelled by their name.
    pub(crate) fn steer(&self, pipeline: Weak<dyn Steered>) {
        self.inner.steer(pipeline);
    }
}

#[cfg(all(test, not(plimsoll_loom), not(plimsoll_shuttle)))]
mod tests;
