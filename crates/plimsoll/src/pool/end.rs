//! How a pool ends: [`Shutdown`], and the threads that are waited for.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::worker::{Shared, Worker};
use super::{Pool, block_on_external};
use crate::sync::{Mutex, lock, thread};

/// How a pool is [shut down](Pool::shutdown).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Nothing new is taken; jobs under way, their later stages included, run to their ends.
    Drain,
    /// Nothing new is taken, and what has not begun is given back: queued calls of [`Pool::try_install`], and jobs,
    /// which end with [`JobError::ShutDown`](crate::pipeline::JobError::ShutDown). What runs at the moment runs on to
    /// the end of its stage, which can [see](crate::pipeline::StageCx::is_cancelled) that it is no longer wanted.
    Abort,
}

/// The pool was shut down; the closure comes back.
pub struct Closed<F>(pub F);

impl<F> fmt::Debug for Closed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Closed").finish_non_exhaustive()
    }
}

impl<F> fmt::Display for Closed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pool was shut down and takes no more work")
    }
}

impl<F> std::error::Error for Closed<F> {}

impl Pool {
    /// Ends the pool, and blocks until every job on it has ended and its threads are gone. A draining pool may be
    /// aborted by a second call, while the first still waits.
    ///
    /// A job that waits for memory is under way: a pool drains only as fast as others give theirs back.
    ///
    /// On a worker of this pool it does not block, nor on a thread that has one of its jobs in hand (a device's lane, in the
    /// middle of a stage): the end comes after what that thread runs. A worker of another pool lends its core meanwhile.
    pub fn shutdown(&self, how: Shutdown) {
        let shared = self.shared();
        match how {
            Shutdown::Drain => shared.drain(),
            Shutdown::Abort => shared.abort(),
        }
        let wait = || {
            shared.injector.wait_until_vacant();
            self.crew.join();
        };
        if !shared.waits_for_us() {
            block_on_external(wait);
        }
    }

    /// Whether the pool takes new jobs.
    pub fn is_open(&self) -> bool {
        self.shared().injector.is_open()
    }
}

/// The threads, joined by whoever waits for the end first, at the latest by the last handle.
#[derive(Debug)]
pub(super) struct Crew {
    shared: Arc<Shared>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Crew {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, threads: Mutex::new(Vec::new()) }
    }

    /// Gives a worker its thread.
    pub(super) fn hire(&self, worker: Worker, bound: impl FnOnce(io::Result<()>) + Send + 'static) -> io::Result<()> {
        let thread = self.shared.start(worker, bound).map_err(|(_, error)| error)?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Waits for the threads of a pool that is shut down. Not for its own workers.
    fn join(&self) {
        // Held meanwhile, so that a second caller waits too.
        let mut threads = lock(&self.threads);
        let join = |threads: Vec<thread::JoinHandle<()>>| {
            for thread in threads {
                // A worker contains the panics of its tasks, so this error has no content.
                let _ = thread.join();
            }
        };
        join(std::mem::take(&mut *threads));
        // The others have ended, and no worker calls a spare any more.
        join(self.shared.lending.threads());
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.drain();
        // The job in hand is under way, and the workers wait for its end: so would this. They all end by themselves.
        if !self.shared.waits_for_us() {
            // A worker of another pool lends its core: what runs here may need it.
            if mutant!("dropped-without-lending") { self.join() } else { block_on_external(|| self.join()) }
        }
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests;
