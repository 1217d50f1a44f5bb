//! The queue of tasks that all workers of a pool take from, and the pool's end.
//!
//! ```text
//! Open ──drain──▶ Draining ──the last pass is back and the queue is empty──▶ finished: the workers end
//!   └────abort───────┴────▶ Aborted: the queue was given back, the workers end as their tasks do
//! ```
//!
//! A *pass* is held by a job under way. While one is out, a draining pool still takes the tasks of its later stages.

use std::collections::BTreeMap;

use super::job::{JobRef, JobTag};
use super::order::Rank;
pub(crate) use super::order::Turn;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, lock, wait};

/// The unit that the injector hands to workers: a stage of a job, or the closure of an `install`.
pub(crate) struct Task {
    /// The job on whose behalf it runs; what it forks carries the same tag.
    pub(crate) tag: JobTag,
    /// Whether it comes before or after the forks of what runs already.
    pub(crate) turn: Turn,
    /// How many stages follow: the task with the fewest is the most downstream and runs first.
    pub(crate) stages_left: usize,
    /// Among tasks with as many stages left the highest runs first.
    pub(crate) priority: i32,
    /// What to do; it owns all that it needs, the stage's grant included.
    pub(crate) run: Run,
}

/// What a task does.
pub(crate) enum Run {
    /// A stage, which owns all that it needs.
    Stage(Box<dyn FnOnce() + Send>),
    /// A closure on the stack of a foreign thread that waits for it.
    Visit(JobRef),
}

/// Tasks that wait for a worker, in the order in which they are taken.
#[derive(Default)]
pub(super) struct Injector {
    queue: Mutex<TaskQueue>,
    /// Woken when the last pass is back.
    vacant: Condvar,
    /// Tasks in the queue, for a look without the lock: all, and those of jobs under way.
    len: AtomicUsize,
    len_under_way: AtomicUsize,
    /// Nothing will ever come out again; and somebody tells the workers.
    finished: AtomicBool,
    told: AtomicBool,
}

#[derive(Default)]
struct TaskQueue {
    // The first is the next.
    tasks: BTreeMap<Rank, Task>,
    under_way: usize,
    arrivals: u64,
    passes: usize,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    Draining,
    Aborted,
}

impl TaskQueue {
    fn takes(&self, run: &Run) -> bool {
        match self.phase {
            Phase::Open => true,
            Phase::Draining => matches!(run, Run::Stage(_)) && self.passes > 0,
            Phase::Aborted => false,
        }
    }

    fn is_finished(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Draining if mutant!("drain-forgets-passes") => self.tasks.is_empty(),
            Phase::Draining => self.tasks.is_empty() && self.passes == 0,
            Phase::Aborted => true,
        }
    }
}

impl Injector {
    /// Queues a task; a pool that has no use for it any more gives it back.
    pub(super) fn push(&self, task: Task) -> Result<(), Task> {
        let mut queue = lock(&self.queue);
        if !queue.takes(&task.run) {
            return Err(task);
        }
        let rank = Rank::new(task.turn, task.stages_left, task.priority, queue.arrivals);
        queue.arrivals += 1;
        queue.under_way += usize::from(task.turn == Turn::UnderWay);
        queue.tasks.insert(rank, task);
        self.show(&queue);
        Ok(())
    }

    /// The next task of a job under way.
    pub(super) fn pop_under_way(&self) -> Option<Task> {
        // Relaxed, here and below: a hint; written under the lock, and the reader's partner is the pool's idle fence.
        if self.len_under_way.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.pop_if(|turn| turn == Turn::UnderWay)
    }

    /// The next task, whatever its turn.
    pub(super) fn pop(&self) -> Option<Task> {
        if self.is_empty() {
            return None;
        }
        self.pop_if(|_| true)
    }

    fn pop_if(&self, wanted: impl Fn(Turn) -> bool) -> Option<Task> {
        let mut queue = lock(&self.queue);
        let entry = queue.tasks.first_entry().filter(|entry| wanted(entry.key().turn()))?;
        let task = entry.remove();
        queue.under_way -= usize::from(task.turn == Turn::UnderWay);
        self.show(&queue);
        self.settle(&queue);
        Some(task)
    }

    fn show(&self, queue: &TaskQueue) {
        self.len.store(queue.tasks.len(), Ordering::Relaxed);
        self.len_under_way.store(queue.under_way, Ordering::Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// The fewest stages left of any task of a job under way.
    pub(super) fn most_downstream(&self) -> Option<usize> {
        if self.len_under_way.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let queue = lock(&self.queue);
        let (&rank, _) = queue.tasks.first_key_value()?;
        (rank.turn() == Turn::UnderWay).then_some(rank.stages_left())
    }

    /// Counts a job in, unless the pool takes no more.
    pub(super) fn take_pass(&self) -> bool {
        let mut queue = lock(&self.queue);
        let open = queue.phase == Phase::Open;
        queue.passes += usize::from(open);
        open
    }

    /// Counts a job out.
    pub(super) fn return_pass(&self) {
        let mut queue = lock(&self.queue);
        queue.passes -= 1;
        if queue.passes == 0 {
            self.vacant.notify_all();
        }
        self.settle(&queue);
    }

    /// Blocks until no pass is out.
    pub(super) fn wait_until_vacant(&self) {
        let mut queue = lock(&self.queue);
        while queue.passes > 0 {
            queue = wait(&self.vacant, queue, None);
        }
    }

    /// Takes no more jobs; what is under way goes on.
    pub(super) fn drain(&self) {
        let mut queue = lock(&self.queue);
        if queue.phase == Phase::Open {
            queue.phase = Phase::Draining;
        }
        self.settle(&queue);
    }

    /// Takes nothing more, and gives out all that is queued.
    pub(super) fn abort(&self) -> Vec<Task> {
        let mut queue = lock(&self.queue);
        queue.phase = Phase::Aborted;
        queue.under_way = 0;
        let given_back = std::mem::take(&mut queue.tasks).into_values().collect();
        self.show(&queue);
        self.settle(&queue);
        given_back
    }

    /// Whether the pool takes new jobs.
    pub(super) fn is_open(&self) -> bool {
        lock(&self.queue).phase == Phase::Open
    }

    fn settle(&self, queue: &TaskQueue) {
        if queue.is_finished() {
            self.finished.store(true, Ordering::Relaxed);
        }
    }

    /// Nothing will ever come out again.
    pub(super) fn is_finished(&self) -> bool {
        // Relaxed: who finds it so first wakes all workers, and the idle protocol's fences order the others' looks.
        self.finished.load(Ordering::Relaxed)
    }

    /// Whether it is finished and the caller has to tell all workers: true once.
    pub(super) fn is_to_be_told(&self) -> bool {
        // Relaxed: as above.
        self.is_finished() && !self.told.swap(true, Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Injector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injector").field("len", &self.len.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}
