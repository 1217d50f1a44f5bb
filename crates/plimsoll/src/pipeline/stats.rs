//! What a pipeline tells about its stages.

use std::sync::Arc;
// Statistics are part of no protocol: the standard library's atomics also under loom.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What one stage has done so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageStats {
    /// The stage's name.
    pub stage: &'static str,
    /// How many jobs have been through it, failed ones included.
    pub count: u64,
    /// How many of these runs failed and were followed by another.
    pub retried: u64,
    /// For how long it ran, summed over all jobs.
    pub run_seconds: f64,
    /// For how long jobs waited before it, for memory, slots and a worker, summed over all jobs.
    pub wait_seconds: f64,
}

/// What just happened to a job, for progress bars and traces.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A stage begins.
    StageBegan {
        /// The job's name.
        job: Arc<str>,
        /// The stage.
        stage: &'static str,
    },
    /// A stage has ended, well or not.
    StageEnded {
        /// The job's name.
        job: Arc<str>,
        /// The stage.
        stage: &'static str,
        /// For how long it ran.
        run_seconds: f64,
    },
    /// A stage has failed, and the job goes on: from the stage's input, or from its own start.
    Retried {
        /// The job's name.
        job: Arc<str>,
        /// The stage that failed.
        stage: &'static str,
        /// The job begins again.
        from_start: bool,
    },
    /// A job's deadline has passed. The job goes on.
    DeadlineMissed {
        /// The job's name.
        job: Arc<str>,
        /// The stage that it is in, or waits to enter.
        stage: &'static str,
    },
    /// A job has ended.
    JobEnded {
        /// The job's name.
        job: Arc<str>,
        /// Whether there is a result.
        succeeded: bool,
    },
}

/// Who is told of events.
pub(super) type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// The running sums of one stage.
#[derive(Debug, Default)]
pub(super) struct Meter {
    count: AtomicU64,
    retried: AtomicU64,
    run_nanos: AtomicU64,
    wait_nanos: AtomicU64,
}

impl Meter {
    pub(super) fn waited(&self, time: Duration) {
        self.wait_nanos.fetch_add(nanos(time), Ordering::Relaxed);
    }

    pub(super) fn ran(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.run_nanos.fetch_add(nanos(time), Ordering::Relaxed);
    }

    pub(super) fn retried(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    /// How long the stage runs on average, once that is known.
    pub(super) fn mean(&self) -> Option<Duration> {
        let count = self.count.load(Ordering::Relaxed);
        (count > 0).then(|| Duration::from_nanos(self.run_nanos.load(Ordering::Relaxed) / count))
    }

    pub(super) fn read(&self, stage: &'static str) -> StageStats {
        let seconds = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed)).as_secs_f64();
        StageStats {
            stage,
            count: self.count.load(Ordering::Relaxed),
            retried: self.retried.load(Ordering::Relaxed),
            run_seconds: seconds(&self.run_nanos),
            wait_seconds: seconds(&self.wait_nanos),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
