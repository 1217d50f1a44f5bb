//! What every job of a pipeline needs beside its stages: residencies, and how they are loaded.
//!
//! A load that falls to a job is run on a worker of the pool, as a task of that job; meanwhile the job waits for its first
//! stage as it waits for memory. Whatever becomes of the load comes back through the ledger: filled, all who wait go on;
//! failed, they are told; dropped with a pool that has ended, it falls to a job of another one.

use std::fmt::Display;
use std::sync::Arc;

use super::Builder;
use super::stage::{Place, Stage};
use crate::contain::contain;
use crate::device::{Device, Driver, DriverError, StageError, Staged};
use crate::ledger::{AnyLoad, Load, Need, Residency};
use crate::{JobSpec, Profile};

/// Loads a residency, or gives the load back if it is another one's.
type LoadFn = Arc<dyn Fn(AnyLoad) -> Result<(), AnyLoad> + Send + Sync>;

/// Whether a job that goes by this profile needs it.
type ByFn = Arc<dyn Fn(&Profile) -> bool + Send + Sync>;

#[derive(Clone)]
struct Declared {
    need: Need,
    /// Every job, without one.
    by: Option<ByFn>,
    load: LoadFn,
}

/// The parts of a job have its needs.
#[derive(Clone, Default)]
pub(super) struct Needs(Vec<Declared>);

impl Needs {
    fn add<T, E, F>(&mut self, residency: &Residency<T>, by: Option<ByFn>, load: F)
    where
        T: Send + Sync + 'static,
        E: Display,
        F: Fn(&mut Load<T>) -> Result<T, E> + Send + Sync + 'static,
    {
        let residency = residency.clone();
        let need = Need::from(&residency);
        let run = move |any: AnyLoad| {
            let mut slot = any.of(&residency)?;
            match contain(|| load(&mut slot)) {
                // A value that nobody wants any more is dropped here.
                Ok(Ok(value)) => drop(slot.fill(value)),
                Ok(Err(error)) => slot.fail(error),
                Err(panic) => slot.fail(format_args!("panicked: {}", panic.message())),
            }
            Ok(())
        };
        self.0.push(Declared { need, by, load: Arc::new(run) });
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
    pub(super) fn load(&self, mut any: AnyLoad) {
        for declared in &self.0 {
            match (declared.load)(any) {
                Ok(()) => return,
                Err(other) => any = other,
            }
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
    /// load at a time, for all jobs of all pipelines that need it. If it fails, the jobs that wait for it end with that.
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
        X: Display,
        F: Fn(&mut Load<T>) -> Result<T, X> + Send + Sync + 'static,
    {
        self.needs.add(residency, None, load);
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
        X: Display,
        F: Fn(&mut Load<T>) -> Result<T, X> + Send + Sync + 'static,
    {
        self.needs.add(residency, Some(Arc::new(by)), load);
        self
    }

    /// Declares that a job needs a key of this device's where it goes by a profile [on it](Profile::is_on); where it is not there
    /// `fill` writes it, by calls of the driver, on the thread of one of the device's lanes ([`Device::fill`]). A stage takes it
    /// from its grant and has it [lent](crate::device::LaneCx::lend) to it.
    pub fn needs_on<D, F>(self, device: &Device<D>, residency: &Residency<Arc<Staged<D>>>, fill: F) -> Self
    where
        D: Driver,
        F: Fn(&mut D::Lane, &D::Memory) -> Result<(), DriverError> + Send + Sync + 'static,
    {
        let (number, device, fill) = (device.number(), device.clone(), Arc::new(fill));
        self.needs_by(
            residency,
            move |profile| profile.is_on(number),
            move |load| {
                let bytes = load.left();
                let (paid, fill) = (load.take(bytes).expect("all that is left"), fill.clone());
                let filled = device.fill(paid, move |lane, memory| fill(lane, memory));
                // What runs on the lane now may take its time: the core is lent meanwhile.
                crate::pool::block_on_external(|| filled.wait()).map(Arc::new).map_err(|error| match error {
                    StageError::Stage(source) => source.to_string(),
                    other => other.to_string(),
                })
            },
        )
    }
}
