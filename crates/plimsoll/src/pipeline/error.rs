//! How a job can end without a result, and why one is not taken on.

use std::sync::Arc;
use std::time::Duration;

use super::options::Known;
use crate::ledger::{EnterError, SubmitError};

/// A job that was taken on ended without a result. Everything it held has been returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError<E> {
    /// A stage returned an error.
    #[error("job {job:?} failed in stage {stage}")]
    Stage {
        /// The job.
        job: Arc<str>,
        /// The stage.
        stage: &'static str,
        /// What the stage said.
        source: E,
    },
    /// A stage panicked. The pool and the pipeline stay usable.
    #[error("job {job:?} panicked in stage {stage}: {message}; this is a bug in the stage")]
    Panicked {
        /// The job.
        job: Arc<str>,
        /// The stage.
        stage: &'static str,
        /// The panic's text.
        message: String,
    },
    /// One of the parts into which a stage had split the job failed. The other parts have been cancelled.
    #[error("part {part} of job {job:?} in stage {stage} failed")]
    Part {
        /// The job.
        job: Arc<str>,
        /// The stage that fanned out.
        stage: &'static str,
        /// Which part, from 0.
        part: usize,
        /// How it ended.
        source: PartError<E>,
    },
    /// It was cancelled, before or in this stage.
    #[error("job {job:?} was cancelled at stage {stage}")]
    Cancelled {
        /// The job.
        job: Arc<str>,
        /// The stage that was running, or would have come next.
        stage: &'static str,
    },
    /// The pipeline was dropped first, or its pool was aborted.
    #[error("job {job:?} was given up at stage {stage} because its pipeline was dropped or its pool aborted")]
    ShutDown {
        /// The job.
        job: Arc<str>,
        /// The stage that was running, or would have come next.
        stage: &'static str,
    },
    /// Its [time-out](super::JobOptions::timeout) has passed, before or in this stage.
    #[error("job {job:?} had no result within {after:?}, and was given up at stage {stage}")]
    TimedOut {
        /// The job.
        job: Arc<str>,
        /// The stage that was running, or would have come next.
        stage: &'static str,
        /// The time-out.
        after: Duration,
    },
    /// What was to run the stage dropped it instead: the runtime of an async stage was shut down, or a carrier's threads
    /// have ended.
    #[error(
        "job {job:?} was dropped at stage {stage} by what was to run it; keep its runtime alive until the job ends"
    )]
    Forsaken {
        /// The job.
        job: Arc<str>,
        /// The stage that was running, or would have come next.
        stage: &'static str,
    },
    /// The ledger refused the job a stage.
    #[error("job {job:?} was not let into stage {stage}")]
    NotEntered {
        /// The job.
        job: Arc<str>,
        /// The stage.
        stage: &'static str,
        /// Why.
        source: Box<EnterError>,
    },
    /// The job was not taken on; only from [`run_all`](super::Pipeline::run_all).
    #[error("job {job:?} was not taken on")]
    Rejected {
        /// The job.
        job: Arc<str>,
        /// Why.
        source: Rejection,
    },
}

/// How a part of a job ended: as any job. A type of its own, because an error that is its own source by its own type cannot
/// be turned into a `Box<dyn Error>` where its type has to be inferred.
#[derive(Debug)]
pub struct PartError<E>(pub Box<JobError<E>>);

impl<E> std::fmt::Display for PartError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for PartError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// A job that was not taken on. The input is back.
#[derive(thiserror::Error)]
#[error("job {job:?} was not taken on")]
pub struct Rejected<In> {
    /// The job's name.
    pub job: Arc<str>,
    /// What it was to start from.
    pub input: In,
    /// Why it was not taken on.
    #[source]
    pub reason: Rejection,
}

// By hand, because an input may be secret or large.
impl<In> std::fmt::Debug for Rejected<In> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rejected").field("job", &self.job).field("reason", &self.reason).finish_non_exhaustive()
    }
}

/// Why a job is not taken on, or a pipeline not built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The pipeline is closed.
    #[error("the pipeline is closed and takes no more jobs")]
    Closed,
    /// A job with this [identity](super::JobOptions::id) is under way, or has succeeded.
    #[error("a job with the id {id:?} {}", if *known == Known::UnderWay { "is under way" } else { "has succeeded already" })]
    Duplicate {
        /// The identity.
        id: Arc<str>,
        /// What is known of the other job.
        known: Known,
    },
    /// The profile describes other stages than the pipeline has.
    #[error(
        "the profile's stages are [{profile}] but the pipeline's are [{pipeline}]; name the same ones in the same order"
    )]
    OtherStages {
        /// The names in the profile.
        profile: String,
        /// The names in the pipeline.
        pipeline: String,
    },
    /// The job has a deadline or a time-out, and the system has no thread that would tell when they are there.
    #[error(
        "the system has no thread for the job's deadline or time-out ({reason}); submit it again later, or without them"
    )]
    NoClock {
        /// What the system says.
        reason: String,
    },
    /// The ledger refused it: it can never fit, or contradicts itself.
    #[error(transparent)]
    Ledger(Box<SubmitError>),
}

impl From<SubmitError> for Rejection {
    fn from(error: SubmitError) -> Self {
        Rejection::Ledger(Box::new(error))
    }
}
