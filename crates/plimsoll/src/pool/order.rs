//! In which order tasks that wait for a worker are taken: plain values, by which the pool's queue is sorted and a simulator's is.

use std::cmp::Reverse;

/// When a worker that is free looks at a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Turn {
    /// A later stage of a job under way, or a foreign thread's call: before it helps anybody.
    UnderWay,
    /// A thread of rayon's within a stage that runs: after the forks of what runs.
    Guest,
    /// The first stage of a job: after all that runs has been helped.
    NewJob,
}

/// A task's place in the queue: the least is the next.
///
/// ```
/// use plimsoll::pool::order::{Rank, Turn};
/// let (downstream, upstream) = (Rank::new(Turn::UnderWay, 1, 0, 7), Rank::new(Turn::UnderWay, 2, 9, 3));
/// assert!(downstream < upstream && upstream < Rank::new(Turn::NewJob, 1, 0, 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    turn: Turn,
    stages_left: usize,
    priority: Reverse<i32>,
    arrival: u64,
}

impl Rank {
    /// The place of a task of a job that has so many stages behind this one: the most downstream goes first, among those the
    /// one with the highest priority, and then the one that came first.
    pub fn new(turn: Turn, stages_left: usize, priority: i32, arrival: u64) -> Rank {
        Rank { turn, stages_left, priority: Reverse(priority), arrival }
    }

    /// Its turn.
    pub fn turn(self) -> Turn {
        self.turn
    }

    /// How many stages are behind it.
    pub fn stages_left(self) -> usize {
        self.stages_left
    }
}
