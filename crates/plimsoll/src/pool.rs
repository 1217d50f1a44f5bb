//! The work-stealing executor.
//!
//! A [`Pool`] owns worker threads. Stages of a pipeline run on them as tasks; inside a stage [`join`], [`scope()`],
//! [`for_each_chunk`] and [`map_indices`] fork work that idle workers steal. They use the pool of the calling worker,
//! and run inline on any other thread, so that code written with them works anywhere.
//!
//! A worker that waits for a fork helps **its own job only**: it never starts a stage, nor a fork, of another job
//! underneath, which would keep the first job's buffers alive behind the second. A worker that waits for something
//! outside [lends its core](block_on_external) to a spare thread. Idle workers sleep and cost nothing. How all that is
//! done is told in `pool/README.md`.

use std::sync::{Arc, mpsc};

mod affinity;
mod config;
mod deque;
mod end;
mod fence;
mod fork;
#[cfg(feature = "rayon")]
mod guests;
mod hand;
mod idle;
mod injector;
mod job;
mod lend;
#[cfg(plimsoll_loom)]
pub mod model;
pub mod order;
mod scope;
mod tenants;
mod worker;

pub use affinity::{Affinity, AffinityError};
pub use config::{PoolConfig, PoolError};
pub use end::{Closed, Shutdown};
pub use fork::{current_threads, for_each_chunk, join, map_indices};
#[cfg(feature = "rayon")]
pub use guests::with_rayon;
pub use scope::{Scope, scope};

use end::Crew;
pub(crate) use hand::InHand;
pub(crate) use injector::{Run, Task, Turn};
use job::JobRef;
pub(crate) use job::JobTag;
pub(crate) use tenants::Tenant;
use worker::{Hiring, Shared, Worker};

/// A handle to a set of worker threads. Cloning is cheap; the last handle dropped [drains](Shutdown::Drain) the pool,
/// and waits for its threads (a worker of another pool lends its core meanwhile), unless one of them drops it, or a thread that
/// has one of its jobs in hand (a device's lane, in the middle of a stage; any, in a destructor or a waker that a pipeline calls):
/// then they end by themselves.
#[derive(Clone, Debug)]
pub struct Pool {
    crew: Arc<Crew>,
}

