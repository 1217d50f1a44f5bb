//! What a service holds for one request.

use plimsoll::ledger::{EnterError, SubmitError};
use plimsoll::{Demand, Grant, Job, Resource};
use thiserror::Error;

/// What a service holds for one request. Dropping it returns everything.
#[must_use = "dropping an admission returns its bytes"]
#[derive(Debug)]
pub struct Admission {
    // Dropped in this order: the stage ends, then its job.
    grant: Grant,
    job: Job,
}

impl Admission {
    pub(crate) fn new(job: Job, grant: Grant) -> Admission {
        Admission { grant, job }
    }

    /// The grant: take reservations from it to hold the bytes with the buffers that they pay for.
    pub fn grant(&mut self) -> &mut Grant {
        &mut self.grant
    }

    /// Returns the bytes beyond what a request needs.
    pub(crate) fn shrink_to(&mut self, request: &Demand) -> Result<(), AdmitError> {
        let [stage] = self.job.profile().stages() else { unreachable!("an admission has one stage") };
        let most = stage.peak.clone();
        if let Some((resource, requested)) = request.iter().find(|&(resource, amount)| amount > most.of(resource)) {
            return Err(AdmitError::AboveMost { resource, requested, most: most.of(resource) });
        }
        for (resource, most) in most.iter() {
            let Resource::Class(class) = resource else { continue };
            let surplus = plimsoll::Bytes(most - request.of(resource));
            drop(self.grant.take(class, surplus).expect("nothing was taken before"));
        }
        Ok(())
    }
}

/// A request was not admitted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// The service's declared maximum can never be served, or the ledger is closed.
    #[error(transparent)]
    Submit(SubmitError),
    /// A limit was lowered below the declared maximum, or the ledger was closed, while it was waited for.
    #[error(transparent)]
    Enter(EnterError),
    /// The request needs more than the service has declared.
    #[error(
        "the request needs {requested} of {resource} but the service declared at most {most}; \
         declare more in LedgerLayer::new, or refuse such requests before"
    )]
    AboveMost {
        /// What it needs too much of.
        resource: Resource,
        /// What the request needs: bytes or slots.
        requested: u64,
        /// What was declared.
        most: u64,
    },
    /// The service was called without being ready: it was never polled, or was idle for so long that it gave its
    /// reservation back, and there is no room now.
    #[error("the service is not ready, and there is no room now; call poll_ready right before call")]
    NotReady,
}
