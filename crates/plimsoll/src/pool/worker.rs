//! What a worker thread does: look for work in the order of `pool/README.md`, run it, sleep.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use super::affinity::Pins;
use super::deque::{Deque, Stealer, Strays};
use super::idle::{Idle, Want};
use super::injector::{Injector, Run, Task};
use super::job::{JobRef, JobTag};
use super::lend::{Lending, Spare};
use super::tenants::Tenants;
use crate::contain::{contain, discard};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock, thread, thread_local};

/// Looks around this often before it announces sleep: longer than a steal takes, far shorter than anybody would see.
const LOOKS_BEFORE_SLEEP: u32 = if cfg!(plimsoll_loom) { 0 } else { 32 };

/// What the workers of one pool share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) injector: Injector,
    pub(super) idle: Idle,
    pub(super) lending: Lending,
    pub(super) tenants: Tenants,
    strays: Strays,
    threads: usize,
    berths: Box<[Berth]>,
    hiring: Hiring,
}

/// How a worker gets its thread.
#[derive(Debug)]
pub(super) struct Hiring {
    pub(super) name: String,
    pub(super) stack_bytes: usize,
    pub(super) pins: Option<Pins>,
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
    /// The shared part and one worker for each of `threads` threads; `spares` more may come later.
    pub(super) fn new(threads: usize, spares: usize, hiring: Hiring) -> (Arc<Self>, Vec<Worker>) {
        let (mut deques, berths): (Vec<_>, Vec<_>) = (0..threads + spares)
            .map(|_| {
                let (deque, stealer) = Deque::new();
                (deque, Berth { stealer, job: AtomicU64::new(JobTag::NONE.to_word()) })
            })
            .unzip();
        let spares = deques.split_off(threads).into_iter().enumerate();
        // The one with the lowest index comes last, and is called first.
        let spares = spares.rev().map(|(at, deque)| Spare { index: threads + at, deque }).collect();
        let shared = Arc::new(Self {
            injector: Injector::default(),
            idle: Idle::new(threads, berths.len() - threads),
            lending: Lending::new(spares),
            tenants: Tenants::default(),
            strays: Strays::default(),
            threads,
            berths: berths.into(),
            hiring,
        });
        let workers = deques.into_iter().enumerate().map(|(index, deque)| Worker::new(&shared, index, deque));
        let workers = workers.collect();
        (shared, workers)
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Starts a worker's thread. `bound` hears whether it could be bound to the cores that are meant for it.
    pub(super) fn start(
        self: &Arc<Self>,
        worker: Worker,
        bound: impl FnOnce(std::io::Result<()>) + Send + 'static,
    ) -> Result<thread::JoinHandle<()>, (Worker, std::io::Error)> {
        let Hiring { name, stack_bytes, .. } = &self.hiring;
        let builder = thread::Builder::new().name(format!("{name}-{}", worker.index)).stack_size(*stack_bytes);
        self.idle.take_seat(worker.index);
        // A closure that is refused is gone, so the worker is handed over beside it.
        let seat = Arc::new(Mutex::new(Some(worker)));
        let taken = seat.clone();
        let shared = self.clone();
        let live = move || {
            let worker = lock(&taken).take().expect("handed over");
            let spare = worker.index >= shared.threads;
            bound(shared.hiring.pins.as_ref().map_or(Ok(()), |pins| pins.bind(worker.index, spare)));
            drop(shared);
            worker.live();
        };
        builder.spawn(live).map_err(|error| (lock(&seat).take().expect("nobody took it"), error))
    }

    /// Queues a task for the workers; a pool that has no use for it any more gives it back.
    pub(super) fn submit(&self, task: Task) -> Result<(), Task> {
        if mutant!("wake-before-push") {
            self.idle.task_published();
            return self.injector.push(task);
        }
        self.injector.push(task)?;
        self.idle.task_published();
        Ok(())
    }

    /// Takes no more jobs; the workers end when those under way have ended and the queue is empty.
    pub(super) fn drain(&self) {
        self.injector.drain();
        self.tell_the_end();
    }

    /// Takes nothing more and gives back what has not begun; the workers end after the tasks that they run.
    pub(super) fn abort(&self) {
        let tasks = self.injector.abort();
        self.tell_the_end();
        self.tenants.give_up();
        for task in tasks {
            match task.run {
                Run::Visit(visit) if mutant!("abort-forgets-calls") => drop(visit),
                Run::Visit(visit) => visit.give_back(),
                // What it carries may have destructors that panic.
                Run::Stage(stage) => discard(stage),
            }
        }
    }

    /// Counts a job out that was let in by `injector.take_pass`.
    pub(super) fn return_pass(&self) {
        self.injector.return_pass();
        self.tell_the_end();
    }

    /// Tells every worker of the pool's end, if it has come.
    fn tell_the_end(&self) {
        if self.injector.is_to_be_told() {
            self.lending.end();
            self.idle.wake_all();
        }
    }

    /// The berths of the workers that ever had a thread.
    fn berths(&self) -> &[Berth] {
        &self.berths[..self.idle.taken()]
    }

    fn has_work(&self) -> bool {
        !self.injector.is_empty() || self.strays.has(|_| true) || self.berths().iter().any(|b| !b.stealer.is_empty())
    }

    fn has_fork_of(&self, tag: JobTag) -> bool {
        self.strays.has(|stray| stray == tag) || self.berths().iter().any(|b| b.runs(tag) && !b.stealer.is_empty())
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
    /// Its core is lent: it waits outside.
    lent: Cell<bool>,
}

thread_local! {
    static CURRENT: OnceCell<Worker> = const { OnceCell::new() };
}

impl Worker {
    fn new(shared: &Arc<Shared>, index: usize, deque: Deque) -> Self {
        Self { shared: shared.clone(), index, deque, job: Cell::new(JobTag::NONE), lent: Cell::new(false) }
    }

    /// Calls `f` with the calling thread's worker, if the thread is one.
    #[inline]
    pub(super) fn with_current<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
        if mutant!("ending-threads-ask-who-they-are") {
            return CURRENT.with(|current| f(current.get()));
        }
        // A thread that is ending has none any more, and what its destructors do is done by no worker.
        let mut f = Some(f);
        let mut call = |current: Option<&Worker>| f.take().map(|f| f(current));
        let called = CURRENT.try_with(|current| call(current.get()));
        called.ok().flatten().or_else(|| call(None)).expect("called once")
    }

    /// The thread's life, until the pool is closed and drained.
    pub(super) fn live(self) {
        CURRENT.with(|current| {
            let worker = current.get_or_init(|| self);
            while worker.run() == Leave::ToRest {
                // As below: it may not come back from there.
                if !mutant!("rests-with-the-last-word") {
                    worker.shared.tell_the_end();
                }
                if !worker.shared.lending.rest() {
                    break;
                }
            }
            // Whoever sleeps may not have seen that the last task was the last.
            worker.shared.tell_the_end();
        });
    }

    /// Calls `f`, which waits for something outside, and lets a spare use the core meanwhile.
    pub(super) fn lend_core<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.lent.replace(true) {
            return f();
        }
        let back = Back(&self.lent);
        let lent = self.shared.lending.lend(|Spare { index, deque }| {
            let spare = Worker::new(&self.shared, index, deque);
            // A spare that cannot be bound is of use all the same.
            self.shared.start(spare, drop).map_err(|(spare, _)| Spare { index, deque: spare.deque })
        });
        let result = f();
        drop(lent);
        drop(back);
        result
    }

