//! The work-stealing executor.
//!
//! A [`Pool`] owns worker threads. Stages of a pipeline run on them as tasks; inside a stage [`join`], [`scope()`],
//! [`for_each_chunk`] and [`map_indices`] fork work that idle workers steal. They use the pool of the calling worker,
//! and run inline on any other thread, so that code written with them works anywhere.
//!
//! A worker that waits for a fork helps **its own job only**: it never starts a stage, nor a fork, of another job
//! underneath, which would keep the first job's buffers alive behind the second. Idle workers sleep and cost nothing.
//! How both is done is told in `pool/README.md`.

use std::sync::Arc;

use crate::sync::thread;

mod deque;
mod idle;
mod job;
mod scope;
mod worker;

pub use scope::{Scope, scope};

pub(crate) use deque::{Run, Task};
use job::JobRef;
pub(crate) use job::JobTag;
use worker::{Shared, Worker};

/// What a [`Pool`] is made of.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// How many worker threads; by default as many as the process may use cores.
    pub threads: usize,
    /// What the threads are called, with their index behind it; by default `plimsoll`.
    pub name: String,
    /// Bytes of stack of each worker thread; by default 8 MiB, for deep recursion in user code.
    pub stack_bytes: usize,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            name: "plimsoll".to_owned(),
            stack_bytes: 8 << 20,
        }
    }
}

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The configuration asks for no threads.
    #[error("a pool needs at least one thread; set `threads` to 1 or more")]
    NoThreads,
    /// The operating system refused a thread.
    #[error("worker thread {index} of {threads} was refused; ask for fewer threads or raise the process's limit")]
    Thread {
        /// Which one was refused, from 0.
        index: usize,
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A handle to a set of worker threads. Cloning is cheap; the last handle dropped lets the workers finish what is
/// queued, and waits for them.
#[derive(Clone, Debug)]
pub struct Pool {
    crew: Arc<Crew>,
}

/// The threads, joined by the last handle.
#[derive(Debug)]
struct Crew {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Pool {
    /// Starts the worker threads.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoThreads`], or [`PoolError::Thread`] when the system refuses one; those already started end.
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        let PoolConfig { threads, name, stack_bytes } = config;
        if threads == 0 {
            return Err(PoolError::NoThreads);
        }
        let (shared, workers) = Shared::new(threads);
        let mut crew = Crew { shared, threads: Vec::with_capacity(threads) };
        for (index, worker) in workers.into_iter().enumerate() {
            let builder = thread::Builder::new().name(format!("{name}-{index}")).stack_size(stack_bytes);
            // On failure the crew is dropped, and with it the threads that already run.
            let thread =
                builder.spawn(move || worker.live()).map_err(|source| PoolError::Thread { index, threads, source })?;
            crew.threads.push(thread);
        }
        Ok(Self { crew: Arc::new(crew) })
    }

    /// How many worker threads this pool has.
    pub fn threads(&self) -> usize {
        self.crew.shared.threads()
    }

    /// Runs `f` on a worker of this pool, as a job of its own, and waits for it. On a worker of this pool it runs at
    /// once, as part of the current job.
    ///
    /// # Panics
    ///
    /// With the panic of `f`.
    ///
    /// # Deadlocks
    ///
    /// The calling thread blocks. Called on a worker of *another* pool it blocks that worker; two pools whose workers
    /// all wait for each other wait for ever.
    pub fn install<F, R>(&self, f: F) -> R
    where
        F: FnOnce() -> R + Send,
        R: Send,
    {
        let shared = &self.crew.shared;
        if Worker::with_current(|worker| worker.is_some_and(|worker| worker.is_of(shared))) {
            return f();
        }
        let submit = |visit: JobRef| {
            let task = Task { tag: visit.tag(), stages_left: 0, run: Run::Visit(visit) };
            shared.submit(task).map_err(|task| match task.run {
                Run::Visit(visit) => visit,
                Run::Stage(_) => unreachable!("the task is a visit"),
            })
        };
        job::run_elsewhere(submit, f).expect("a pool with a handle is open")
    }

    #[cfg(all(test, not(plimsoll_loom)))]
    pub(crate) fn has_queued_task(&self) -> bool {
        !self.crew.shared.injector.is_empty()
    }

    /// The way in for wakers, which does not keep the threads alive.
    pub(crate) fn remote(&self) -> Remote {
        Remote { shared: self.crew.shared.clone() }
    }

    /// How many workers sleep.
    pub fn sleeping(&self) -> usize {
        self.crew.shared.idle.sleepers()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.close();
        // A task may have held the last handle: its worker cannot wait for itself, and ends by itself.
        let me = Worker::with_current(|worker| worker.filter(|w| w.is_of(&self.shared)).map(Worker::index));
        for (index, thread) in self.threads.drain(..).enumerate() {
            if me != Some(index) {
                // A worker contains the panics of its tasks, so this error has no content.
                let _ = thread.join();
            }
        }
    }
}

/// The right to submit tasks to a pool as long as it has handles.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    shared: Arc<Shared>,
}

