//! What every job of a pipeline needs beside its stages: residencies, and how they are loaded.
//!
//! A load that falls to a job is run on a worker of the pool, as a task of that job; meanwhile the job waits for its first
//! stage as it waits for memory. Whatever becomes of the load comes back through the ledger: filled, all who wait go on;
//! failed, they are told; dropped with a pool that has ended, it falls to a job of another one.
//!
//! A load that is to be tried again rests until then, with what it was paid, and is then dropped: it falls to whoever waits for it by
//! that time. So a device that is out of memory has given back what the attempt had, no thread waits, and whoever is cancelled
//! meanwhile keeps nobody from the key; with the last who waits it is dropped at once. When its time has run out those who wait are
//! told; who has a plan that does without what there was no memory for goes by that.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Instant;

use super::Builder;
use super::retry::{Answer, Failure, Retry, Tries};
use super::stage::{Place, Stage};
use crate::contain::{contain, discard};
use crate::device::{Device, DeviceError, Driver, DriverError, StageError, Staged};
use crate::ledger::{AnyLoad, Load, Need, Residency};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};
use crate::{JobSpec, Profile};

/// Loads a residency, or gives the load back if it is another one's.
type LoadFn = Arc<dyn Fn(AnyLoad, &Arc<Attempts>) -> Result<Loaded, AnyLoad> + Send + Sync>;

/// What became of a load.
pub(super) enum Loaded {
    /// Whoever waits knows.
    Over,
    /// It rests until then.
    Later(Instant, Arc<Attempts>),
}

/// A load that rests before it is tried again.
trait Resting: Send {
    /// Whether anybody waits for it.
    fn is_wanted(&self) -> bool;
}

impl<T: Send + Sync + 'static> Resting for Load<T> {
    fn is_wanted(&self) -> bool {
        Load::is_wanted(self)
    }
}

/// Whether a job that goes by this profile needs it.
type ByFn = Arc<dyn Fn(&Profile) -> bool + Send + Sync>;

#[derive(Clone)]
struct Declared {
    need: Need,
    /// Every job, without one.
    by: Option<ByFn>,
    load: LoadFn,
    attempts: Arc<Attempts>,
}

/// How often a residency was loaded in vain, for all jobs of a pipeline.
pub(super) struct Attempts {
    retry: Mutex<Retry>,
    /// Of those in a row, and when the next one is due.
    failed: Mutex<Option<(Tries, Instant)>>,
    /// There was no memory for it until the time had run out, and there has been none since.
    is_short: AtomicBool,
    /// There is one load at a time.
    resting: Mutex<Option<Box<dyn Resting>>>,
}

impl Attempts {
    /// Once, and where memory is short within a minute.
    fn new() -> Arc<Attempts> {
        let retry = Mutex::new(Retry::times(0));
        let (failed, is_short, resting) = (Mutex::default(), AtomicBool::new(false), Mutex::default());
        Arc::new(Attempts { retry, failed, is_short, resting })
    }

    /// Leaves the load that rests to whoever waits for it.
    pub(super) fn rested(&self) {
        let load = lock(&self.resting).take();
        drop(load);
    }

    /// The same where nobody does, so that its bytes are free.
    fn let_go(&self) {
        let mut resting = lock(&self.resting);
        let load = resting.take_if(|load| !load.is_wanted() && !mutant!("rests-for-nobody"));
        drop(resting);
        drop(load);
    }

    fn succeeded(&self) {
        *lock(&self.failed) = None;
        self.is_short.store(false, Ordering::Relaxed);
    }

    /// When it is to be tried again, if it is.
    fn failed(&self, failure: Failure, now: Instant) -> Option<Instant> {
        let retry = *lock(&self.retry);
        let mut failed = lock(&self.failed);
        // Nobody may have waited for it any more when it was due: what comes much later is another matter.
        let in_a_row = |(_, due): &(Tries, Instant)| now.saturating_duration_since(*due) <= retry.within;
        let mut tries = failed.filter(in_a_row).map_or_else(Tries::default, |(tries, _)| tries);
        let answer = tries.failed(failure, &retry, now);
        let at = match answer {
            Answer::Again { at } if !mutant!("short-loads-fail") => Some(at),
            _ => None,
        };
        *failed = at.map(|at| (tries, at));
        self.is_short.store(matches!(answer, Answer::Smaller), Ordering::Relaxed);
        at
    }
}

/// The parts of a job have its needs.
#[derive(Clone, Default)]
pub(super) struct Needs(Vec<Declared>);

