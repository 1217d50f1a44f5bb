//! What a pool is made of, and why it could not be made.

use super::{Affinity, AffinityError};

/// What a [`Pool`](super::Pool) is made of.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// How many worker threads; by default as many as the process may use cores.
    pub threads: usize,
    /// What the threads are called, with their index behind it; by default `plimsoll`.
    pub name: String,
    /// Bytes of stack of each worker thread; by default 8 MiB, for deep recursion in user code.
    pub stack_bytes: usize,
    /// How many further threads there may be to use the cores that workers [lend](super::block_on_external) while
    /// they wait outside; by default four for each of `threads`. They are started when they are first needed. With
    /// none left the core of a worker that waits lies idle.
    pub spares: usize,
    /// Which cores the threads may use; by default all that the process may.
    pub affinity: Affinity,
}

impl Default for PoolConfig {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            threads,
            name: "plimsoll".to_owned(),
            stack_bytes: 8 << 20,
            spares: 4 * threads,
            affinity: Affinity::Anywhere,
        }
    }
}

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The configuration asks for no threads.
    #[error("a pool needs at least one thread; set `threads` to 1 or more")]
    NoThreads,
    /// The threads cannot be bound to cores as asked.
    #[error("the pool's threads cannot be bound to cores")]
    Affinity(#[source] AffinityError),
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
