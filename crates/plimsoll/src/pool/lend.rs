//! Cores lent by workers that wait for something outside, and the spare threads that use them meanwhile.
//!
//! A worker that waits outside (`lent`) leaves its core to a *spare*: a worker thread beyond those that the pool was
//! asked for. A spare is *on duty* (it works like any other), or it rests here. What is kept, all under one lock:
//!
//! - A lender calls a spare if fewer are on duty than cores are lent, and there is one left. It never waits for it.
//! - A lender that comes back goes on at once. Now more spares may be on duty than cores are lent: the pool is
//!   oversubscribed until one of them is between tasks, sees the surplus and goes to rest.
//! - A call is counted before the bell is rung, and a spare that goes to rest looks at the count under the same lock, so
//!   a call is never missed.

use super::deque::Deque;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, lock, thread, wait};

/// The spares of a pool, and the cores that they may use.
#[derive(Debug)]
pub(super) struct Lending {
    /// How many there are.
    spares: usize,
    book: Mutex<Book>,
    bell: Condvar,
    /// More spares on duty than cores lent; written under the lock.
    surplus: AtomicBool,
}

#[derive(Debug)]
struct Book {
    /// Workers that wait outside.
    lent: usize,
    /// Spares that work, or were called to.
    on_duty: usize,
    /// Spares that rest on a thread of their own.
    resting: usize,
    /// Calls that no resting spare has answered yet.
    calls: usize,
    /// Spares that never had a thread.
    unborn: Vec<Spare>,
    threads: Vec<thread::JoinHandle<()>>,
    ended: bool,
}

/// A worker that has no thread yet.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) index: usize,
    pub(super) deque: Deque,
}

impl Lending {
    /// With these spares, of which the last is called first.
    pub(super) fn new(unborn: Vec<Spare>) -> Self {
        let spares = unborn.len();
        let book = Book { lent: 0, on_duty: 0, resting: 0, calls: 0, unborn, threads: Vec::new(), ended: false };
        Self { spares, book: Mutex::new(book), bell: Condvar::new(), surplus: AtomicBool::new(false) }
    }

    /// Lends the caller's core until the value is dropped. `start` gives a spare its first thread, if it can.
    pub(super) fn lend(&self, start: impl FnOnce(Spare) -> Result<thread::JoinHandle<()>, Spare>) -> Lent<'_> {
        let mut book = lock(&self.book);
        book.lent += 1;
        if book.on_duty < book.lent && !book.ended && !mutant!("lend-to-nobody") {
            if book.resting > book.calls {
                book.calls += 1;
                book.on_duty += 1;
                self.bell.notify_one();
            } else if let Some(spare) = book.unborn.pop() {
                match start(spare) {
                    Ok(thread) => {
                        book.on_duty += 1;
                        book.threads.push(thread);
                    }
                    // The system refuses a thread: the core lies idle meanwhile.
                    Err(spare) => book.unborn.push(spare),
                }
            }
        }
        self.show(&book);
        Lent { lending: self }
    }

    /// Whether a spare between tasks should go to rest.
    pub(super) fn has_surplus(&self) -> bool {
        // Relaxed: a spare that reads an old value runs one more task, or sleeps where work finds it.
        self.surplus.load(Ordering::Relaxed) && !mutant!("spare-stays")
    }

    /// Rests the calling spare, if there is a surplus, until it is called. Returns false at the end of the pool.
    pub(super) fn rest(&self) -> bool {
        let mut book = lock(&self.book);
        if book.on_duty <= book.lent {
            return true;
        }
        book.on_duty -= 1;
        self.show(&book);
        if mutant!("rest-in-two-steps") {
            drop(book);
            thread::yield_now();
            book = lock(&self.book);
        }
        book.resting += 1;
        while book.calls == 0 && !book.ended {
            book = wait(&self.bell, book, None);
        }
        book.resting -= 1;
        if book.calls > 0 {
            book.calls -= 1;
            return true;
        }
        false
    }

    /// No spare is called any more, and those at rest end.
    pub(super) fn end(&self) {
        if self.spares == 0 {
            return;
        }
        lock(&self.book).ended = true;
        self.bell.notify_all();
    }

    /// The threads of all spares, after the end.
    pub(super) fn threads(&self) -> Vec<thread::JoinHandle<()>> {
        if self.spares == 0 {
            return Vec::new();
        }
        std::mem::take(&mut lock(&self.book).threads)
    }

    /// How many cores are lent, spares are on duty, and spares rest.
    #[cfg(all(test, not(plimsoll_loom)))]
    pub(super) fn count(&self) -> (usize, usize, usize) {
        let book = lock(&self.book);
        (book.lent, book.on_duty, book.resting)
    }

    fn show(&self, book: &Book) {
        self.surplus.store(book.on_duty > book.lent, Ordering::Relaxed);
    }
}

/// A core that is lent. Dropped by the lender when it goes on.
#[must_use = "the core is taken back when this is dropped"]
#[derive(Debug)]
pub(super) struct Lent<'a> {
    lending: &'a Lending,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut book = lock(&self.lending.book);
        book.lent -= 1;
        self.lending.show(&book);
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests;
