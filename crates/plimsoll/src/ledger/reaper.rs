//! Frees large buffers where nobody waits for it.
//!
//! Giving many GiB back to the kernel takes a second and more, in which a worker could have begun the next job. The reaper
//! takes the buffer together with the reservation that pays for it, and drops both on a thread of its own: buffer first,
//! bytes after, so what waits here is still charged. That also bounds it: however much faster buffers are handed over than
//! freed, what waits is never more than the ledger's limits, and then admission waits for it.
//!
//! # Protocol
//!
//! There is a queue for each space, and a thread for it only while there is something in it: one at a time, because two that
//! unmap at once only take the kernel's lock from each other.
//!
//! 1. Who hands over puts the value in the queue, under the ledger's lock. If no thread runs for this queue it is marked as
//!    running in the same critical section, and started after it. Where the system gives no thread, the value is freed on
//!    the spot.
//! 2. The thread takes one value after another out of the queue, and drops it outside of the lock.
//! 3. It finds the queue empty and takes back the mark in one critical section, and ends. A value that comes before that is
//!    seen; one that comes after it finds no mark and starts a thread. None falls between.
//!    *(mutant `reaper-leaves-late`; loom `what_is_handed_over_is_freed`)*
//! 4. The ledger is quiet only when all queues are empty and nothing is being dropped, which the thread says in the critical
//!    section of 3. *(mutant `quiet-before-reaped`)*
//!
//! What is dropped is a user's code: it may panic, which is caught and counted, and it may call the ledger.
//!
//! Residencies that are evicted go the same way, unless they are small ([`EVICTED_MIN`]).

use std::collections::VecDeque;
use std::fmt;

use super::charged::Charged;
use super::reservation::Reservation;
use super::shell::Inner;
use super::snapshot::{Reaping, Snapshot};
use crate::contain::contain;
use crate::observe::What;
use crate::sync::{Arc, thread};
use crate::{Bytes, Space};

/// Something that carries the reservation that pays for it, and frees what was paid for before that.
pub trait Reap: Send + 'static {
    /// Where its bytes are.
    fn space(&self) -> Space;

    /// How many they are.
    fn bytes(&self) -> Bytes;
}

impl<B: Send + 'static> Reap for Charged<B> {
    fn space(&self) -> Space {
        self.class().space()
    }

    fn bytes(&self) -> Bytes {
        Charged::bytes(self)
    }
}

impl Reap for Reservation {
    fn space(&self) -> Space {
        self.class().space()
    }

    fn bytes(&self) -> Bytes {
        Reservation::bytes(self)
    }
}

/// Frees buffers off the critical path: see [`Ledger::reaper`](super::Ledger::reaper). Clones share everything.
///
/// ```
/// # use std::time::Duration;
/// # use plimsoll::{Bytes, Charged, Class, Ledger, Space};
/// # const AUX: Class = Class::new("aux", Space::HOST);
/// let ledger = Ledger::unlimited();
/// let reservation = ledger.reserve(AUX, Bytes::MIB).try_now()?;
/// let buffer: Charged<Vec<u8>> = Charged::with_capacity(reservation, 1 << 20)?;
/// ledger.reaper().free(buffer); // Returns at once; the bytes are charged until the memory is gone.
/// ledger.quiesce(Duration::from_secs(60)).unwrap();
/// assert!(ledger.snapshot().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Reaper {
    inner: Arc<Inner>,
}

impl Reaper {
    pub(super) fn new(inner: Arc<Inner>) -> Reaper {
        Reaper { inner }
    }

    /// Takes a buffer, to free it and then return its bytes, and returns at once.
    pub fn free<T: Reap>(&self, value: T) {
        let (space, bytes) = (value.space(), value.bytes());
        self.free_in(space, bytes, value);
    }

    /// The same for anything that carries its reservations in itself, such as a struct of several buffers. `space` says
    /// after which others it is freed, and `bytes` is what reports show; what is charged are its reservations.
    ///
    /// The value frees before it returns, as [`Charged`] does: nothing here can put that right.
    pub fn free_in<T: Send + 'static>(&self, space: Space, bytes: Bytes, value: T) {
        let value: Corpse = Box::new(value);
        if self.inner.reap(space, bytes, value) {
            start(&self.inner, space);
        }
    }
}

