//! How a pipeline is put together: stage by stage, each with the type that the one before makes.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use super::certified::Certified;
use super::cx::StageCx;
use super::drift::Learning;
use super::error::Rejection;
use super::fan::{Fan, FanIn, PartIter};
use super::landing::Landing;
use super::lay::{Ground, lay, ties_of};
use super::line::{CloneFn, FailuresFn};
use super::needs::Needs;
use super::options::Ids;
use super::paced::Paced;
use super::pacing::Pacing;
use super::retry::{Failure, Kept, Retry};
use super::stage::{Carrier, Place, RunFn, Stage};
use super::stats::{Event, Observer};
use super::task::{Runtime, TaskCx};
use super::trip::Value;
use super::{AlternativesOf, BytesOf, Pipeline, ProfileOf};
use crate::ledger::state::Kind;
use crate::ledger::{JobSpec, Ledger, Steered};
use crate::pool::{Pool, Tenant};
use crate::sync::lock;
use crate::{Budget, Bytes, Class, Profile};

const REMEMBER: usize = 4096;
/// Models are of what they say: a pacer of their own would multiply their states.
const PACING: Pacing = if cfg!(plimsoll_loom) { Pacing::Unpaced } else { Pacing::Auto };

/// A pipeline under construction, whose stages so far lead from `In` to `Out`.
#[must_use = "a builder does nothing until it is built"]
pub struct Builder<In, Out, E> {
    ledger: Ledger,
    pool: Pool,
    profile: ProfileOf<In>,
    alternatives: Option<AlternativesOf<In>>,
    largest: Option<Profile>,
    observer: Option<Observer>,
    remember: usize,
    pacing: Pacing,
    learning: Learning,
    failures: FailuresFn<E>,
    clone_input: Option<CloneFn>,
    charge_input: Option<(Class, BytesOf<In>)>,
    pub(super) needs: Needs,
    stages: Vec<Stage<E>>,
    out: PhantomData<fn() -> Out>,
}

impl<In, E: 'static> Builder<In, In, E> {
    pub(super) fn new(ledger: &Ledger, pool: &Pool, profile: ProfileOf<In>) -> Self {
        Self {
            ledger: ledger.clone(),
            pool: pool.clone(),
            profile,
            alternatives: None,
            largest: None,
            observer: None,
            remember: REMEMBER,
            pacing: PACING,
            learning: Learning::default(),
            failures: Arc::new(|_| Failure::Transient),
            clone_input: None,
            charge_input: None,
            needs: Needs::default(),
            stages: Vec::new(),
            out: PhantomData,
        }
    }
}

