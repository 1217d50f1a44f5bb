//! How a pipeline is put together: stage by stage, each with the type that the one before makes.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::certificate::Certificate;
use super::error::Rejection;
use super::line::{Line, Stage};
use super::stats::{Event, Meter, Observer};
use super::trip::Value;
use super::{Pipeline, ProfileOf, StageCx};
use crate::Profile;
use crate::ledger::{JobSpec, Ledger};
use crate::pool::Pool;

/// A pipeline under construction, whose stages so far lead from `In` to `Out`.
#[must_use = "a builder does nothing until it is built"]
pub struct Builder<In, Out, E> {
    ledger: Ledger,
    pool: Pool,
    profile: ProfileOf<In>,
    largest: Option<Profile>,
    observer: Option<Observer>,
    stages: Vec<Stage<E>>,
    out: PhantomData<fn() -> Out>,
}

impl<In, E> Builder<In, In, E> {
    pub(super) fn new(ledger: &Ledger, pool: &Pool, profile: ProfileOf<In>) -> Self {
        Self {
            ledger: ledger.clone(),
            pool: pool.clone(),
            profile,
            largest: None,
            observer: None,
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
    pub fn stage<Next, F>(mut self, name: &'static str, run: F) -> Builder<In, Next, E>
    where
        F: Fn(&mut StageCx<'_>, Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        let run = move |cx: &mut StageCx<'_>, value: Value| {
            let value = value.downcast::<Out>().expect("the builder chains the types");
            run(cx, *value).map(|next| Box::new(next) as Value)
        };
        self.stages.push(Stage { name, run: Box::new(run), meter: Meter::default() });
        let Self { ledger, pool, profile, largest, observer, stages, .. } = self;
        Builder { ledger, pool, profile, largest, observer, stages, out: PhantomData }
    }

    /// Declares the largest job to come, so that [`build`](Builder::build) can tell whether it fits, and what the budget
    /// means for it.
    pub fn largest(mut self, profile: Profile) -> Self {
        self.largest = Some(profile);
        self
    }

    /// Calls `observer` whenever a stage begins or ends and when a job ends: on a worker, so briefly.
    pub fn observe(mut self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.observer = Some(Box::new(observer));
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
        let Self { ledger, pool, profile, largest, observer, stages, .. } = self;
        assert!(!stages.is_empty(), "a pipeline has at least one stage");
        let certify = |profile: Profile| {
            same_stages(&profile, &stages)?;
            // Nothing is asked for: a job that never enters a stage only shows whether it would be taken on.
            drop(ledger.submit(JobSpec::new("the largest job", profile.clone()))?);
            Ok::<_, Rejection>(Certificate::new(&profile, &ledger.snapshot()))
        };
        let certificate = largest.map(certify).transpose()?;
        let line = Arc::new(Line::new(stages, ledger, pool.remote(), observer));
        Ok(Pipeline { line, profile, certificate, _pool: pool, types: PhantomData })
    }
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