    /// Queues something that workers may do on behalf of the current job, if they are free.
    #[cfg(feature = "rayon")]
    pub(super) fn invite(&self, turn: super::injector::Turn, run: Box<dyn FnOnce() + Send>) {
        // A pool that ends has nobody to spare: then the job does without.
        let _ = self.shared.submit(Task { tag: self.job(), turn, stages_left: 0, priority: 0, run: Run::Stage(run) });
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
            } else if mutant!("help-other-job") && self.help_another_job() {
                looks = 0;
            } else if looks < LOOKS_BEFORE_SLEEP {
                looks += 1;
                thread::yield_now();
            } else {
                let helps_all = mutant!("help-other-job");
                let want = if helps_all { Want::Anything } else { Want::ForksOf(tag) };
                let anything_there = || done() || self.shared.has_fork_of(tag) || helps_all && self.shared.has_work();
                woken |= self.shared.idle.sleep(self.index, want, anything_there);
                looks = 0;
            }
        }
        self.pass_on(&mut woken, Want::ForksOf(tag));
    }

    /// Works until the pool has ended, or, for a spare, until there is a core too few.
    fn run(&self) -> Leave {
        let mut looks = 0;
        let mut woken = false;
        let is_spare = self.index >= self.shared.threads;
        loop {
            if is_spare && self.shared.lending.has_surplus() && self.deque.is_empty() {
                self.pass_on(&mut woken, Want::Anything);
                return Leave::ToRest;
            }
            if let Some(work) = self.find_work() {
                self.pass_on(&mut woken, Want::Anything);
                self.perform(work);
                looks = 0;
            } else if self.shared.injector.is_finished() {
                return Leave::ForGood;
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
        if let Some(task) = self.shared.injector.pop_under_way() {
            return Some(Work::Task(task));
        }
        if mutant!("new-jobs-before-forks")
            && let Some(task) = self.shared.injector.pop()
        {
            return Some(Work::Task(task));
        }
        let last = if mutant!("thieves-forget-their-job") { JobTag::NONE } else { self.job() };
        if let Some(fork) = self.find_fork_of(last).or_else(|| self.find_fork(|_| true)) {
            return Some(Work::Fork(fork));
        }
        // New jobs only now: whoever works already is done sooner with help, and its bytes are back sooner.
        self.shared.injector.pop().map(Work::Task)
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
        let (left, right) = self.shared.berths().split_at(self.index);
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
                    Run::Stage(stage) => drop(contain(stage)),
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

    /// A fault to be caught.
    fn help_another_job(&self) -> bool {
        let job = self.job();
        let work = self.find_work();
        let found = work.is_some();
        work.into_iter().for_each(|work| self.perform(work));
        self.enter(job);
        found
    }
}

/// Why a worker stops looking for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// It is a spare, and more spares work than cores are lent.
    ToRest,
    /// The pool has ended.
    ForGood,
}

/// Marks the core as no longer lent, also after a panic.
struct Back<'a>(&'a Cell<bool>);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// What a worker between tasks may find.
enum Work {
    Task(Task),
    Fork(JobRef),
}
