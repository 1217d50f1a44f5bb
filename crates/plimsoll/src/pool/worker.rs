//! What a worker thread does: look for work in the order of `pool/README.md`, run it, sleep.

use std::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::deque::{Deque, Injector, Run, Stealer, Strays, Task};
use super::idle::{Idle, Want};
use super::job::{JobRef, JobTag};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{thread, thread_local};

/// Looks around this often before it announces sleep: longer than a steal takes, far shorter than anybody would see.
const LOOKS_BEFORE_SLEEP: u32 = if cfg!(plimsoll_loom) { 0 } else { 32 };

/// What the workers of one pool share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) injector: Injector,
    pub(super) idle: Idle,
    strays: Strays,
    berths: Box<[Berth]>,
}

/// One worker as the others see it.
#[derive(Debug)]
#[repr(align(128))]
struct Berth {
    stealer: Stealer,
    // The job of what the worker runs, and of every fork in its deque.
    job: AtomicU64,
}

impl Shared {
    /// The shared part and one worker for each of `threads` threads.
    pub(super) fn new(threads: usize) -> (Arc<Self>, Vec<Worker>) {
        let (deques, berths): (Vec<_>, Vec<_>) = (0..threads)
            .map(|_| {
                let (deque, stealer) = Deque::new();
                (deque, Berth { stealer, job: AtomicU64::new(JobTag::NONE.to_word()) })
            })
            .unzip();
        let shared = Arc::new(Self {
            injector: Injector::default(),
            idle: Idle::new(threads),
            strays: Strays::default(),
            berths: berths.into(),
        });
        let workers = deques.into_iter().enumerate().map(|(index, deque)| Worker {
            shared: shared.clone(),
            index,
            deque,
            job: Cell::new(JobTag::NONE),
        });
        let workers = workers.collect();
        (shared, workers)
    }

    pub(super) fn threads(&self) -> usize {
        self.berths.len()
    }

    /// Queues a task for the workers; a closed pool gives it back.
    pub(super) fn submit(&self, task: Task) -> Result<(), Task> {
        if cfg!(plimsoll_mutant = "wake-before-push") {
            self.idle.task_published();
            return self.injector.push(task);
        }
        self.injector.push(task)?;
        self.idle.task_published();
        Ok(())
    }

    /// Refuses new tasks; the workers end when those in the queue are done.
    pub(super) fn close(&self) {
        self.injector.close();
        self.idle.wake_all();
    }

    fn has_work(&self) -> bool {
        !self.injector.is_empty() || self.strays.has(|_| true) || self.berths.iter().any(|b| !b.stealer.is_empty())
    }

    fn has_fork_of(&self, tag: JobTag) -> bool {
        self.strays.has(|stray| stray == tag) || self.berths.iter().any(|b| b.runs(tag) && !b.stealer.is_empty())
    }
}

impl Berth {
    fn runs(&self, tag: JobTag) -> bool {
        // Relaxed: a hint. A stale tag is noticed after the steal.
        self.job.load(Ordering::Relaxed) == tag.to_word()
    }
}

/// A worker, as its own thread sees it.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    deque: Deque,
    job: Cell<JobTag>,
}

thread_local! {
    static CURRENT: OnceCell<Worker> = const { OnceCell::new() };
}

