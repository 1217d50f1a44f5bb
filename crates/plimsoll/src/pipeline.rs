//! The pipeline: a typed chain of stages that jobs travel with all that they hold.
//!
//! A [`Pipeline`] is built from stages `In → A → … → Out`; each consumes what the one before made. A job's
//! [`Profile`] says what it holds in and after each stage, and the [`Ledger`] lets it in
//! accordingly. What follows from that:
//!
//! - **The reservation travels with the job.** What a stage hands on stays charged until the true last use; ending a
//!   stage returns only what the stage did not take. So the jobs under way, and their bytes, are bounded by the budget,
//!   however slow the consumer.
//! - **A job that waits for memory occupies no thread.** It is parked, and the ledger's grant wakes it.
//! - **Downstream first.** A worker takes the most advanced job that may run, for that returns bytes soonest.
//! - **Every job ends** with a result or a [`JobError`], and has then returned all that does not travel with the result.
//!   That holds for errors, panics, cancellation, and a dropped ticket or pipeline.
//!
//! Stages run on workers of the pool ([`stage`](Builder::stage)), on threads of a [`Carrier`] such as a device
//! ([`stage_on`](Builder::stage_on)), or as futures ([`async_stage`](Builder::async_stage)); a stage can split its job into
//! parts ([`fan_out`](Builder::fan_out)). How jobs move between them is told in `pipeline/README.md`.
//!
//! ```
//! use plimsoll::pipeline::Pipeline;
//! use plimsoll::pool::{Pool, PoolConfig};
//! use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};
//!
//! const TABLE: Class = Class::new("table", Space::HOST);
//!
//! let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::MIB));
//! let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() })?;
//! let table = |len: &usize| Demand::new().bytes(TABLE, Bytes::of::<u64>(*len));
//! let pipeline = Pipeline::builder(&ledger, &pool, move |len| {
//!     Profile::new().stage("fill", table(len), table(len)).stage("sum", table(len), Demand::new())
//! })
//! .stage("fill", |cx, len: usize| {
//!     let mut table = cx.grant().vec::<u64>(TABLE, len)?;
//!     table.extend_from_slice(&vec![1; len])?;
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(table)
//! })
//! .stage("sum", |_, table| Ok(table.iter().sum::<u64>()))
//! .build()?;
//!
//! let ticket = pipeline.submit("thousand", 1000)?;
//! assert_eq!(ticket.wait().map_err(|error| error.to_string())?, 1000);
//! assert!(ledger.snapshot().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::Ledger;
use crate::pool::Pool;
use crate::{Budget, Bytes, Profile};

mod builder;
mod certificate;
mod certified;
mod clock;
mod cx;
mod drift;
mod error;
mod fan;
mod intake;
mod landing;
mod lay;
mod line;
mod needs;
mod options;
mod paced;
pub mod pacing;
mod retry;
mod run_all;
#[cfg(feature = "stream")]
mod run_stream;
mod stage;
mod stats;
mod task;
mod ticket;
mod ties;
mod trip;

pub use builder::Builder;
pub use certificate::{Backlog, Certificate, Obstacle};
pub use cx::StageCx;
pub(crate) use cx::Stop;
pub use drift::{Drift, DriftOf, Learning, WINDOW};
pub use error::{JobError, PartError, Rejected, Rejection};
pub use fan::FanIn;
pub use options::{JobOptions, Known, URGENT};
pub use paced::{PaceReport, RopeReport};
pub use pacing::Pacing;
pub use retry::{Failure, Retry};
pub use run_all::RunAll;
#[cfg(feature = "stream")]
pub use run_stream::RunStream;
pub use stage::{Carrier, Errand};
pub use stats::{Event, StageStats};
pub use task::{Runtime, Task, TaskCx};
pub use ticket::Ticket;

use landing::Handle;
use line::Line;
use options::Claimed;
use retry::Spare;
use ticket::Counter;
use trip::{Delivery, Input, Trip, Value};

/// A chain of stages from `In` to `Out`, whose stages fail with `E`. See the [module documentation](self).
///
/// Dropping it gives up the jobs under way ([`JobError::ShutDown`]) and blocks until their running stages have ended,
/// so that everything is returned. To let them finish first, [`drain`](Pipeline::drain) it. When the drop returns, **no thread
/// holds anything of the pipeline any more**: its stages, with the carriers and devices that they own, were dropped by the
/// dropping thread. What tickets, wakers and queued errands still have of a job is its name and where to leave word. A worker of
/// another pool lends its core meanwhile.
///
/// Dropped on a worker of its pool, or by a thread that has one of its jobs in hand (a carrier's, in the middle of a stage; any, in
/// a destructor or a waker that the pipeline calls), it does not block, since it would wait for itself. The same happens
/// soon after, on whatever thread comes last.
pub struct Pipeline<In, Out, E: Send + 'static> {
    line: Arc<Line<E>>,
    profile: ProfileOf<In>,
    alternatives: Option<AlternativesOf<In>>,
    input_bytes: Option<BytesOf<In>>,
    certificate: Option<Certificate>,
    // Declared last: the pool may end only after the pipeline has.
    _pool: Pool,
    types: PhantomData<fn(In) -> Out>,
}

