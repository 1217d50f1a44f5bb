//! The queues that workers take from: each worker's deque of forks, the shared injector of tasks, and the strays.
//!
//! The deques are crossbeam's. Under loom and miri a deque behind a mutex takes their place: those check our protocol
//! around the deque and our `unsafe`, not crossbeam's deque (whose epochs break the stacked borrows that miri checks).

use std::collections::BTreeMap;

use super::job::{JobRef, JobTag};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

#[cfg(not(any(plimsoll_loom, miri)))]
pub(super) use lock_free::{Deque, Stealer};
#[cfg(any(plimsoll_loom, miri))]
pub(super) use locked::{Deque, Stealer};

#[cfg(not(any(plimsoll_loom, miri)))]
mod lock_free {
    use super::JobRef;
    use crossbeam_deque::Steal;

    /// A worker's own end of its deque: newest first.
    #[derive(Debug)]
    pub(in super::super) struct Deque(crossbeam_deque::Worker<JobRef>);

    /// The other workers' end: oldest first.
    #[derive(Debug)]
    pub(in super::super) struct Stealer(crossbeam_deque::Stealer<JobRef>);

    impl Deque {
        pub(in super::super) fn new() -> (Self, Stealer) {
            let deque = crossbeam_deque::Worker::new_lifo();
            let stealer = Stealer(deque.stealer());
            (Self(deque), stealer)
        }

        #[inline]
        pub(in super::super) fn push(&self, job: JobRef) {
            self.0.push(job);
        }

        #[inline]
        pub(in super::super) fn pop(&self) -> Option<JobRef> {
            self.0.pop()
        }
    }

    impl Stealer {
        pub(in super::super) fn steal(&self) -> Option<JobRef> {
            loop {
                match self.0.steal() {
                    Steal::Success(job) => return Some(job),
                    Steal::Empty => return None,
                    Steal::Retry => {}
                }
            }
        }

        pub(in super::super) fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }
}

#[cfg(any(plimsoll_loom, miri))]
mod locked {
    use super::{JobRef, Mutex, lock};
    use std::collections::VecDeque;
    use std::sync::Arc;

    #[derive(Debug)]
    pub(in super::super) struct Deque(Arc<Mutex<VecDeque<JobRef>>>);

    #[derive(Debug)]
    pub(in super::super) struct Stealer(Arc<Mutex<VecDeque<JobRef>>>);

    impl Deque {
        pub(in super::super) fn new() -> (Self, Stealer) {
            let queue = Arc::new(Mutex::new(VecDeque::new()));
            (Self(queue.clone()), Stealer(queue))
        }

        pub(in super::super) fn push(&self, job: JobRef) {
            lock(&self.0).push_back(job);
        }

        pub(in super::super) fn pop(&self) -> Option<JobRef> {
            lock(&self.0).pop_back()
        }
    }

    impl Stealer {
        pub(in super::super) fn steal(&self) -> Option<JobRef> {
            lock(&self.0).pop_front()
        }

        pub(in super::super) fn is_empty(&self) -> bool {
            lock(&self.0).is_empty()
        }
    }
}

/// The unit that the injector hands to workers: a stage of a job, or the closure of an `install`.
pub(crate) struct Task {
    /// The job on whose behalf it runs; what it forks carries the same tag.
    pub(crate) tag: JobTag,
    /// How many stages follow: the task with the fewest is the most downstream and runs first.
    pub(crate) stages_left: usize,
    /// What to do.
    pub(crate) run: Run,
}

/// What a task does.
pub(crate) enum Run {
    /// A stage, which owns all that it needs.
    Stage(Box<dyn FnOnce() + Send>),
    /// A closure on the stack of a foreign thread that waits for it.
    Visit(JobRef),
}

/// Tasks that wait for a worker, the most downstream first, then in order of arrival.
#[derive(Default)]
pub(super) struct Injector {
    queue: Mutex<TaskQueue>,
    /// Tasks in the queue, for a look without the lock.
    len: AtomicUsize,
}

#[derive(Default)]
struct TaskQueue {
    // Keyed by (stages left, arrival): the first is the next.
    tasks: BTreeMap<(usize, u64), Task>,
    arrivals: u64,
    closed: bool,
}

impl Injector {
    /// Queues a task; a closed injector gives it back.
    pub(super) fn push(&self, task: Task) -> Result<(), Task> {
        let mut queue = lock(&self.queue);
        if queue.closed {
            return Err(task);
        }
        let arrival = queue.arrivals;
        queue.arrivals += 1;
        queue.tasks.insert((task.stages_left, arrival), task);
        // Written under the lock; the reader's partner is the pool's idle fence.
        self.len.store(queue.tasks.len(), Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn pop(&self) -> Option<Task> {
        if self.is_empty() {
            return None;
        }
        let mut queue = lock(&self.queue);
        let (_, task) = queue.tasks.pop_first()?;
        self.len.store(queue.tasks.len(), Ordering::Relaxed);
        Some(task)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// The fewest stages left of any task in the queue.
    pub(super) fn most_downstream(&self) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        lock(&self.queue).tasks.first_key_value().map(|((stages_left, _), _)| *stages_left)
    }

    /// Refuses every later push; what is queued stays to be drained.
    pub(super) fn close(&self) {
        lock(&self.queue).closed = true;
    }

    /// Closed and drained: nothing will ever come out again.
    pub(super) fn is_finished(&self) -> bool {
        let queue = lock(&self.queue);
        queue.closed && queue.tasks.is_empty()
    }
}

impl std::fmt::Debug for Injector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injector").field("len", &self.len.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}

/// Forks that a waiting worker stole by mistake: its victim had moved on to another job between the look at the
/// victim's tag and the steal. Rare, so a locked list will do.
#[derive(Debug, Default)]
pub(super) struct Strays {
    forks: Mutex<Vec<JobRef>>,
    len: AtomicUsize,
}

impl Strays {
    pub(super) fn push(&self, fork: JobRef) {
        let mut forks = lock(&self.forks);
        forks.push(fork);
        self.len.store(forks.len(), Ordering::Relaxed);
    }

    /// Takes a fork that `wanted` accepts.
    pub(super) fn take(&self, wanted: impl Fn(JobTag) -> bool) -> Option<JobRef> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut forks = lock(&self.forks);
        let at = forks.iter().position(|fork| wanted(fork.tag()))?;
        let fork = forks.swap_remove(at);
        self.len.store(forks.len(), Ordering::Relaxed);
        Some(fork)
    }

    pub(super) fn has(&self, wanted: impl Fn(JobTag) -> bool) -> bool {
        self.len.load(Ordering::Relaxed) != 0 && lock(&self.forks).iter().any(|fork| wanted(fork.tag()))
    }
}
