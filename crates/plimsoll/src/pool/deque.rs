//! Where forks lie: each worker's deque, and the strays.
//!
//! The deques are crossbeam's. Under loom and miri a deque behind a mutex takes their place: those check our protocol
//! around the deque and our `unsafe`, not crossbeam's deque (whose epochs break the stacked borrows that miri checks).

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

        pub(in super::super) fn is_empty(&self) -> bool {
            self.0.is_empty()
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

        pub(in super::super) fn is_empty(&self) -> bool {
            lock(&self.0).is_empty()
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