type AlternativesOf<In> = Box<dyn Fn(&In) -> Vec<Profile> + Send + Sync>;
type BytesOf<In> = Box<dyn Fn(&In) -> Bytes + Send + Sync>;
type ProfileOf<In> = Box<dyn Fn(&In) -> Profile + Send + Sync>;

impl<In: Send + 'static, E: Send + 'static> Pipeline<In, In, E> {
    /// Starts a pipeline without stages. `profile` says what a job needs, from its input: the same stages in the same
    /// order as those added with [`Builder::stage`].
    pub fn builder(
        ledger: &Ledger,
        pool: &Pool,
        profile: impl Fn(&In) -> Profile + Send + Sync + 'static,
    ) -> Builder<In, In, E> {
        Builder::new(ledger, pool, Box::new(profile))
    }
}

impl<In, Out, E> Pipeline<In, Out, E>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
{
    /// Takes a job on. Returns at once: the job waits for its admission by itself.
    ///
    /// # Errors
    ///
    /// With the input, if the job can never fit into the budget, its profile is not one of this pipeline's, another job
    /// has its [identity](JobOptions::id), or the pipeline is [closed](Pipeline::close).
    pub fn submit(&self, job: impl Into<JobOptions>, input: In) -> Result<Ticket<Out, E>, Rejected<In>> {
        let (job, counter) = (job.into(), Counter::new());
        let name = job.name.clone();
        let trip = self.send(job, input, Box::new(counter.clone()))?;
        Ok(Ticket::new(name, counter, trip))
    }

    /// Runs a job for each of `inputs`, pairs of options (or just a name) and input, and yields the results with their index.
    ///
    /// The next input is pulled only when the first stage of the one before has begun, so that of the inputs no more
    /// are made than can be worked on. See [`RunAll`] for the order and further limits.
    pub fn run_all<I, N>(&self, inputs: I) -> RunAll<'_, In, Out, E, I::IntoIter>
    where
        I: IntoIterator<Item = (N, In)>,
        N: Into<JobOptions>,
    {
        RunAll::new(self, inputs.into_iter())
    }

    /// Runs a job for each item of a stream of options (or just a name) and input, such as an `async_channel::Receiver`, and
    /// yields the results as a stream.
    ///
    /// The next item is taken only when the first stage of the one before has begun. See [`RunStream`].
    #[cfg(feature = "stream")]
    pub fn run_stream<S, N>(&self, inputs: S) -> RunStream<'_, In, Out, E, S>
    where
        S: futures_core::Stream<Item = (N, In)>,
        N: Into<JobOptions>,
    {
        RunStream::new(self, inputs)
    }

    /// Refuses further jobs. Those under way go on.
    pub fn close(&self) {
        self.line.landing.close(false);
    }

    /// Cancels every job under way, as [`Ticket::cancel`] does.
    pub fn cancel_all(&self) {
        self.line.landing.cancel_all();
    }

    /// Cancels the jobs of this name that are under way, as [`Ticket::cancel`] does; returns how many there were.
    /// [`Ledger::cancel`] does so for all pipelines of a ledger.
    pub fn cancel(&self, job: &str) -> usize {
        self.line.landing.cancel(job)
    }

    /// Blocks until no job is under way: their tickets have been answered, and no thread is at any of them. Not for use on a
    /// worker of the pool, nor by a thread that has one of the jobs in hand; a worker of another pool lends its core meanwhile.
    pub fn drain(&self) {
        crate::pool::block_on_external(|| self.line.landing.wait_until_vacant());
    }

    /// How many jobs are under way or waiting. A job whose ticket is answered is not among them.
    pub fn in_flight(&self) -> usize {
        self.line.landing.in_flight()
    }

    /// The most jobs that were under way at once: whose first stage had begun, and which had not ended.
    pub fn begun_peak(&self) -> usize {
        self.line.begun_peak()
    }

    /// What each stage has done so far, in order; behind one that fans out, the stages of its parts.
    pub fn stats(&self) -> Vec<StageStats> {
        self.line.stats()
    }

    /// What the stages held, against what was declared for them: the worst of their last [`WINDOW`] runs, in order of stages.
    pub fn drift(&self) -> Vec<Drift> {
        self.line.drift()
    }

