//! Events on their way to the observers: numbered under the ledger's lock, delivered outside of it.
//!
//! One thread delivers at a time. Whoever stamps events while nobody delivers takes the baton (`delivering`) and keeps it
//! until the queue is empty; it is put down under the lock, in the same critical section that finds the queue empty, so
//! that no event is left behind.

use std::sync::Arc as StdArc;

use super::state::Change;
use crate::contain::{contain, discard_each};
use crate::observe::{BACKLOG, Event, Observer};

/// Part of what the ledger's lock guards.
#[derive(Default)]
pub(super) struct Outbox {
    sequence: u64,
    queue: Vec<Event>,
    delivering: bool,
    observers: Vec<StdArc<dyn Observer>>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

/// Events to be delivered, and to whom.
pub(super) struct Batch {
    events: Vec<Event>,
    observers: Vec<StdArc<dyn Observer>>,
}

impl Outbox {
    pub(super) fn add(&mut self, observer: StdArc<dyn Observer>) {
        self.observers.push(observer);
    }

    pub(super) fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Takes an observer off; how many are left.
    pub(super) fn remove(&mut self, observer: &StdArc<dyn Observer>) {
        self.observers.retain(|other| !StdArc::ptr_eq(other, observer));
    }

    /// Numbers the changes. `true` if the caller is to deliver, starting with [`next_batch`](Outbox::next_batch).
    #[must_use]
    pub(super) fn stamp(&mut self, changes: impl Iterator<Item = Change>, time: u64) -> bool {
        for Change { subject, what } in changes {
            self.sequence += 1;
            if self.queue.len() < BACKLOG {
                self.queue.push(Event { sequence: self.sequence, time, subject, what });
            }
        }
        !self.queue.is_empty() && !std::mem::replace(&mut self.delivering, true)
    }

    /// A fault to be caught: the turn ends in another critical section than the one that found nothing to deliver.
    pub(super) fn put_down(&mut self) {
        self.delivering = false;
    }

    /// What is to be delivered next. With `None` the caller's turn to deliver is over.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        if self.queue.is_empty() {
            self.delivering = mutant!("baton-down-late");
            return None;
        }
        Some(Batch { events: std::mem::take(&mut self.queue), observers: self.observers.clone() })
    }
}

impl Batch {
    /// Calls the observers, outside of the lock. Returns those that panicked.
    pub(super) fn deliver(self) -> Vec<StdArc<dyn Observer>> {
        let mut failed = Vec::new();
        let mut observers = self.observers;
        for event in &self.events {
            // The observer is not called again, so what the panic left in it is not seen by us.
            failed.extend(observers.extract_if(.., |observer| contain(|| observer.event(event)).is_err()));
        }
        // Somebody may have taken one off meanwhile, and this may be the last of it.
        discard_each(observers);
        failed
    }
}