/// Starts the thread of a space. Where the system gives none, this one does its work.
pub(super) fn start(inner: &Arc<Inner>, space: Space) {
    let theirs = inner.clone();
    let thread = thread::Builder::new().name("plimsoll-reaper".into());
    if thread.spawn(move || work(&theirs, space)).is_err() {
        work(inner, space);
    }
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper").finish_non_exhaustive()
    }
}

fn work(inner: &Arc<Inner>, space: Space) {
    let mut panicked = false;
    while let Some(value) = inner.next_to_free(space, panicked) {
        // Nothing of ours is seen by what panics here but the ledger's own lock, which is not held.
        panicked = contain(|| drop(value)).is_err();
    }
}

/// An evicted residency of fewer bytes is dropped by whoever's event evicts it: that takes no longer than to start a thread.
pub(super) const EVICTED_MIN: Bytes = Bytes::MIB;

/// What is to be dropped.
pub(super) type Corpse = Box<dyn Send>;

/// What waits to be freed. Part of what the ledger's lock guards.
#[derive(Default)]
pub(super) struct Graves {
    queues: Vec<Queue>,
    freed: u64,
    panicked: u64,
}

struct Queue {
    space: Space,
    waiting: VecDeque<(Bytes, Corpse)>,
    /// The bytes of what is being dropped now, and since when.
    dropping: Option<(Bytes, u64)>,
    /// A thread works on it, or is about to.
    is_running: bool,
}

impl Graves {
    /// Takes a value in. `true` if the caller is to start a thread for its space.
    #[must_use]
    pub(super) fn take(&mut self, space: Space, bytes: Bytes, value: Corpse) -> bool {
        let at = self.queues.iter().position(|queue| queue.space == space).unwrap_or_else(|| {
            self.queues.push(Queue { space, waiting: VecDeque::new(), dropping: None, is_running: false });
            self.queues.len() - 1
        });
        let queue = &mut self.queues[at];
        queue.waiting.push_back((bytes, value));
        !std::mem::replace(&mut queue.is_running, true)
    }

    /// What is to be dropped next, and what came before it and is gone.
    pub(super) fn next(&mut self, space: Space, panicked: bool, now: u64) -> (Option<Corpse>, Option<What>) {
        self.panicked += u64::from(panicked);
        let queue = self.queue(space);
        let gone = queue.dropping.take();
        let next = queue.waiting.pop_front();
        let value = next.map(|(bytes, value)| {
            queue.dropping = Some((bytes, now));
            value
        });
        self.freed += u64::from(gone.is_some());
        let gone = gone.map(|(bytes, since)| What::Reaped { space, bytes, nanos: now.saturating_sub(since), panicked });
        (value, gone)
    }

    /// The thread of a space ends.
    pub(super) fn leave(&mut self, space: Space) {
        self.queue(space).is_running = false;
    }

    fn queue(&mut self, space: Space) -> &mut Queue {
        self.queues.iter_mut().find(|queue| queue.space == space).expect("something was handed over to it")
    }

    /// Whether all that was handed over is gone.
    pub(super) fn is_empty(&self) -> bool {
        mutant!("quiet-before-reaped")
            || self.queues.iter().all(|queue| queue.waiting.is_empty() && queue.dropping.is_none())
    }

    pub(super) fn complete(&self, snapshot: &mut Snapshot) {
        (snapshot.reaped, snapshot.reap_panics) = (self.freed, self.panicked);
        for Queue { space, waiting, dropping, .. } in &self.queues {
            let bytes = waiting.iter().map(|entry| entry.0).chain(dropping.map(|entry| entry.0));
            let (count, bytes) = bytes.fold((0, Bytes::ZERO), |(count, sum), bytes| (count + 1, sum + bytes));
            if count > 0 {
                snapshot.reaping.push(Reaping { space: *space, count, bytes });
            }
        }
    }
}

impl fmt::Debug for Graves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graves").field("freed", &self.freed).finish_non_exhaustive()
    }
}
