//! The jobs under way, and who still has one of them in hand.
//!
//! A job ends on whatever thread has it in hand: a worker, a device's lane, a runtime's, the clock's, whoever cancelled it. That
//! thread answers the ticket while it is still inside of the job's [`Trip`], which leads to the stages and so to the carriers
//! and devices on which they run. If that were the last reference, a device would be closed by its own lane, which cannot wait
//! for itself, and after whoever dropped the pipeline has gone on. So there are two ends:
//!
//! 1. **Ended.** The job is off the list, then its ticket is answered. Whoever has the answer finds the job gone.
//! 2. **Gone.** The last reference to its trip is dropped. A trip's *presence* is its last field, so everything else of the
//!    trip, the stages above all, was let go before the presence is counted out. Dropping a pipeline waits for this.
//!    *(mutant `ended-is-gone`)*
//!
//! Only the list (for the parts of a job: their parent) and whoever drives keep a trip alive. All that others have, tickets,
//! wakers, alarms, queued tasks and errands, futures on a runtime, is a [`Handle`], which keeps nothing. So 2 follows 1 as soon
//! as those who drive have come back, and does not wait for a queue, a runtime or a user.
//!
//! A thread that has a trip in hand and is led by a user's code (a destructor, a waker) to drop the pipeline must not wait: it
//! would wait for itself. So who goes in leaves a mark with its thread ([`InHand`]).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::trip::Trip;
use crate::ledger::Steered;
use crate::pool::{InHand, JobTag, Pass, Remote, Tenant};
use crate::sync::{Condvar, Mutex, lock, wait};

/// The jobs of one pipeline, those of its parts included.
pub(super) struct Landing<E> {
    list: Mutex<List<E>>,
    vacant: Condvar,
    remote: Remote,
}

struct List<E> {
    /// Each with the right to the pool's workers until its ticket is answered. Parts travel on that of their job, and are not
    /// here.
    under_way: HashMap<JobTag, (Arc<Trip<E>>, Pass)>,
    /// Trips that somebody has a reference to, parts included.
    present: usize,
    closed: bool,
    abandoned: bool,
    /// Who waits for the last to go.
    #[cfg(test)]
    waiting: usize,
}

impl<E> Landing<E> {
    pub(super) fn new(remote: Remote) -> Self {
        let list = List {
            under_way: HashMap::new(),
            present: 0,
            closed: false,
            abandoned: false,
            #[cfg(test)]
            waiting: 0,
        };
        Self { list: Mutex::new(list), vacant: Condvar::new(), remote }
    }
}

impl<E: Send + 'static> Landing<E> {
    /// Puts a trip on the list, unless the pipeline is closed or its pool shut down.
    pub(super) fn enlist(&self, trip: &Arc<Trip<E>>) -> bool {
        let mut list = lock(&self.list);
        if list.closed {
            return false;
        }
        let Some(pass) = self.remote.pass() else { return false };
        list.under_way.insert(trip.tag, (trip.clone(), pass));
        true
    }

    /// Takes a trip that has ended off the list. What comes back is dropped when its ticket has been answered.
    pub(super) fn take_off(&self, tag: JobTag) -> Option<(Arc<Trip<E>>, Pass)> {
        lock(&self.list).under_way.remove(&tag)
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.list).closed
    }

    pub(super) fn is_abandoned(&self) -> bool {
        lock(&self.list).abandoned
    }

    pub(super) fn close(&self, abandon: bool) {
        let mut list = lock(&self.list);
        list.closed = true;
        list.abandoned |= abandon;
    }

    pub(super) fn cancel_all(&self) {
        let _mark = self.in_hand();
        let under_way: Vec<_> = lock(&self.list).under_way.values().map(|(trip, _)| trip.clone()).collect();
        for trip in under_way {
            trip.cancel();
        }
    }

    /// Cancels every job of this name; says how many there were.
    pub(super) fn cancel(&self, name: &str) -> usize {
        let _mark = self.in_hand();
        let named = |list: &List<E>| -> Vec<_> {
            list.under_way.values().filter(|(trip, _)| *trip.name == *name).map(|(trip, _)| trip.clone()).collect()
        };
        let named = named(&lock(&self.list));
        named.iter().for_each(|trip| trip.cancel());
        named.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        lock(&self.list).under_way.len()
    }

    /// Blocks until no trip is left, neither on the list nor in anybody's hand.
    pub(super) fn wait_until_vacant(&self) {
        let mut list = lock(&self.list);
        #[cfg(test)]
        {
            list.waiting += 1;
        }
        while if mutant!("ended-is-gone") { !list.under_way.is_empty() } else { list.present > 0 } {
            list = wait(&self.vacant, list, None);
        }
        #[cfg(test)]
        {
            list.waiting -= 1;
        }
    }

    /// Whether the calling thread has one of its trips in hand.
    pub(super) fn is_in_hand_here(&self) -> bool {
        InHand::is_of(self.address())
    }

    /// Left with the thread while it has a trip in hand. The caller keeps the landing for as long.
    pub(super) fn in_hand(&self) -> InHand {
        InHand::leave(&self.remote, self.address())
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The job of this name.
    #[cfg(all(test, not(plimsoll_loom)))]
    pub(super) fn named(&self, name: &str) -> Arc<Trip<E>> {
        let list = lock(&self.list);
        list.under_way.values().find(|(trip, _)| *trip.name == *name).expect("it is under way").0.clone()
    }

    /// How many wait for the last trip to go.
    #[cfg(all(test, not(plimsoll_loom)))]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.list).waiting
    }
}

/// Somebody steers the ledger.
impl<E: Send + 'static> Steered for Landing<E> {
    fn cancel(&self, job: &str) -> usize {
        Landing::cancel(self, job)
    }
}

/// The pool is aborted.
impl<E: Send + 'static> Tenant for Landing<E> {
    fn give_up(&self) {
        self.close(true);
        self.cancel_all();
    }
}

/// That there is a trip; its last field.
pub(super) struct Presence<E>(Arc<Landing<E>>);

impl<E> Presence<E> {
    pub(super) fn new(landing: &Arc<Landing<E>>) -> Self {
        lock(&landing.list).present += 1;
        Self(landing.clone())
    }
}

impl<E> Drop for Presence<E> {
    fn drop(&mut self) {
        let mut list = lock(&self.0.list);
        list.present -= 1;
        if list.present == 0 || mutant!("ended-is-gone") {
            self.0.vacant.notify_all();
        }
    }
}

/// What others than the list and those who drive have of a trip. It keeps nothing alive.
pub(super) struct Handle<E>(Weak<Trip<E>>);

impl<E: Send + 'static> Handle<E> {
    /// Calls `f` with the trip, unless it is gone.
    pub(super) fn with<R>(&self, f: impl FnOnce(&Arc<Trip<E>>) -> R) -> Option<R> {
        let trip = self.0.upgrade()?;
        let landing = trip.landing().clone();
        let _mark = landing.in_hand();
        // Let go before the mark is, also after a panic: what goes with the last reference is the user's as well.
        let trip = trip;
        Some(f(&trip))
    }
}

impl<E> From<Weak<Trip<E>>> for Handle<E> {
    fn from(trip: Weak<Trip<E>>) -> Self {
        Self(trip)
    }
}

impl<E> Clone for Handle<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