impl Worker {
    /// Calls `f` with the calling thread's worker, if the thread is one.
    #[inline]
    pub(super) fn with_current<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
        CURRENT.with(|current| f(current.get()))
    }

    /// The thread's life, until the pool is closed and drained.
    pub(super) fn live(self) {
        CURRENT.with(|current| current.get_or_init(|| self).run());
    }

    #[inline]
    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn threads(&self) -> usize {
        self.shared.threads()
    }

    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Tells this worker's pool from other living pools.
    pub(super) fn pool_id(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// The job that runs on this worker now.
    #[inline]
    pub(super) fn job(&self) -> JobTag {
        self.job.get()
    }

    /// Puts a fork of the current job up for stealing.
    #[inline]
    pub(super) fn fork(&self, fork: JobRef) {
        debug_assert_eq!(fork.tag(), self.job());
        self.deque.push(fork);
        self.shared.idle.fork_published(self.job());
    }

    /// The newest fork of this worker that nobody stole.
    #[inline]
    pub(super) fn pop(&self) -> Option<JobRef> {
        self.deque.pop()
    }

    /// Wakes the worker whose latch was just set.
    pub(super) fn wake(&self, index: usize) {
        self.shared.idle.latch_set(index);
    }

    /// Returns once `done`, and meanwhile runs forks of the current job, never anything of another.
    pub(super) fn wait_until(&self, done: impl Fn() -> bool) {
        let tag = self.job();
        let mut looks = 0;
        let mut woken = false;
        while !done() {
            if let Some(fork) = self.find_fork_of(tag) {
                self.pass_on(&mut woken, Want::ForksOf(tag));
                fork.execute(self);
                looks = 0;
            } else if self.help_another_job_by_mutation() {
                looks = 0;
            } else if looks < LOOKS_BEFORE_SLEEP {
                looks += 1;
                thread::yield_now();
            } else {
                let anything_there = || done() || self.shared.has_fork_of(tag);
                woken |= self.shared.idle.sleep(self.index, Want::ForksOf(tag), anything_there);
                looks = 0;
            }
        }
        self.pass_on(&mut woken, Want::ForksOf(tag));
    }

    fn run(&self) {
        let mut looks = 0;
        let mut woken = false;
        loop {
            if let Some(work) = self.find_work() {
                self.pass_on(&mut woken, Want::Anything);
                self.perform(work);
                looks = 0;
            } else if self.shared.injector.is_finished() {
                return;
            } else if looks < LOOKS_BEFORE_SLEEP {
                looks += 1;
                thread::yield_now();
            } else {
                let anything_there = || self.shared.has_work() || self.shared.injector.is_finished();
                woken |= self.shared.idle.sleep(self.index, Want::Anything, anything_there);
                looks = 0;
            }
        }
    }

    /// A woken worker that leaves work behind wakes the next: it may have been woken for just that work.
    fn pass_on(&self, woken: &mut bool, want: Want) {
        if std::mem::take(woken) {
            let left_behind = match want {
                Want::Anything => self.shared.has_work(),
                Want::ForksOf(tag) => self.shared.has_fork_of(tag),
            };
            if left_behind {
                self.shared.idle.pass_on(want);
            }
        }
    }

    fn find_work(&self) -> Option<Work> {
        // The own deque may hold spawns into the scope of a job that another worker runs.
        if let Some(fork) = self.deque.pop() {
            return Some(Work::Fork(fork));
        }
        if let Some(task) = self.shared.injector.pop() {
            return Some(Work::Task(task));
        }
        let last = self.job();
        self.find_fork_of(last).or_else(|| self.find_fork(|_| true)).map(Work::Fork)
    }

    fn find_fork_of(&self, tag: JobTag) -> Option<JobRef> {
        if let Some(fork) = self.deque.pop() {
            return Some(fork);
        }
        let fork = self.find_fork(|berth_or_stray| berth_or_stray == tag.to_word())?;
        if fork.tag() == tag {
            return Some(fork);
        }
        // The victim moved on to another job while we looked. Its fork goes where everybody finds it.
        let tag = fork.tag();
        self.shared.strays.push(fork);
        self.shared.idle.fork_published(tag);
        None
    }

    /// Takes a stray, or steals, where `wanted` accepts the job's word.
    fn find_fork(&self, wanted: impl Fn(u64) -> bool) -> Option<JobRef> {
        if let Some(stray) = self.shared.strays.take(|tag| wanted(tag.to_word())) {
            return Some(stray);
        }
        // Each worker starts with its right-hand neighbour, so that thieves spread.
        let (left, right) = self.shared.berths.split_at(self.index);
        right[1..]
            .iter()
            .chain(left)
            .filter(|berth| wanted(berth.job.load(Ordering::Relaxed)))
            .find_map(|berth| berth.stealer.steal())
    }

    fn perform(&self, work: Work) {
        match work {
            Work::Fork(fork) => {
                self.enter(fork.tag());
                fork.execute(self);
            }
            Work::Task(task) => {
                self.enter(task.tag);
                match task.run {
                    // Stages report their own panics; one that does not must not take the worker along.
                    Run::Stage(stage) => drop(catch_unwind(AssertUnwindSafe(stage))),
                    Run::Visit(visit) => visit.execute(self),
                }
            }
        }
    }

    fn enter(&self, tag: JobTag) {
        if self.job.replace(tag) != tag {
            // Relaxed: a hint, see `Berth::runs`; made visible with the next fork by the idle protocol's fence.
            self.shared.berths[self.index].job.store(tag.to_word(), Ordering::Relaxed);
        }
    }

    #[cfg(not(plimsoll_mutant = "help-other-job"))]
    fn help_another_job_by_mutation(&self) -> bool {
        false
    }

    #[cfg(plimsoll_mutant = "help-other-job")]
    fn help_another_job_by_mutation(&self) -> bool {
        let job = self.job();
        let work = self.find_work();
        let found = work.is_some();
        work.into_iter().for_each(|work| self.perform(work));
        self.enter(job);
        found
    }
}

/// What a worker between tasks may find.
enum Work {
    Task(Task),
    Fork(JobRef),
}
