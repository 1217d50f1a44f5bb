//! What all jobs of a pipeline share: its stages, and the list of those under way.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
// Statistics are part of no protocol: the standard library's atomics also under loom.
use std::sync::atomic::AtomicU64;

use super::clock::Clock;
use super::drift::{Drifts, Learning};
use super::options::Ids;
use super::paced::Paced;
use super::retry::Failure;
use super::stage::Stage;
use super::stats::{Event, Observer};
use super::ties::Ties;
use super::trip::{Trip, Value};
use crate::ledger::{Job, Ledger};
use crate::pool::{JobTag, Pass, Remote, Tenant};
use crate::sync::{Condvar, Mutex, lock, wait};

/// Says what kind of failure an error is.
pub(super) type FailuresFn<E> = Box<dyn Fn(&E) -> Failure + Send + Sync>;

/// Clones a pipeline's input.
pub(super) type CloneFn = fn(&Value) -> Value;

pub(super) struct Line<E> {
    pub(super) stages: Vec<Stage<E>>,
    pub(super) ledger: Ledger,
    pub(super) ties: Ties,
    pub(super) paced: Paced,
    pub(super) remote: Remote,
    pub(super) failures: FailuresFn<E>,
    pub(super) clone_input: Option<CloneFn>,
    pub(super) drifts: Drifts,
    pub(super) clock: Arc<Clock>,
    pub(super) ids: Mutex<Ids>,
    pub(super) deadlines_missed: AtomicU64,
    pub(super) observer: Option<Observer>,
    pub(super) trips: Mutex<Trips<E>>,
    pub(super) landed: Condvar,
}

pub(super) struct Trips<E> {
    /// Each with the right to the pool's workers until it has landed.
    under_way: HashMap<JobTag, (Arc<Trip<E>>, Pass)>,
    closed: bool,
    abandoned: bool,
}

impl<E: Send + 'static> Line<E> {
    pub(super) fn new(
        stages: Vec<Stage<E>>,
        ledger: Ledger,
        ties: Ties,
        paced: Paced,
        remote: Remote,
        observer: Option<Observer>,
        remember: usize,
    ) -> Self {
        let trips = Trips { under_way: HashMap::new(), closed: false, abandoned: false };
        Self {
            stages,
            ledger,
            ties,
            paced,
            remote,
            failures: Box::new(|_| Failure::Fatal),
            clone_input: None,
            drifts: Drifts::new(Learning::Nothing),
            clock: Arc::default(),
            ids: Mutex::new(Ids::new(remember)),
            deadlines_missed: AtomicU64::new(0),
            observer,
            trips: Mutex::new(trips),
            landed: Condvar::new(),
        }
    }

    /// Puts a trip on the list, unless the line is closed or its pool shut down.
    pub(super) fn enlist(&self, trip: &Arc<Trip<E>>) -> bool {
        let mut trips = lock(&self.trips);
        if trips.closed {
            return false;
        }
        let Some(pass) = self.remote.pass() else { return false };
        trips.under_way.insert(trip.tag, (trip.clone(), pass));
        true
    }

    /// Takes a trip that has ended off the list.
    pub(super) fn land(&self, tag: JobTag) {
        let mut trips = lock(&self.trips);
        let trip = trips.under_way.remove(&tag);
        if trips.under_way.is_empty() {
            self.landed.notify_all();
        }
        drop(trips);
        // Outside the lock: it may be the last reference.
        drop(trip);
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.trips).closed
    }

    pub(super) fn is_abandoned(&self) -> bool {
        lock(&self.trips).abandoned
    }

    pub(super) fn close(&self, abandon: bool) {
        let mut trips = lock(&self.trips);
        trips.closed = true;
        trips.abandoned |= abandon;
    }

    pub(super) fn cancel_all(&self) {
        let under_way: Vec<_> = lock(&self.trips).under_way.values().map(|(trip, _)| trip.clone()).collect();
        for trip in under_way {
            trip.cancel();
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        lock(&self.trips).under_way.len()
    }

    /// Blocks until no trip is on the list.
    pub(super) fn wait_until_empty(&self) {
        let mut trips = lock(&self.trips);
        while !trips.under_way.is_empty() {
            trips = wait(&self.landed, trips, None);
        }
    }

    /// Tells the observer, if there is one; its panics are its own.
    pub(super) fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(observer) = &self.observer {
            let _ = catch_unwind(AssertUnwindSafe(|| observer(&event())));
        }
    }

    /// The job as the next stage gets it: the same one, with all that the stage before has left to it.
    #[cfg(not(plimsoll_mutant = "permit-back-after-production"))]
    pub(super) fn hand_over(&self, job: Job) -> Job {
        job
    }

    /// The classical fault: the permit goes back when production ends, not when its product is gone.
    #[cfg(plimsoll_mutant = "permit-back-after-production")]
    pub(super) fn hand_over(&self, job: Job) -> Job {
        let spec = crate::JobSpec::new(job.name(), job.profile().clone());
        drop(job);
        self.ledger.submit(spec).expect("what was taken on once fits")
    }
}

/// The pool is aborted.
impl<E: Send + 'static> Tenant for Line<E> {
    fn give_up(&self) {
        self.close(true);
        self.cancel_all();
    }
}