impl<In, Out, E> Builder<In, Out, E>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
{
    /// Adds a stage. It consumes what the stage before made, and what it still holds of that when it returns is freed
    /// and returned.
    ///
    /// Inside, [`join`](crate::pool::join) and its kin use the pool's workers. It never waits for memory: what it needs
    /// was granted, and beyond that there is only `try_grow`.
    pub fn stage<Next, F>(self, name: &'static str, run: F) -> Builder<In, Next, E>
    where
        F: Fn(&mut StageCx<'_>, Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        self.then(Stage::new(name, Place::Worker(erased(run))))
    }

    /// Adds a stage that is run again from its input when it fails: it works on a reference, and the pipeline keeps the
    /// input until a run has succeeded. What the input holds must be in the stage's declared peak to the end.
    pub fn stage_again<Next, F>(self, name: &'static str, retry: Retry, run: F) -> Builder<In, Next, E>
    where
        F: Fn(&mut StageCx<'_>, &Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        self.then(Stage { retry: Some(retry), ..Stage::new(name, Place::Worker(erased_again(run))) })
    }

    /// As [`stage_again`](Builder::stage_again), on a thread of `carrier`: a device that may be out of memory.
    pub fn stage_on_again<Next, F>(
        self,
        name: &'static str,
        carrier: &Arc<dyn Carrier>,
        retry: Retry,
        run: F,
    ) -> Builder<In, Next, E>
    where
        F: Fn(&mut StageCx<'_>, &Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        self.then(Stage { retry: Some(retry), ..Stage::new(name, Place::Carried(carrier.clone(), erased_again(run))) })
    }

    /// Adds a future that is made again from its input when it fails: for remote calls. The input is shared, and kept until
    /// a run has succeeded.
    pub fn async_stage_again<Next, F, Fut>(
        self,
        name: &'static str,
        runtime: &Runtime,
        retry: Retry,
        start: F,
    ) -> Builder<In, Next, E>
    where
        F: Fn(TaskCx, Arc<Out>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Next, E>> + Send + 'static,
        Next: Send + 'static,
        Out: Sync,
    {
        let start = move |cx: TaskCx, input: &mut Option<Value>| -> super::task::StageFuture<E> {
            let value = input.take().expect("a stage has an input");
            let shared = match value.downcast::<Arc<Out>>() {
                Ok(shared) => *shared,
                Err(first) => Arc::new(*first.downcast::<Out>().expect("the builder chains the types")),
            };
            *input = Some(Box::new(shared.clone()));
            let future = start(cx, shared);
            Box::pin(async move { future.await.map(|next| Box::new(next) as Value) })
        };
        self.then(Stage { retry: Some(retry), ..Stage::new(name, Place::Task(runtime.clone(), Box::new(start))) })
    }

    /// Adds a stage that runs on a thread of `carrier` instead of a worker of the pool, and is otherwise as any
    /// [`stage`](Builder::stage). Outside of the pool, [`join`](crate::pool::join) and its kin run inline.
    pub fn stage_on<Next, F>(self, name: &'static str, carrier: &Arc<dyn Carrier>, run: F) -> Builder<In, Next, E>
    where
        F: Fn(&mut StageCx<'_>, Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        self.then(Stage::new(name, Place::Carried(carrier.clone(), erased(run))))
    }

    /// Adds a stage that runs in one of two ways, as the job's [alternatives](Builder::alternatives) say: with a profile that names
    /// a device's lane in this stage, on a thread of `carrier` by `on_carrier`; with one that names none, on a worker of the
    /// pool by `on_worker`. The ledger decides when it grants the stage.
    pub fn stage_on_either<Next, F, G>(
        self,
        name: &'static str,
        carrier: &Arc<dyn Carrier>,
        on_carrier: F,
        on_worker: G,
    ) -> Builder<In, Next, E>
    where
        F: Fn(&mut StageCx<'_>, Out) -> Result<Next, E> + Send + Sync + 'static,
        G: Fn(&mut StageCx<'_>, Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        self.then(Stage::new(name, Place::Either(carrier.clone(), erased(on_carrier), erased(on_worker))))
    }

    /// Adds a stage that is a future, polled on `runtime`: for I/O and remote calls. It occupies no worker.
    ///
    /// The stage's grant is held until the future has ended; cancelling the job drops the future, at once unless it is
    /// being polled. Panics are contained.
    ///
    /// ```
    /// # use plimsoll::pipeline::{Builder, Pipeline, Runtime};
    /// # use plimsoll::{Bytes, Class, Demand, Ledger, Profile, Space, pool::{Pool, PoolConfig}};
    /// # const PAGE: Class = Class::new("page", Space::HOST);
    /// # async fn download(_: String) -> std::io::Result<Vec<u8>> { Ok(vec![1]) }
    /// # fn build(builder: Builder<String, String, std::io::Error>, runtime: &Runtime) {
    /// builder.async_stage("fetch", runtime, |cx, url: String| async move {
    ///     let mut page = cx.vec::<u8>(PAGE, 4096).map_err(std::io::Error::other)?;
    ///     page.extend_from_slice(&download(url).await?).map_err(std::io::Error::other)?;
    ///     Ok(page)
    /// });
    /// # }
    /// ```
    pub fn async_stage<Next, F, Fut>(self, name: &'static str, runtime: &Runtime, start: F) -> Builder<In, Next, E>
    where
        F: Fn(TaskCx, Out) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Next, E>> + Send + 'static,
        Next: Send + 'static,
    {
        let start = move |cx: TaskCx, input: &mut Option<Value>| -> super::task::StageFuture<E> {
            let value = input.take().expect("a stage has an input");
            let value = value.downcast::<Out>().expect("the builder chains the types");
            let future = start(cx, *value);
            Box::pin(async move { future.await.map(|next| Box::new(next) as Value) })
        };
        self.then(Stage::new(name, Place::Task(runtime.clone(), Box::new(start))))
    }

    /// Adds a stage that splits its job into parts, which travel the stages of `parts`, and joins what they make.
    ///
    /// `split` makes the parts, one by one when there is room for the next, and what the join needs besides. Each part is a
    /// job with the profile that `profile` says; the pipeline's own profile makes room for them in this stage with
    /// [`Profile::parts`]. `parts` adds their stages. `join` gets the outputs with the indices of their parts, in the order
    /// that `order` says. Until then the job occupies no worker, and holds what this stage was granted.
    ///
    /// What parts share with their job is said to the pipeline's own builder: failures, what is learned, observers, the pace.
    ///
    /// # Panics
    ///
    /// If something else than stages, their retries and limits, and [needs](Builder::needs) is said to the builder of the parts.
    ///
    /// ```
    /// # use plimsoll::pipeline::{FanIn, Pipeline};
    /// # use plimsoll::pool::{Pool, PoolConfig};
    /// # use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};
    /// const PART: Class = Class::new("part", Space::HOST);
    ///
    /// let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(8 << 10)));
    /// let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() })?;
    /// let part = || Profile::new().stage("square", Demand::new().bytes(PART, Bytes(4096)), Demand::new());
    /// let whole = move |numbers: &Vec<u64>| {
    ///     Profile::new().stage("squares", Demand::new(), Demand::new()).parts(numbers.len() as u64, &part())
    /// };
    /// let pipeline = Pipeline::builder(&ledger, &pool, whole)
    ///     .fan_out(
    ///         "squares",
    ///         |_, numbers: Vec<u64>| Ok::<_, std::io::Error>(((), numbers)),
    ///         move |_| part(),
    ///         |parts| parts.stage("square", |_, n: u64| Ok(n * n)),
    ///         FanIn::InOrder,
    ///         |_, (), squares| Ok(squares.into_iter().map(|(_, square)| square).sum::<u64>()),
    ///     )
    ///     .build()?;
    /// assert_eq!(pipeline.submit("three", vec![1, 2, 3])?.wait()?, 14);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fan_out<Shared, Parts, PartOut, Next>(
        self,
        name: &'static str,
        split: impl Fn(&mut StageCx<'_>, Out) -> Result<(Shared, Parts), E> + Send + Sync + 'static,
        profile: impl Fn(&Parts::Item) -> Profile + Send + Sync + 'static,
        parts: impl FnOnce(Builder<Parts::Item, Parts::Item, E>) -> Builder<Parts::Item, PartOut, E>,
        order: FanIn,
        join: impl Fn(&mut StageCx<'_>, Shared, Vec<(usize, PartOut)>) -> Result<Next, E> + Send + Sync + 'static,
    ) -> Builder<In, Next, E>
    where
        Parts: IntoIterator<Item: Send + 'static, IntoIter: Send + 'static>,
        PartOut: Send + 'static,
        Shared: Send + 'static,
        Next: Send + 'static,
    {
        let part_of = |value: Value| *value.downcast::<PartOut>().expect("the builder chains the types");
        let inner = Builder::new(&self.ledger, &self.pool, Box::new(|_| Profile::new()));
        let judge = inner.failures.clone();
        let mut inner = parts(inner);
        inner.has_said_nothing_of_the_whole(name, &judge);
        inner.needs.add_those_of_parts(&inner.stages);
        let fan = Fan {
            split: Box::new(move |cx, input| {
                let value = input.take().expect("a stage has an input");
                let value = value.downcast::<Out>().expect("the builder chains the types");
                let (shared, parts) = split(cx, *value)?;
                let parts: PartIter = Box::new(parts.into_iter().map(|part| Box::new(part) as Value));
                Ok((Box::new(shared), parts))
            }),
            profile: Box::new(move |part| profile(part.downcast_ref().expect("the builder chains the types"))),
            join: Box::new(move |cx, shared, made| {
                let shared = shared.downcast::<Shared>().expect("the builder chains the types");
                let made = made.into_iter().map(|(index, value)| (index, part_of(value))).collect();
                join(cx, *shared, made).map(|next| Box::new(next) as Value)
            }),
            order,
            clone_input: inner.clone_input,
            needs: inner.needs,
            stages: inner.stages,
            line: None,
        };
        self.then(Stage::new(name, Place::Parts(fan)))
    }

    fn then<Next>(mut self, stage: Stage<E>) -> Builder<In, Next, E> {
        self.stages.push(stage);
        let Self { ledger, pool, profile, alternatives, largest, observer, .. } = self;
        let Self { remember, pacing, learning, failures, clone_input, charge_input, needs, stages, .. } = self;
        Builder {
            ledger,
            pool,
            profile,
            alternatives,
            largest,
            observer,
            remember,
            pacing,
            learning,
            failures,
            clone_input,
            charge_input,
            needs,
            stages,
            out: PhantomData,
        }
    }

    /// What concerns jobs, not their parts, would be lost where it is said to the builder of the parts.
    fn has_said_nothing_of_the_whole(&self, fan: &str, judge: &FailuresFn<E>) {
        let said = [
            ("alternatives", self.alternatives.is_some()),
            ("charge_input", self.charge_input.is_some()),
            ("failures", !Arc::ptr_eq(&self.failures, judge)),
            ("largest", self.largest.is_some()),
            ("learning", self.learning != Learning::default()),
            ("observe", self.observer.is_some()),
            ("pacing", self.pacing != PACING),
            ("remember", self.remember != REMEMBER),
        ];
        for (what, is_said) in said {
            assert!(
                !is_said,
                "`{what}` is said to the builder of the pipeline, not to that of the parts in stage {fan}"
            );
        }
    }

    /// Lets at most `jobs` be in the stage just added at once, whatever else there is room for; at least 1.
    ///
    /// # Panics
    ///
    /// If no stage has been added yet.
    pub fn at_most(mut self, jobs: usize) -> Self {
        let stage = self.stages.last_mut().expect("`at_most` is said of the stage before it: add one first");
        stage.at_most = Some(jobs.max(1) as u64);
        self
    }

    /// How many jobs may be under way, apart from what fits; [`Pacing::Auto`] otherwise, which finds out while running.
    pub fn pacing(mut self, pacing: Pacing) -> Self {
        self.pacing = pacing;
        self
    }

    /// Gives each job other profiles by which it may be served, in order of preference after the first: on another device, or
    /// with fewer bytes and slower ([`JobSpec::or`]). A stage learns from [`Grant::choice`](crate::Grant::choice) by which
    /// it was granted. A job whose stage stays [out of memory](Failure::OutOfMemory) goes by the next one that is smaller.
    pub fn alternatives(mut self, profiles: impl Fn(&In) -> Vec<Profile> + Send + Sync + 'static) -> Self {
        self.alternatives = Some(Box::new(profiles));
        self
    }

    /// Declares the largest job to come, so that [`build`](Builder::build) can tell whether it fits, and what the budget
    /// means for it.
    pub fn largest(mut self, profile: Profile) -> Self {
        self.largest = Some(profile);
        self
    }

    /// Calls `observer` whenever a stage begins or ends and when a job ends: on a worker, so briefly.
    pub fn observe(mut self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Lets a job begin again from its start when the stage just added fails; where that one [fans out](Builder::fan_out), also when
    /// one of its parts does, whose error is then judged by [`failures`](Builder::failures). The input is cloned when the job is
    /// submitted, and again for each start. An error that holds reservations of the job keeps it from that, and ends it.
    ///
    /// It takes the place of what was said before of that stage's retry: a stage is run again from its input, or from the start.
    ///
    /// # Panics
    ///
    /// If no stage has been added yet.
    pub fn from_start(mut self, retry: Retry) -> Self
    where
        In: Clone,
    {
        let stage = self.stages.last_mut().expect("`from_start` is said of the stage before it: add one first");
        stage.retry = Some(retry.anew());
        self.clone_input = Some(|input: &Value| Box::new(input.downcast_ref::<In>().expect("an input").clone()));
        self
    }

    /// Charges the inputs that jobs keep [for another start](Builder::from_start), as so many bytes of a class, from a job's
    /// first stage to the last one that may want its input again. They come on top of what the job's profile says; the
    /// [largest](Builder::largest) job declares them itself. A job that begins again then stays in flight, and the ledger
    /// keeps what it was promised.
    ///
    /// Not for the builder of [parts](Builder::fan_out), whose job makes room for them by its own profile.
    ///
    /// ```
    /// # use plimsoll::pipeline::{Builder, Retry};
    /// # use plimsoll::{Bytes, Class, Space};
    /// # const INPUT: Class = Class::new("input", Space::HOST);
    /// # fn f(builder: Builder<Vec<u8>, Vec<u8>, std::io::Error>) {
    /// builder
    ///     .stage("send", |_, input: Vec<u8>| Ok(input.len()))
    ///     .from_start(Retry::times(2))
    ///     .charge_input(INPUT, |input| Bytes(input.len() as u64));
    /// # }
    /// ```
    pub fn charge_input(mut self, class: Class, bytes: impl Fn(&In) -> Bytes + Send + Sync + 'static) -> Self {
        self.charge_input = Some((class, Box::new(bytes)));
        self
    }

    /// Says what kind of failure an error of a stage is. Otherwise all are [`Failure::Transient`], so that a stage that may
    /// be run again always is.
    pub fn failures(mut self, kind: impl Fn(&E) -> Failure + Send + Sync + 'static) -> Self {
        self.failures = Arc::new(kind);
        self
    }

    /// What is learned from stages that hold more or less than their profile says; [`Learning::More`] otherwise.
    pub fn learning(mut self, learning: Learning) -> Self {
        self.learning = learning;
        self
    }

    /// How many [identities](super::JobOptions::id) of jobs that have succeeded are remembered; 4096 otherwise.
    pub fn remember(mut self, ids: usize) -> Self {
        self.remember = ids;
        self
    }

    /// The pipeline.
    ///
    /// # Errors
    ///
    /// If the largest job, where one was declared, describes other stages or could never be admitted: then it names the
    /// stage, what there is too little of, and how much would do.
    ///
    /// # Panics
    ///
    /// If there are no stages.
    pub fn build(self) -> Result<Pipeline<In, Out, E>, Rejection> {
        let Self { ledger, pool, profile, alternatives, largest, observer, .. } = self;
        let Self { remember, pacing, learning, failures, clone_input, charge_input, mut needs, stages, .. } = self;
        needs.add_those_of_parts(&stages);
        assert!(!stages.is_empty(), "a pipeline has at least one stage");
        let ties = ties_of(&stages, "");
        let limits = ties.limits(Budget::new());
        // Limits and ropes of its own are a child's; without any the pipeline's jobs are the given ledger's.
        let is_tied = limits != Budget::new() || pacing != Pacing::Unpaced;
        // It ends with the pipeline's last handle on it.
        let ledger = if is_tied { ledger.child("pipeline", &limits) } else { ledger };
        let paced = Paced::new(pacing, pool.threads(), &stages);
        let certify = |profile: Profile| {
            same_stages(&profile, &stages)?;
            paced.classify(&ledger, std::slice::from_ref(&profile));
            // Nothing is asked for: a job that never enters a stage only shows whether it would be taken on.
            let tied = paced.tie(ties.with(&profile));
            let mut largest = JobSpec::new("the largest job", tied.clone());
            needs.add_to(&mut largest, &needs.by_choice(std::slice::from_ref(&profile)));
            drop(ledger.submit(largest)?);
            let limit = |kind| match kind {
                Kind::Space(space) => ledger.room(space).map(|room| room.0),
                Kind::Slots(slots) => ledger.slots_limit(slots),
            };
            Ok::<_, Rejection>((paced.certificate(&ties, &profile, limit), Certified::new(tied)))
        };
        let (certificate, certified) = largest.map(certify).transpose()?.unzip();
        let (remote, clock) = (pool.remote(), Arc::default());
        let landing = Arc::new(Landing::<E>::new(remote.clone()));
        let tenant: Weak<dyn Tenant> = Arc::downgrade(&(landing.clone() as Arc<dyn Tenant>));
        if !remote.move_in(tenant) {
            landing.close(true);
        }
        let steered: Weak<dyn Steered> = Arc::downgrade(&(landing.clone() as Arc<dyn Steered>));
        ledger.steer(steered);
        let ground = Ground { ledger, remote, observer, failures, learning, clock, landing };
        let mut line = lay(stages, clone_input, needs, paced, "", 0, &ground);
        *lock(&line.ids) = Ids::new(remember);
        line.certified = certified;
        let input_bytes = charge_input.and_then(|(class, bytes)| {
            line.kept = line.last_start().map(|until| Kept { class, until });
            line.kept.map(|_| bytes)
        });
        let line = Arc::new(line);
        Ok(Pipeline { line, profile, alternatives, input_bytes, certificate, _pool: pool, types: PhantomData })
    }
}

/// A stage that runs on a thread, without its types.
fn erased<In, Out, E, F>(run: F) -> RunFn<E>
where
    F: Fn(&mut StageCx<'_>, In) -> Result<Out, E> + Send + Sync + 'static,
    In: 'static,
    Out: Send + 'static,
{
    Box::new(move |cx, input| {
        let value = input.take().expect("a stage has an input");
        let value = value.downcast::<In>().expect("the builder chains the types");
        run(cx, *value).map(|next| Box::new(next) as Value)
    })
}

/// The same of a stage that leaves its input where it is.
fn erased_again<In, Out, E, F>(run: F) -> RunFn<E>
where
    F: Fn(&mut StageCx<'_>, &In) -> Result<Out, E> + Send + Sync + 'static,
    In: 'static,
    Out: Send + 'static,
{
    Box::new(move |cx, input| {
        let value = input.as_ref().and_then(|value| value.downcast_ref::<In>()).expect("the builder chains the types");
        run(cx, value).map(|next| Box::new(next) as Value)
    })
}

/// Whether a profile describes these stages.
pub(super) fn same_stages<E>(profile: &Profile, stages: &[Stage<E>]) -> Result<(), Rejection> {
    let declared = profile.stages().iter().map(|stage| stage.name);
    if declared.clone().eq(stages.iter().map(|stage| stage.name)) {
        return Ok(());
    }
    let list = |names: &mut dyn Iterator<Item = &'static str>| names.collect::<Vec<_>>().join(", ");
    Err(Rejection::OtherStages {
        profile: list(&mut declared.into_iter()),
        pipeline: list(&mut stages.iter().map(|stage| stage.name)),
    })
}

impl<In, Out, E> fmt::Debug for Builder<In, Out, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stages: Vec<_> = self.stages.iter().map(|stage| stage.name).collect();
        f.debug_struct("Builder").field("stages", &stages).finish_non_exhaustive()
    }
}
