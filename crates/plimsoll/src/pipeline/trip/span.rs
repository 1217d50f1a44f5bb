//! A `tracing` span for each run of a stage, with the feature `tracing`; nothing at all without it.
//!
//! The span is called `stage`, has the target `plimsoll::stage` and the level `INFO`. What the stage itself says to `tracing`
//! is inside of it, also between the polls of an async stage.
//!
//! | field | |
//! |---|---|
//! | `job`, `stage`, `place` | the job's name, the stage's, and where it runs: `worker`, `carrier`, `runtime`, `parts` |
//! | `bytes` | what the stage may hold, of all classes |
//! | `wait_seconds` | since the stage before ended: for memory, slots and a place to run |
//! | `run_seconds` | how long it ran; recorded at its end |

use std::time::Duration;

#[cfg(feature = "tracing")]
pub(super) use self::on::StageSpan;
use crate::Demand;
#[cfg(feature = "tracing")]
use crate::Resource;

/// No span: tracing is not built in.
#[cfg(not(feature = "tracing"))]
#[derive(Clone)]
pub(super) struct StageSpan;

#[cfg(not(feature = "tracing"))]
impl StageSpan {
    /// Before the first stage.
    pub(super) fn none() -> Self {
        Self
    }

    pub(super) fn new(
        _job: &str,
        _stage: &'static str,
        _place: &'static str,
        _peak: &Demand,
        _waited: Duration,
    ) -> Self {
        Self
    }

    pub(super) fn within<R>(&self, f: impl FnOnce() -> R) -> R {
        f()
    }

    pub(super) fn ended(&self, _ran: Duration) {}
}

#[cfg(feature = "tracing")]
mod on {
    use tracing::field::Empty;
    use tracing::{Span, info_span};

    use super::{Demand, Duration, Resource};

    /// The span of one run of a stage.
    #[derive(Clone)]
    pub(in crate::pipeline::trip) struct StageSpan(Span);

    impl StageSpan {
        /// Before the first stage.
        pub(in crate::pipeline::trip) fn none() -> Self {
            Self(Span::none())
        }

        pub(in crate::pipeline::trip) fn new(
            job: &str,
            stage: &'static str,
            place: &'static str,
            peak: &Demand,
            waited: Duration,
        ) -> Self {
            let bytes: u64 = peak
                .iter()
                .filter_map(|(resource, amount)| matches!(resource, Resource::Class(_)).then_some(amount))
                .sum();
            let wait_seconds = waited.as_secs_f64();
            Self(info_span!(
                target: "plimsoll::stage",
                parent: None,
                "stage",
                job,
                stage,
                place,
                bytes,
                wait_seconds,
                run_seconds = Empty
            ))
        }

        pub(in crate::pipeline::trip) fn within<R>(&self, f: impl FnOnce() -> R) -> R {
            self.0.in_scope(f)
        }

        pub(in crate::pipeline::trip) fn ended(&self, ran: Duration) {
            self.0.record("run_seconds", ran.as_secs_f64());
        }
    }
}