impl Needs {
    fn add<T, E, F>(&mut self, residency: &Residency<T>, by: Option<ByFn>, judge: fn(&E) -> Failure, load: F)
    where
        T: Send + Sync + 'static,
        E: Display + 'static,
        F: Fn(&mut Load<T>) -> Result<T, E> + Send + Sync + 'static,
    {
        let residency = residency.clone();
        let need = Need::from(&residency);
        let run = move |any: AnyLoad, attempts: &Arc<Attempts>| {
            let mut slot = any.of(&residency)?;
            // What an error says of itself is the user's as well.
            let loaded = contain(|| load(&mut slot).map_err(|error| (judge(&error), error.to_string())));
            let (failure, why) = match loaded {
                Ok(Ok(value)) => {
                    attempts.succeeded();
                    // A value that nobody wants any more is dropped here.
                    discard(slot.fill(value));
                    return Ok(Loaded::Over);
                }
                Ok(Err(failed)) => failed,
                Err(panic) => (Failure::Fatal, format!("panicked: {}", panic.message())),
            };
            match attempts.failed(failure, Instant::now()) {
                Some(at) => {
                    let before = lock(&attempts.resting).replace(Box::new(slot));
                    drop(before);
                    // Whoever waited may have gone in the meantime.
                    attempts.let_go();
                    Ok(Loaded::Later(at, attempts.clone()))
                }
                None => {
                    slot.fail(why);
                    Ok(Loaded::Over)
                }
            }
        };
        self.0.push(Declared { need, by, load: Arc::new(run), attempts: Attempts::new() });
    }

    /// Adds what the parts need into which these stages split their jobs. A part may need only what its job pins, so that
    /// whatever is pinned is pinned by somebody who was admitted with it.
    pub(super) fn add_those_of_parts<E>(&mut self, stages: &[Stage<E>]) {
        for stage in stages {
            let Place::Parts(fan) = &stage.place else { continue };
            for declared in &fan.needs.0 {
                if self.0.iter().all(|known| known.need.id() != declared.need.id()) {
                    self.0.push(declared.clone());
                }
            }
        }
    }

    /// What a job needs that goes by one of its profiles, beside what each needs.
    pub(super) fn by_choice(&self, profiles: &[Profile]) -> Vec<(usize, Need)> {
        let by_choice = |Declared { need, by, .. }: &Declared| {
            let by = by.as_ref()?;
            let choices = (0..profiles.len()).filter(|choice| by(&profiles[*choice]));
            Some(choices.map(|choice| (choice, need.clone())).collect::<Vec<_>>())
        };
        self.0.iter().filter_map(by_choice).flatten().collect()
    }

    /// Has a job need all that it does, by each of its profiles.
    pub(super) fn add_to(&self, spec: &mut JobSpec, by_choice: &[(usize, Need)]) {
        let by_all = self.0.iter().filter(|declared| declared.by.is_none());
        spec.needs.extend(by_all.map(|declared| declared.need.clone()));
        spec.needs_by.extend_from_slice(by_choice);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Loads what has fallen to a job. Run by a worker.
    pub(super) fn load(&self, mut any: AnyLoad) -> Loaded {
        for declared in &self.0 {
            match (declared.load)(any, &declared.attempts) {
                Ok(loaded) => return loaded,
                Err(other) => any = other,
            }
        }
        Loaded::Over
    }

    /// A job has ended: what it alone waited for, and rests, is left alone.
    pub(super) fn let_go(&self) {
        self.0.iter().for_each(|declared| declared.attempts.let_go());
    }

    /// By which of its profiles a job needs a residency of this name for which there was no memory until its time had run out.
    pub(super) fn short_of(&self, residency: &str, profiles: &[Profile]) -> Vec<usize> {
        let is_it = |declared: &&Declared| {
            declared.need.name() == Some(residency) && declared.attempts.is_short.load(Ordering::Relaxed)
        };
        let is_needed_by = |choice: &usize| {
            let needs = |declared: &Declared| declared.by.as_ref().is_none_or(|by| by(&profiles[*choice]));
            self.0.iter().filter(is_it).any(needs)
        };
        (0..profiles.len()).filter(is_needed_by).collect()
    }
}

/// A key was not written to its device.
struct NotFilled(StageError<DeviceError>);

impl Display for NotFilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            StageError::Stage(source) => source.fmt(f),
            other => other.fmt(f),
        }
    }
}