impl Pool {
    /// Starts the worker threads.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoThreads`]; [`PoolError::Affinity`] if the cores asked for are not there or not allowed; or
    /// [`PoolError::Thread`] when the system refuses one. Those already started end.
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        let PoolConfig { threads, name, stack_bytes, spares, affinity } = config;
        if threads == 0 {
            return Err(PoolError::NoThreads);
        }
        let pins = affinity.resolve().map_err(PoolError::Affinity)?;
        let is_pinned = pins.is_some();
        let (shared, workers) = Shared::new(threads, spares, Hiring { name, stack_bytes, pins });
        // On failure the crew is dropped, and with it the threads that already run.
        let crew = Crew::new(shared);
        for (index, worker) in workers.into_iter().enumerate() {
            let refused = |source| PoolError::Thread { index, threads, source };
            if is_pinned {
                let (tell, hear) = mpsc::sync_channel(1);
                crew.hire(worker, move |bound| _ = tell.send(bound)).map_err(refused)?;
                let bound = hear.recv().expect("a thread that started says how it went");
                bound.map_err(|source| PoolError::Affinity(AffinityError::Refused { index, source }))?;
            } else {
                crew.hire(worker, drop).map_err(refused)?;
            }
        }
        Ok(Self { crew: Arc::new(crew) })
    }

    /// How many worker threads this pool has, spares not counted.
    pub fn threads(&self) -> usize {
        self.shared().threads()
    }

    /// Runs `f` on a worker of this pool, as a job of its own, and waits for it. On a worker of this pool it runs at
    /// once, as part of the current job.
    ///
    /// # Panics
    ///
    /// With the panic of `f`; and if the pool was [shut down](Pool::shutdown), see [`try_install`](Pool::try_install).
    ///
    /// # Deadlocks
    ///
    /// The calling thread blocks. A worker of *another* pool [lends its core](block_on_external) meanwhile, so that two
    /// pools may call each other, as deep as they have [spares](PoolConfig::spares).
    pub fn install<F, R>(&self, f: F) -> R
    where
        F: FnOnce() -> R + Send,
        R: Send,
    {
        match self.try_install(f) {
            Ok(result) => result,
            Err(Closed(_)) => panic!("`install` on a pool that was shut down; `try_install` gives the closure back"),
        }
    }

    /// The same on a pool that may have been shut down.
    ///
    /// # Errors
    ///
    /// With `f`, if the pool takes nothing new, or was aborted before a worker came to it.
    ///
    /// # Panics
    ///
    /// With the panic of `f`.
    pub fn try_install<F, R>(&self, f: F) -> Result<R, Closed<F>>
    where
        F: FnOnce() -> R + Send,
        R: Send,
    {
        let shared = self.shared();
        let submit = |visit: JobRef| {
            let task =
                Task { tag: visit.tag(), turn: Turn::UnderWay, stages_left: 0, priority: 0, run: Run::Visit(visit) };
            shared.submit(task).map_err(|task| match task.run {
                Run::Visit(visit) => visit,
                Run::Stage(_) => unreachable!("the task is a visit"),
            })
        };
        Worker::with_current(|worker| match worker {
            Some(worker) if worker.is_of(shared) => Ok(f()),
            Some(worker) => worker.lend_core(|| job::run_elsewhere(submit, || {}, f)).map_err(Closed),
            None => job::run_elsewhere(submit, || {}, f).map_err(Closed),
        })
    }

    /// The way in for wakers, which does not keep the threads alive.
    pub(crate) fn remote(&self) -> Remote {
        Remote { shared: self.shared().clone() }
    }

    /// How many workers sleep.
    pub fn sleeping(&self) -> usize {
        self.shared().idle.sleepers()
    }

    #[cfg(all(test, not(plimsoll_loom)))]
    pub(crate) fn has_queued_task(&self) -> bool {
        !self.shared().injector.is_empty()
    }

    /// As an abort leaves it before its tenants hear of it.
    #[cfg(all(test, not(plimsoll_loom)))]
    pub(crate) fn close_the_queue(&self) {
        drop(self.shared().injector.abort());
    }

    fn shared(&self) -> &Arc<Shared> {
        self.crew.shared()
    }
}

/// Calls `f`, which waits for something outside of the pool (a device, a network, a lock), and lends the calling
/// worker's core meanwhile: a spare thread works in its place. On any other thread it just calls `f`.
///
/// When `f` returns, the caller goes on at once. If the spare is in the middle of a task then, the core is
/// oversubscribed until that task ends. How many spares there may be says [`PoolConfig::spares`].
///
/// `f` should wait, not compute. In a stage of a pipeline,
/// [`StageCx::block_on_external`](crate::pipeline::StageCx::block_on_external) also tells the ledger.
pub fn block_on_external<R>(f: impl FnOnce() -> R) -> R {
    Worker::with_current(|worker| match worker {
        Some(worker) => worker.lend_core(f),
        None => f(),
    })
}

/// The right to submit tasks to a pool as long as it has handles.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    shared: Arc<Shared>,
}

impl Remote {
    /// Queues a task; a pool that has no use for it any more gives it back.
    pub(crate) fn submit(&self, task: Task) -> Result<(), Task> {
        self.shared.submit(task)
    }

    /// Whether a task waits that is further downstream than one with `stages_left` behind it.
    pub(crate) fn has_further_downstream(&self, stages_left: usize) -> bool {
        self.shared.injector.most_downstream().is_some_and(|first| first < stages_left)
    }

    /// Lets a job in, unless the pool takes no more: until the pass is dropped, a draining pool takes its tasks.
    pub(crate) fn pass(&self) -> Option<Pass> {
        self.shared.injector.take_pass().then(|| Pass { shared: self.shared.clone() })
    }

    /// Tells the pool whom to make give up when it is aborted; false if it takes no more jobs.
    pub(crate) fn move_in(&self, tenant: std::sync::Weak<dyn Tenant>) -> bool {
        self.shared.tenants.move_in(&self.shared.injector, tenant)
    }

    /// Whether the calling thread is a worker of the pool.
    pub(crate) fn is_here(&self) -> bool {
        Worker::with_current(|worker| worker.is_some_and(|worker| worker.is_of(&self.shared)))
    }
}

/// Held by a job under way.
#[derive(Debug)]
pub(crate) struct Pass {
    shared: Arc<Shared>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.shared.return_pass();
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests;
