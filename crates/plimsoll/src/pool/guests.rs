//! Rayon inside a stage, on the workers' own threads.
//!
//! Rayon lets whoever builds a pool run the pool's threads. So a section builds one of its own, small and short-lived,
//! and its threads are workers of ours: the calling worker is the first, and the others come as workers are free, each
//! from between two tasks, and leave when the section ends. No thread is added, so no core is used twice.
//!
//! Rayon's work belongs to the job that opened the section, and a worker inside it runs nothing else. So the rule that
//! a worker that waits helps its own job only holds here too.

use std::sync::Arc;

use rayon_core::ThreadPoolBuilder;

use super::hand;
use super::injector::{Run, Task, Turn};
use super::job::{self, JobRef};
use super::worker::{Shared, Worker};
use crate::contain::Panic;
use crate::sync::{Mutex, lock};

/// Calls `f` so that what it does with rayon runs on this pool's threads, for code that uses rayon inside a stage.
///
/// The calling worker takes part, and so does every other worker of the pool that becomes free meanwhile. Never do more
/// threads run than the pool has. A worker that has come stays until `f` returns, even if rayon has nothing for it.
/// What `f` started with `rayon::spawn` is waited for. `f` itself may move to another of the pool's threads.
///
/// In a stage that runs elsewhere, on a device's lane, another carrier's thread (one of rayon's, maybe) or a runtime's, all of that is
/// done by workers of the pipeline's pool, while the calling thread waits. Inside another call of `with_rayon`, outside of any stage, and in a pool that
/// was aborted, it just calls `f`: there, that is on rayon's global pool.
///
/// `rayon::current_num_threads` says how many threads there may be at most. Do not wait until all of them take part, as
/// `rayon::broadcast` does: some may come late, or never.
///
/// # Panics
///
/// With the panic of `f`, or else the first of a closure given to `rayon::spawn`.
///
/// # Examples
///
/// ```
/// use plimsoll::pool::{Pool, PoolConfig, with_rayon};
/// use rayon::prelude::*;
///
/// let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() })?;
/// let sum = pool.install(|| with_rayon(|| (0..1000u64).into_par_iter().map(|x| x * x).sum::<u64>()));
/// assert_eq!(sum, 332_833_500);
/// # Ok::<(), plimsoll::pool::PoolError>(())
/// ```
pub fn with_rayon<F, R>(f: F) -> R
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    let is_rayons = rayon_core::current_thread_index().is_some();
    if is_rayons && mutant!("rayon-stays-with-its-carrier") {
        return f();
    }
    Worker::with_current(|worker| match worker {
        // Inside of a section.
        Some(_) if is_rayons => f(),
        Some(worker) => section(worker, f),
        // A carrier's threads may be rayon's, too: a stage has its job's workers all the same.
        None => match hand::pool_of_the_job() {
            Some(pool) if !mutant!("rayon-of-its-own-on-a-lane") => on_a_worker_of(&pool, f),
            _ => f(),
        },
    })
}

/// The same for a thread that is no worker, in a stage of a job of this pool's.
fn on_a_worker_of<F, R>(pool: &Shared, f: F) -> R
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    let submit = |work: JobRef| {
        let (tag, call) = (work.tag(), Call(Some(work)));
        // A stage's own work, for which a pool that drains has workers. What it does not take any more is given back.
        let run = Run::Stage(Box::new(move || Worker::with_current(|on| call.run(on.expect("a task is a worker's")))));
        drop(pool.submit(Task { tag, turn: Turn::UnderWay, stages_left: 0, priority: 0, run }));
        Ok(())
    };
    let mut f = Some(f);
    let here = |f: &mut Option<F>| f.take().expect("it is called once");
    let result = job::run_elsewhere(submit, || {}, || with_rayon(here(&mut f))).ok();
    // An aborted pool does nothing for anybody.
    result.unwrap_or_else(|| here(&mut f)())
}

/// A closure of a thread that waits for it: run, or given back.
struct Call(Option<JobRef>);

impl Call {
    fn run(mut self, on: &Worker) {
        if let Some(work) = self.0.take() {
            work.execute(on);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work.give_back();
        }
    }
}

fn section<F, R>(worker: &Worker, f: F) -> R
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    let stray_panic: Arc<Mutex<Option<Panic>>> = Arc::default();
    let keep_panic = stray_panic.clone();
    let mut threads = Vec::with_capacity(worker.threads());
    let pool = ThreadPoolBuilder::new()
        .num_threads(worker.threads())
        .panic_handler(move |payload| job::keep_first(&keep_panic, payload.into()))
        .spawn_handler(|thread| {
            threads.push(thread);
            Ok(())
        })
        .build()
        .expect("nothing is started that could be refused");
    let mut threads = threads.into_iter();
    let first = threads.next().expect("a pool has a thread");
    for thread in threads {
        worker.invite(Turn::Guest, Box::new(move || thread.run()));
    }
    let submit = |work: JobRef| {
        let (pool, inside) = {
            let pool = Arc::new(pool);
            (pool.clone(), pool)
        };
        pool.spawn(move || {
            Worker::with_current(|on| work.execute(on.expect("a section's threads are workers")));
            // The last handle: its threads leave when what was spawned has run.
            drop(inside);
        });
        drop(pool);
        Ok(())
    };
    let result = job::run_elsewhere(submit, || first.run(), f);
    let Ok(result) = result else { unreachable!("rayon gives nothing back") };
    // A statement of its own, so that nothing is locked when it goes on.
    let panic = lock(&stray_panic).take();
    if let Some(panic) = panic {
        job::raise(panic, result);
    }
    result
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests;