    /// What the budget means for the [largest job](Builder::largest), if that was declared.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// What another budget would mean for the [largest job](Builder::largest), or the first one where none was declared:
    /// whether it makes progress, what can pile up, and, as soon as each stage has been seen to its end, how fast it would
    /// go. `None` before there is such a job.
    ///
    /// ```
    /// # use plimsoll::pipeline::Pipeline;
    /// # use plimsoll::pool::{Pool, PoolConfig};
    /// # use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};
    /// # const TABLE: Class = Class::new("table", Space::HOST);
    /// # let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::MIB));
    /// # let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() })?;
    /// # let table = Demand::new().bytes(TABLE, Bytes(600));
    /// # let profile = Profile::new().stage("fill", table.clone(), table.clone()).stage("sum", table, Demand::new());
    /// # let largest = profile.clone();
    /// let pipeline = Pipeline::<u8, _, String>::builder(&ledger, &pool, move |_| profile.clone())
    ///     .stage("fill", |_, input| Ok(input))
    ///     .stage("sum", |_, input| Ok(input))
    ///     .largest(largest)
    ///     .build()?;
    /// let certificate = pipeline.certify(&Budget::new().space(Space::HOST, Bytes(1800))).expect("declared");
    /// assert_eq!(certificate.backlogs[0].jobs, Some(3));
    /// assert!(!pipeline.certify(&Budget::new().space(Space::HOST, Bytes(599))).expect("declared").makes_progress());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn certify(&self, budget: &Budget) -> Option<Certificate> {
        self.line.paced.certify(&self.line.ties, budget, None)
    }

    /// The same with the time of each stage, for a pipeline that has not run yet.
    ///
    /// # Panics
    ///
    /// If there is not one time for each stage.
    pub fn certify_with_times(&self, budget: &Budget, times: &[Duration]) -> Option<Certificate> {
        assert_eq!(times.len(), self.line.stages.len(), "each stage has a time");
        self.line.paced.certify(&self.line.ties, budget, Some(times))
    }

    /// How often more had piled up behind a stage than the [certificate](Pipeline::certificate) says. Always 0, or the
    /// ledger is wrong; in debug builds the job that saw it panics.
    pub fn certificate_violations(&self) -> u64 {
        self.line.certified.as_ref().map_or(0, |certified| certified.violations())
    }

    /// What sets the pace at present, and how many jobs it lets be where. `None` until the first job shows where bytes
    /// multiply, and where nothing is paced.
    pub fn pace(&self) -> Option<PaceReport> {
        self.line.paced.report()
    }

    /// How many jobs have missed their [deadline](JobOptions::deadline) so far.
    pub fn deadlines_missed(&self) -> u64 {
        self.line.deadlines_missed.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn send(&self, options: JobOptions, input: In, delivery: Box<dyn Delivery<E>>) -> Result<Handle<E>, Rejected<In>> {
        let (job, id) = (options.name.clone(), options.id.clone());
        let claimed = match id.map(|id| Claimed::new(&self.line.ids, id)).transpose() {
            Ok(claimed) => claimed,
            Err(reason) => return Err(Rejected { job, input, reason }),
        };
        let sent = self.send_off(options, input, delivery).map_err(|(input, reason)| Rejected { job, input, reason });
        if let (Some(claimed), Ok(_)) = (claimed, &sent) {
            claimed.belongs_to_its_job();
        }
        sent
    }

    fn send_off(
        &self,
        options: JobOptions,
        input: In,
        delivery: Box<dyn Delivery<E>>,
    ) -> Result<Handle<E>, (In, Rejection)> {
        if self.line.landing.is_closed() {
            return Err((input, Rejection::Closed));
        }
        let mut profiles = vec![(self.profile)(&input)];
        profiles.extend(self.alternatives.iter().flat_map(|alternatives| alternatives(&input)));
        if let Err(reason) = profiles.iter().try_for_each(|profile| builder::same_stages(profile, &self.line.stages)) {
            return Err((input, reason));
        }
        if options.has_alarms()
            && let Err(refused) = self.line.clock.start()
        {
            return Err((input, Rejection::NoClock { reason: refused.to_string() }));
        }
        let input_bytes = self.input_bytes.as_ref().map_or(Bytes::ZERO, |bytes| bytes(&input));
        if let Some(kept) = self.line.kept {
            profiles.iter_mut().for_each(|profile| *profile = kept.with(profile, input_bytes));
        }
        let class = self.line.paced.classify(&self.line.ledger, &profiles);
        let job = match self.line.take_on(&profiles, &options, None) {
            Ok(job) => job,
            Err(reason) => return Err((input, reason.into())),
        };
        let _mark = self.line.landing.in_hand();
        let value: Value = Box::new(input);
        let spare = Spare::of(self.line.clone_input, &value, input_bytes);
        let input = Input { value, spare };
        let trip = Trip::new(&self.line, job, profiles, class, options, input, delivery);
        if !self.line.landing.enlist(&trip) {
            let input = trip.unpack().downcast::<In>().expect("packed above");
            return Err((*input, Rejection::Closed));
        }
        trip.set_off();
        Ok(trip.handle())
    }
}

impl<In, Out, E: Send + 'static> Drop for Pipeline<In, Out, E> {
    fn drop(&mut self) {
        let landing = &self.line.landing;
        landing.close(true);
        landing.cancel_all();
        if !self.line.remote.is_here() && !landing.is_in_hand_here() {
            crate::pool::block_on_external(|| {
                landing.wait_until_vacant();
                self.line.clock.stop_and_wait();
            });
        } else {
            self.line.clock.stop();
        }
    }
}

impl<In, Out, E: Send + 'static> fmt::Debug for Pipeline<In, Out, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stages: Vec<_> = self.line.stages.iter().map(|stage| stage.name).collect();
        f.debug_struct("Pipeline").field("stages", &stages).field("in_flight", &self.line.landing.in_flight()).finish()
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
pub(crate) mod tests;
