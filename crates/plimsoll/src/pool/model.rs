//! The idle protocol alone, for a model (`loom-tests/tests/fence.rs`) in which nothing else orders a fork and a sleeper.

use super::idle::{Idle, Want};
use super::job::JobTag;

/// The sleeping places of a pool without workers.
#[derive(Debug)]
pub struct Sleepers(Idle);

impl Sleepers {
    /// So many, all awake.
    pub fn new(seats: usize) -> Self {
        Self(Idle::new(seats, 0))
    }

    /// Lies down in a seat, unless `anything_there` says that there is something to do, and returns when woken.
    pub fn sleep(&self, seat: usize, anything_there: impl FnOnce() -> bool) {
        self.0.sleep(seat, Want::Anything, anything_there);
    }

    /// To be called after something was published.
    pub fn fork_published(&self) {
        self.0.fork_published(JobTag::NONE);
    }
}
