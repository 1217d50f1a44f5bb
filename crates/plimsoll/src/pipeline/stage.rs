//! What a pipeline knows of each of its stages: its name, where it runs, and what limits it.

use std::fmt;
use std::sync::Arc;

use super::cx::StageCx;
use super::fan::Fan;
use super::retry::Retry;
use super::stats::Meter;
use super::task::{Runtime, StartFn};
use super::trip::Value;
use crate::ledger::Grant;

/// A stage, its types erased.
pub(super) struct Stage<E> {
    pub(super) name: &'static str,
    pub(super) place: Place<E>,
    pub(super) meter: Meter,
    /// How many jobs may be in it at once.
    pub(super) at_most: Option<u64>,
    pub(super) retry: Option<Retry>,
}

/// Where a job that was granted the stage runs it. A new kind of stage is a new variant here; what follows from it is in
/// `trip` (who may drive) and `trip/run` (how it is run).
pub(super) enum Place<E> {
    /// A worker of the pool.
    Worker(RunFn<E>),
    /// A thread of the carrier's, such as a lane of a device.
    Carried(Arc<dyn Carrier>, RunFn<E>),
    /// The one or the other, as it was granted: with a device's lane on the carrier's thread (the first of the two), without
    /// one on a worker.
    Either(Arc<dyn Carrier>, RunFn<E>, RunFn<E>),
    /// A future on a runtime.
    Task(Runtime, StartFn<E>),
    /// Its parts' stages, wherever those run; splitting and joining run on a worker.
    Parts(Fan<E>),
}

impl<E> Place<E> {
    /// The word that traces use.
    pub(super) fn name(&self, grant: &Grant) -> &'static str {
        match self {
            Place::Worker(_) => "worker",
            Place::Either(..) if grant.lane().is_none() => "worker",
            Place::Carried(..) | Place::Either(..) => "carrier",
            Place::Task(..) => "runtime",
            Place::Parts(_) => "parts",
        }
    }
}

/// A stage that runs on a thread from its beginning to its end.
///
/// It takes its input out, or leaves it there for another run.
pub(super) type RunFn<E> = Box<dyn Fn(&mut StageCx<'_>, &mut Option<Value>) -> Result<Value, E> + Send + Sync>;

impl<E> Stage<E> {
    pub(super) fn new(name: &'static str, place: Place<E>) -> Self {
        Self { name, place, meter: Meter::default(), at_most: None, retry: None }
    }
}

/// Threads that are not the pool's and run stages all the same: the lanes of a device, the one thread on which a library
/// insists. See [`Builder::stage_on`](super::Builder::stage_on).
pub trait Carrier: Send + Sync + 'static {
    /// Takes an errand on, to [`run`](Errand::run) it soon on one of the carrier's threads. Returns at once.
    ///
    /// Called from any thread, also from one that just returned bytes to the ledger; no lock of the pipeline is held. An
    /// errand that is dropped instead of run ends its job with [`JobError::Forsaken`](super::JobError::Forsaken).
    fn carry(&self, errand: Errand);

    /// Whether the calling thread, one of the carrier's, is the right one for a stage that was granted this. Otherwise the
    /// job is given to [`carry`](Carrier::carry) once more.
    fn suits(&self, grant: &Grant) -> bool {
        let _ = grant;
        true
    }
}

/// One thing to do on a carrier's thread: drive a job on, which runs its stage if that was granted.
pub struct Errand {
    job: Arc<str>,
    stages_left: usize,
    priority: i32,
    lane: Option<u16>,
    work: Option<Box<dyn Work>>,
}

/// The job behind an errand.
pub(super) trait Work: Send {
    fn run(self: Box<Self>);
    fn forsake(self: Box<Self>);
}

impl Errand {
    pub(super) fn new(
        job: Arc<str>,
        stages_left: usize,
        priority: i32,
        lane: Option<u16>,
        work: Box<dyn Work>,
    ) -> Self {
        Self { job, stages_left, priority, lane, work: Some(work) }
    }

    /// The job's name.
    pub fn job_name(&self) -> &str {
        &self.job
    }

    /// How many stages follow this one. Those with the fewest go first where there is a choice: they return bytes soonest.
    pub fn stages_left(&self) -> usize {
        self.stages_left
    }

    /// The job's [priority](super::JobOptions::priority), raised if its deadline was near when it was sent here: among errands with
    /// as many stages left the highest goes first. A job whose deadline comes near later is sent once more, with the higher one;
    /// the errand that is run first does the work, and the other one finds nothing to do.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// The device of which the job was granted a lane; `None` where its stage is not granted yet, or on no device.
    pub fn lane(&self) -> Option<u16> {
        self.lane
    }

    /// Runs it. Panics of a stage are contained.
    pub fn run(mut self) {
        if let Some(work) = self.work.take() {
            work.run();
        }
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            work.forsake();
        }
    }
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errand").field("job", &self.job).field("stages_left", &self.stages_left).finish_non_exhaustive()
    }
}
