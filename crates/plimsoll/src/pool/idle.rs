//! How a worker falls asleep without missing work, and without spinning.
//!
//! The protocol and its proof sketch are in `pool/README.md`; in short: a sleeper announces itself, fences, looks once
//! more, and only then parks; whoever makes work available publishes it, fences, and only then looks for sleepers. Forks
//! are made much more often than sleepers lie down, so of those two fences the sleeper's pays for both (`fence.rs`).
//!
//! `seats[w].state` is written by worker `w` (AWAKE → what it waits for) and by whoever wakes it or by itself (back to
//! AWAKE, by compare-exchange, so that exactly one wins). `sleepers` is never less than the number of seats that are
//! not AWAKE.

use super::fence::Fence;
use super::job::JobTag;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex, lock, wait};

const AWAKE: u64 = 0;
const ANYTHING: u64 = u64::MAX;

/// What a sleeping worker may be woken for, besides its own latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// A worker between tasks: any task, any fork.
    Anything,
    /// A worker that waits in `join` or `scope`: forks of its own job only.
    ForksOf(JobTag),
}

impl Want {
    fn to_word(self) -> u64 {
        match self {
            Want::Anything => ANYTHING,
            Want::ForksOf(tag) => tag.to_word(),
        }
    }
}

/// The sleeping places of a pool's workers.
#[derive(Debug)]
pub(super) struct Idle {
    sleepers: AtomicUsize,
    /// Seats of workers that ever had a thread: the first so many.
    taken: AtomicUsize,
    fence: Fence,
    seats: Box<[Seat]>,
}

/// One worker's sleeping place, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Seat {
    state: AtomicU64,
    woken: Mutex<bool>,
    bell: Condvar,
}

impl Seat {
    fn park(&self) {
        let mut woken = lock(&self.woken);
        while !*woken {
            woken = wait(&self.bell, woken, None);
        }
        *woken = false;
    }

    fn unpark(&self) {
        *lock(&self.woken) = true;
        self.bell.notify_one();
    }
}

impl Idle {
    /// Places for `workers` workers, all awake, and for `spares` that may come later.
    pub(super) fn new(workers: usize, spares: usize) -> Self {
        Self {
            sleepers: AtomicUsize::new(0),
            taken: AtomicUsize::new(workers),
            fence: Fence::new(),
            seats: (0..workers + spares).map(|_| Seat::default()).collect(),
        }
    }

    /// Worker `index` is about to get its thread.
    pub(super) fn take_seat(&self, index: usize) {
        // Relaxed: the thread starts afterwards, and whatever it publishes is fenced.
        self.taken.fetch_max(index + 1, Ordering::Relaxed);
    }

    /// How many workers ever had a thread.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// How many workers sleep, or are about to.
    pub(super) fn sleepers(&self) -> usize {
        // Acquire: partner of the Release in `sleep`, so that who sees a worker asleep sees what it did before.
        self.sleepers.load(Ordering::Acquire)
    }

    /// Puts worker `index` to sleep unless `anything_there` says, after the announcement, that it need not. Returns
    /// whether somebody woke it: then the wake-up may have been meant for work that it will not take, and it has to
    /// pass the wake-up on if it leaves work behind.
    pub(super) fn sleep(&self, index: usize, want: Want, anything_there: impl FnOnce() -> bool) -> bool {
        let seat = &self.seats[index];
        // Counted before announced, or a waker could count it off first and hide another sleeper.
        // Release: partner of the Acquire in `sleepers`.
        self.sleepers.fetch_add(1, Ordering::Release);
        // Release: partner of the compare-exchange in `claim`, orders the count before the announcement.
        seat.state.store(want.to_word(), Ordering::Release);
        // Partners: the fences in `fork_published`, `task_published`, `latch_set` and `wake_all`.
        if !mutant!("sleep-without-fence") {
            self.fence.heavy();
        }
        let found = if mutant!("sleep-without-recheck") { false } else { anything_there() };
        if found && self.claim(index, want.to_word()) {
            return false;
        }
        // Either nothing was there, or a waker was faster than our retraction and its ring is on the way.
        seat.park();
        true
    }

    /// To be called after a fork of job `tag` was published: wakes a worker that waits inside the same job, or else one
    /// that takes anything.
    #[inline]
    pub(super) fn fork_published(&self, tag: JobTag) {
        // The only worker publishes for nobody: a spare that it gives a thread later sees what it did before.
        if self.taken() <= 1 {
            return;
        }
        // Partner: the fence in `sleep`. Of the two fences one is first: either the sleeper's last look sees the fork, or
        // we see the sleeper.
        if !mutant!("fork-without-fence") {
            self.fence.light();
        }
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake_first(&[tag.to_word(), ANYTHING]);
        }
    }

    /// To be called after a task was published: wakes a worker that takes anything.
    pub(super) fn task_published(&self) {
        // Partner: the fence in `sleep`, as for a fork. It is the full one, for a task that nobody comes for is not done by
        // whoever published it.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake_first(&[ANYTHING]);
        }
    }

    /// To be called after the latch of worker `index` was set, whatever that worker waits for.
    pub(super) fn latch_set(&self, index: usize) {
        // Partner: the fence in `sleep`.
        fence(Ordering::SeqCst);
        self.wake_seat(index);
    }

    /// To be called after something that concerns every worker was published.
    pub(super) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        for index in 0..self.taken() {
            self.wake_seat(index);
        }
    }

    /// Wakes one worker of the same kind for what a woken worker leaves behind.
    pub(super) fn pass_on(&self, want: Want) {
        match want {
            Want::Anything => self.task_published(),
            Want::ForksOf(tag) => self.fork_published(tag),
        }
    }

    #[cold]
    fn wake_first(&self, words: &[u64]) {
        for &word in words {
            // In order, so that spares are woken last.
            for index in 0..self.taken() {
                if self.seats[index].state.load(Ordering::Relaxed) == word && self.claim(index, word) {
                    self.seats[index].unpark();
                    return;
                }
            }
        }
    }

    fn wake_seat(&self, index: usize) {
        let word = self.seats[index].state.load(Ordering::Relaxed);
        if word != AWAKE && self.claim(index, word) {
            self.seats[index].unpark();
        }
    }

    /// Takes the sleeper off the books; of all who try, one succeeds.
    fn claim(&self, index: usize, word: u64) -> bool {
        // Acquire: partner of the announcement in `sleep`, so that our subtraction follows its addition.
        let won = self.seats[index].state.compare_exchange(word, AWAKE, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if won {
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
        }
        won
    }
}