impl Remote {
    /// Queues a task; a pool without handles gives it back.
    pub(crate) fn submit(&self, task: Task) -> Result<(), Task> {
        self.shared.submit(task)
    }

    /// Whether a task waits that is further downstream than one with `stages_left` behind it.
    pub(crate) fn has_further_downstream(&self, stages_left: usize) -> bool {
        self.shared.injector.most_downstream().is_some_and(|first| first < stages_left)
    }

    /// Whether the calling thread is a worker of the pool.
    pub(crate) fn is_here(&self) -> bool {
        Worker::with_current(|worker| worker.is_some_and(|worker| worker.is_of(&self.shared)))
    }
}

/// How many threads can work on what the current stage forks; 1 outside a pool.
pub fn current_threads() -> usize {
    Worker::with_current(|worker| worker.map_or(1, Worker::threads))
}

/// Runs both closures, possibly in parallel, and returns both results.
///
/// The calling worker runs `a` and lets `b` be stolen meanwhile.
///
/// # Panics
///
/// With the panic of `a`, or else of `b`, after both have ended. If `a` panics before `b` was stolen, `b` does not run.
#[inline]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    Worker::with_current(|worker| match worker {
        Some(worker) => job::join(worker, a, b),
        None => (a(), b()),
    })
}

/// Calls `f(offset, chunk)` for each chunk of `chunk_len` elements (the last may be shorter), possibly in parallel.
///
/// # Panics
///
/// If `chunk_len` is 0, and with the panic of a call of `f`; then other chunks may be left out.
pub fn for_each_chunk<T, F>(data: &mut [T], chunk_len: usize, f: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    assert_ne!(chunk_len, 0, "a chunk needs at least one element");
    // Several leaves for each thread even out chunks of unequal cost; more would only add overhead.
    let leaves = if current_threads() == 1 { 1 } else { current_threads() * 16 };
    let chunks_a_leaf = data.len().div_ceil(chunk_len).div_ceil(leaves).max(1);
    halve(data, 0, chunk_len, chunks_a_leaf, &f);
}

fn halve<T, F>(data: &mut [T], offset: usize, chunk_len: usize, chunks_a_leaf: usize, f: &F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    let chunks = data.len().div_ceil(chunk_len);
    if chunks <= chunks_a_leaf {
        for (index, chunk) in data.chunks_mut(chunk_len).enumerate() {
            f(offset + index * chunk_len, chunk);
        }
        return;
    }
    let middle = chunks / 2 * chunk_len;
    let (left, right) = data.split_at_mut(middle);
    join(
        || halve(left, offset, chunk_len, chunks_a_leaf, f),
        || halve(right, offset + middle, chunk_len, chunks_a_leaf, f),
    );
}

/// Calls `f(i)` for each `i` in `0..n`, possibly in parallel, and returns the results in order.
///
/// # Panics
///
/// With the panic of a call of `f`; then other indices may be left out.
pub fn map_indices<R, F>(n: usize, f: F) -> Vec<R>
where
    R: Send,
    F: Fn(usize) -> R + Sync,
{
    let mut results: Vec<Option<R>> = std::iter::repeat_with(|| None).take(n).collect();
    for_each_chunk(&mut results, 1, |index, slot| slot[0] = Some(f(index)));
    results.into_iter().map(|result| result.expect("every index was visited")).collect()
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests;
