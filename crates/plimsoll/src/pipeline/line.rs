//! What all jobs of a pipeline share: its stages, and what is learned and told of them.

use std::sync::Arc;
// Statistics are part of no protocol: the standard library's atomics also under loom.
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::certified::Certified;
use super::clock::Clock;
use super::drift::{Drift, Drifts};
use super::landing::Landing;
use super::lay::Ground;
use super::needs::Needs;
use super::options::{Ids, JobOptions};
use super::paced::Paced;
use super::retry::{Failure, From, Kept};
use super::stage::{Place, Stage};
use super::stats::{Event, Observer, StageStats};
use super::ties::Ties;
use super::trip::Value;
use crate::Profile;
use crate::contain::contain;
use crate::ledger::{Job, JobSpec, Ledger, SubmitError};
use crate::pool::Remote;
use crate::sync::Mutex;

/// Says what kind of failure an error is.
pub(super) type FailuresFn<E> = Arc<dyn Fn(&E) -> Failure + Send + Sync>;

/// Clones a pipeline's input.
pub(super) type CloneFn = fn(&Value) -> Value;

pub(super) struct Line<E> {
    pub(super) stages: Vec<Stage<E>>,
    /// How many stages follow each of them, those of parts included.
    pub(super) left: Vec<usize>,
    pub(super) ledger: Ledger,
    pub(super) ties: Ties,
    pub(super) paced: Paced,
    pub(super) certified: Option<Certified>,
    pub(super) remote: Remote,
    pub(super) failures: FailuresFn<E>,
    pub(super) clone_input: Option<CloneFn>,
    pub(super) kept: Option<Kept>,
    pub(super) needs: Needs,
    pub(super) drifts: Drifts,
    pub(super) clock: Arc<Clock>,
    pub(super) landing: Arc<Landing<E>>,
    pub(super) ids: Mutex<Ids>,
    pub(super) deadlines_missed: AtomicU64,
    begun: AtomicUsize,
    begun_peak: AtomicUsize,
    observer: Option<Observer>,
}

impl<E: Send + 'static> Line<E> {
    pub(super) fn new(
        stages: Vec<Stage<E>>,
        left: Vec<usize>,
        ties: Ties,
        paced: Paced,
        clone_input: Option<CloneFn>,
        drifts: Drifts,
        ground: &Ground<E>,
    ) -> Self {
        Self {
            stages,
            left,
            ties,
            paced,
            certified: None,
            clone_input,
            kept: None,
            needs: Needs::default(),
            drifts,
            ledger: ground.ledger.clone(),
            remote: ground.remote.clone(),
            failures: ground.failures.clone(),
            clock: ground.clock.clone(),
            landing: ground.landing.clone(),
            observer: ground.observer.clone(),
            ids: Mutex::new(Ids::new(0)),
            deadlines_missed: AtomicU64::new(0),
            begun: AtomicUsize::new(0),
            begun_peak: AtomicUsize::new(0),
        }
    }

    /// Has the ledger take on a job with these profiles: with what was learned of their stages, or, where it would not fit
    /// so, as they were declared.
    pub(super) fn take_on(
        &self,
        profiles: &[Profile],
        options: &JobOptions,
        parent: Option<&Job>,
    ) -> Result<Job, SubmitError> {
        // A rule of the user's is asked about what the user declared, not about what was learned of it since.
        let needs = self.needs.by_choice(profiles);
        let submit = |profiles: &[Profile]| {
            let (first, others) = profiles.split_first().expect("a job has a profile");
            let tie = |profile| self.paced.tie(self.ties.with(profile));
            let mut spec = JobSpec::new("", tie(first)).priority(options.priority);
            spec.name = options.name.clone();
            spec.alternatives = others.iter().map(tie).collect();
            spec.restarts = self.keeps_its_place(options);
            if let Some(parent) = parent {
                spec = spec.part_of(parent);
            }
            self.needs.add_to(&mut spec, &needs);
            self.ledger.submit(spec)
        };
        let corrected = self.drifts.correct(profiles).and_then(|corrected| submit(&corrected).ok());
        corrected.map_or_else(|| submit(profiles), Ok)
    }

    /// Whether a job that begins again from its start stays in flight with all that it was promised: where its input is charged, or
    /// where those behind it may hold what it needs, and wait for its result.
    pub(super) fn keeps_its_place(&self, options: &JobOptions) -> bool {
        let waited_for = options.in_order && !mutant!("waited-for-loses-its-place");
        self.kept.is_some() || (waited_for && self.last_start().is_some())
    }

    /// The last stage that may send its job back to the start.
    pub(super) fn last_start(&self) -> Option<usize> {
        let may = |stage: &Stage<E>| stage.retry.is_some_and(|retry| retry.from == From::Start);
        self.stages.iter().rposition(may)
    }

    /// The first stage of a job begins.
    pub(super) fn job_began(&self) {
        let begun = self.begun.fetch_add(1, Relaxed) + 1;
        self.begun_peak.fetch_max(begun, Relaxed);
    }

    /// A job that had begun has ended.
    pub(super) fn job_is_over(&self) {
        self.begun.fetch_sub(1, Relaxed);
    }

    pub(super) fn begun_peak(&self) -> usize {
        self.begun_peak.load(Relaxed)
    }

    /// Whether these are the stages of jobs, not of parts.
    pub(super) fn is_outermost(&self) -> bool {
        self.left.last() == Some(&0)
    }

    /// Of each stage, and of those of its parts behind it.
    fn of_each_stage<R>(&self, of: &impl Fn(&Self, usize) -> Vec<R>) -> Vec<R> {
        let with_parts = |index: usize| {
            let mut all = of(self, index);
            if let Place::Parts(fan) = &self.stages[index].place {
                all.extend(fan.line().of_each_stage(of));
            }
            all
        };
        (0..self.stages.len()).flat_map(with_parts).collect()
    }

    pub(super) fn stats(&self) -> Vec<StageStats> {
        self.of_each_stage(&|line, index| vec![line.stages[index].meter.read(line.stages[index].name)])
    }

    pub(super) fn drift(&self) -> Vec<Drift> {
        self.of_each_stage(&|line, index| line.drifts.report(index, line.stages[index].name))
    }

    /// Tells the observer, if there is one; its panics are its own.
    pub(super) fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(observer) = &self.observer {
            drop(contain(|| observer(&event())));
        }
    }

    /// The job as the next stage gets it: the same one, with all that the stage before has left to it.
    pub(super) fn hand_over(&self, job: Job) -> Job {
        if mutant!("permit-back-after-production") { self.release_early(job) } else { job }
    }

    /// The classical fault: the permit goes back when production ends, not when its product is gone.
    fn release_early(&self, job: Job) -> Job {
        let spec = JobSpec::new(job.name(), job.profile().clone());
        drop(job);
        self.ledger.submit(spec).expect("what was taken on once fits")
    }
}
