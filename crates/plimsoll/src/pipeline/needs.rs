//! What every job of a pipeline needs beside its stages: residencies, and how they are loaded.
//!
//! A load that falls to a job is run on a worker of the pool, as a task of that job; meanwhile the job waits for its first
//! stage as it waits for memory. Whatever becomes of the load comes back through the ledger: filled, all who wait go on;
//! failed, they are told; dropped with a pool that has ended, it falls to a job of another one.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::stage::{Place, Stage};
use super::trip::message_of;
use crate::JobSpec;
use crate::ledger::{AnyLoad, Load, Need, Residency};

/// Loads a residency, or gives the load back if it is another one's.
type LoadFn = Arc<dyn Fn(AnyLoad) -> Result<(), AnyLoad> + Send + Sync>;

/// The parts of a job have its needs.
#[derive(Clone, Default)]
pub(super) struct Needs(Vec<(Need, LoadFn)>);

impl Needs {
    pub(super) fn add<T, E, F>(&mut self, residency: &Residency<T>, load: F)
    where
        T: Send + Sync + 'static,
        E: Display,
        F: Fn(&mut Load<T>) -> Result<T, E> + Send + Sync + 'static,
    {
        let residency = residency.clone();
        let need = Need::from(&residency);
        let run = move |any: AnyLoad| {
            let mut slot = any.of(&residency)?;
            match catch_unwind(AssertUnwindSafe(|| load(&mut slot))) {
                // A value that nobody wants any more is dropped here.
                Ok(Ok(value)) => drop(slot.fill(value)),
                Ok(Err(error)) => slot.fail(error),
                Err(panic) => slot.fail(format_args!("panicked: {}", message_of(&*panic))),
            }
            Ok(())
        };
        self.0.push((need, Arc::new(run)));
    }

    /// Adds what the parts need into which these stages split their jobs. A part may need only what its job pins, so that
    /// whatever is pinned is pinned by somebody who was admitted with it.
    pub(super) fn add_those_of_parts<E>(&mut self, stages: &[Stage<E>]) {
        for stage in stages {
            let Place::Parts(fan) = &stage.place else { continue };
            for (need, load) in &fan.needs.0 {
                if self.0.iter().all(|(known, _)| known.id() != need.id()) {
                    self.0.push((need.clone(), load.clone()));
                }
            }
        }
    }

    pub(super) fn of(&self, spec: JobSpec) -> JobSpec {
        self.0.iter().fold(spec, |spec, (need, _)| spec.needs(need.clone()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Loads what has fallen to a job. Run by a worker.
    pub(super) fn load(&self, mut any: AnyLoad) {
        for (_, load) in &self.0 {
            match load(any) {
                Ok(()) => return,
                Err(other) => any = other,
            }
        }
    }
}