impl<In, Out, E> Builder<In, Out, E>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
{
    /// Declares that every job needs a residency: it is pinned from the job's admission to its end, and loaded by `load`, on a
    /// worker of the pool, where it is not there; a stage reads it with [`Grant::pinned`](crate::ledger::Grant::pinned). One
    /// load at a time, for all jobs of all pipelines that need it. If it fails, the jobs that wait for it end with that, unless
    /// it is [tried again](Builder::load_again).
    ///
    /// The stages of [parts](Builder::fan_out) read it as well. It may also be said to the builder of the parts; it is pinned for
    /// the whole job all the same.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use plimsoll::pipeline::Pipeline;
    /// # use plimsoll::pool::{Pool, PoolConfig};
    /// # use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};
    /// # const KEYS: Class = Class::new("keys", Space::HOST);
    /// # let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::MIB));
    /// # let pool = Pool::new(PoolConfig::default())?;
    /// let key = ledger.residency::<u64>("key", KEYS, Bytes(1000), Duration::from_secs(15))?;
    /// let read = key.clone();
    /// let pipeline = Pipeline::builder(&ledger, &pool, |_: &u64| {
    ///     Profile::new().stage("add", Demand::new(), Demand::new())
    /// })
    /// .stage("add", move |cx, input: u64| Ok::<u64, std::io::Error>(input + cx.grant().pinned(&read).expect("it is pinned")))
    /// .needs(&key, |_load| Ok::<u64, std::io::Error>(40))
    /// .build()?;
    /// assert_eq!(pipeline.submit("job", 2)?.wait()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn needs<T, X, F>(mut self, residency: &Residency<T>, load: F) -> Self
    where
        T: Send + Sync + 'static,
        X: Display + 'static,
        F: Fn(&mut Load<T>) -> Result<T, X> + Send + Sync + 'static,
    {
        self.needs.add(residency, None, |_| Failure::Transient, load);
        self
    }

    /// Declares that a job needs a residency where it goes by one of the profiles that `by` names: a table for the fast
    /// [alternative](Builder::alternatives), and none for the slow one. Otherwise as [`needs`](Builder::needs). `by` is asked about
    /// each profile of a job as it was declared, whenever the ledger is told of the job, and always says the same of the same profile. If
    /// it panics, so does whoever submits the job; a part of a job fails with it.
    pub fn needs_by<T, X, F>(
        mut self,
        residency: &Residency<T>,
        by: impl Fn(&Profile) -> bool + Send + Sync + 'static,
        load: F,
    ) -> Self
    where
        T: Send + Sync + 'static,
        X: Display + 'static,
        F: Fn(&mut Load<T>) -> Result<T, X> + Send + Sync + 'static,
    {
        self.needs.add(residency, Some(Arc::new(by)), |_| Failure::Transient, load);
        self
    }

    /// Tries the load of the residency just declared again when it fails, as often and as long as `retry` says, for all who wait for
    /// it by then. In between it keeps the bytes that the ledger has granted, and no thread waits. Without this it is not tried again,
    /// but for a key of a device's ([`needs_on`](Builder::needs_on)) that is out of memory: that one within a minute.
    ///
    /// # Panics
    ///
    /// If no residency has been declared yet.
    pub fn load_again(self, retry: Retry) -> Self {
        let declared = self.needs.0.last().expect("`load_again` is said of the need before it: declare one first");
        *lock(&declared.attempts.retry) = retry;
        self
    }

    /// Declares that a job needs a key of this device's where it goes by a profile [on it](Profile::is_on); where it is not there
    /// `fill` writes it, by calls of the driver, on the thread of one of the device's lanes ([`Device::fill`]). A stage takes it
    /// from its grant and has it [lent](crate::device::LaneCx::lend) to it.
    ///
    /// A device that is out of memory for it gives back what was allocated, and is asked again until the time limit, which is a minute
    /// unless [`load_again`](Builder::load_again) says another. Then a job that has an [alternative](Builder::alternatives) without this
    /// key goes by that, and those that have none end.
    pub fn needs_on<D, F>(mut self, device: &Device<D>, residency: &Residency<Arc<Staged<D>>>, fill: F) -> Self
    where
        D: Driver,
        F: Fn(&mut D::Lane, &D::Memory) -> Result<(), DriverError> + Send + Sync + 'static,
    {
        let (number, device, fill) = (device.number(), device.clone(), Arc::new(fill));
        let by: ByFn = Arc::new(move |profile| profile.is_on(number));
        let judge = |NotFilled(error): &NotFilled| match error {
            StageError::Stage(source) => source.failure(),
            _ => Failure::Fatal,
        };
        self.needs.add(residency, Some(by), judge, move |load| {
            let bytes = load.left();
            let (paid, fill) = (load.take(bytes).expect("all that is left"), fill.clone());
            let filled = device.fill(paid, move |lane, memory| fill(lane, memory));
            // What runs on the lane now may take its time: the core is lent meanwhile.
            crate::pool::block_on_external(|| filled.wait()).map(Arc::new).map_err(NotFilled)
        });
        self
    }
}
