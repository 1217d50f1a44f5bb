//! What a stage sees of its job.

use crate::ledger::Grant;
use crate::sync::atomic::{AtomicU8, Ordering};

/// Whether somebody wants a job to end, and why. The first reason stays.
#[derive(Debug)]
pub(crate) struct Stop(AtomicU8);

/// Why a job is to end before it has a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Cancelled = 1,
    /// What was to run it has gone.
    Forsaken = 2,
    /// Its caller waits no longer.
    TimedOut = 3,
}

impl Stop {
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    pub(super) fn set(&self, reason: Reason) {
        // Relaxed: the lock of the trip's state, taken next, orders it before the driver's look when it parks the job.
        let _ = self.0.compare_exchange(0, reason as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.reason().is_some()
    }

    pub(super) fn reason(&self) -> Option<Reason> {
        // Relaxed: a flag that carries nothing with it.
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            2 => Some(Reason::Forsaken),
            3 => Some(Reason::TimedOut),
            _ => Some(Reason::Cancelled),
        }
    }
}

/// What a stage sees of its job.
#[derive(Debug)]
pub struct StageCx<'a> {
    pub(super) grant: &'a mut Grant,
    pub(super) job: &'a str,
    pub(super) stage: &'static str,
    pub(super) stop: &'a Stop,
}

impl StageCx<'_> {
    /// Everything that the stage was granted. What it takes and hands on stays charged; the rest goes back when the
    /// stage ends.
    pub fn grant(&mut self) -> &mut Grant {
        self.grant
    }

    /// Its parts, for who runs the stage for us.
    pub(crate) fn split(&mut self) -> (&mut Grant, &Stop) {
        (self.grant, self.stop)
    }

    /// The job's name.
    pub fn job_name(&self) -> &str {
        self.job
    }

    /// The stage's name.
    pub fn stage_name(&self) -> &'static str {
        self.stage
    }

    /// Calls `f`, which waits for something outside of the ledger and the pool: a network, another process, a lock.
    /// Until it returns, a [stall report](crate::Ledger::stall) says what this job waits for, and another thread
    /// [uses the worker's core](crate::pool::block_on_external).
    pub fn block_on_external<R>(&self, what: &'static str, f: impl FnOnce() -> R) -> R {
        let _declared = self.grant.external_wait(what);
        crate::pool::block_on_external(f)
    }

    /// Whether somebody wants the job to end: a long stage looks now and then, and returns any error.
    pub fn is_cancelled(&self) -> bool {
        self.stop.is_set()
    }
}
