//! Alarms: deadlines, time-outs, pauses before a retry. A thread that exists only once there was one, and sleeps between
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, lock, thread, wait};

/// What happens at a moment.
type Ring = Box<dyn FnOnce() + Send>;

/// Names an alarm, until it has rung.
pub(super) type AlarmId = (Instant, u64);

/// The alarms of one pipeline.
#[derive(Default)]
pub(super) struct Clock {
    alarms: Mutex<Alarms>,
    changed: Condvar,
}

#[derive(Default)]
struct Alarms {
    set: BTreeMap<AlarmId, Ring>,
    numbered: u64,
    thread: Option<thread::JoinHandle<()>>,
    stopped: bool,
}

impl Clock {
    /// Calls `ring` at that moment or soon after, on the clock's thread; briefly, for other alarms wait. A clock that has
    /// been stopped drops it.
    pub(super) fn set(self: &Arc<Self>, at: Instant, ring: impl FnOnce() + Send + 'static) -> AlarmId {
        let mut alarms = lock(&self.alarms);
        let id = (at, alarms.numbered);
        alarms.numbered += 1;
        if alarms.stopped {
            return id;
        }
        let first = alarms.set.first_key_value().is_none_or(|(first, _)| id < *first);
        alarms.set.insert(id, Box::new(ring));
        if alarms.thread.is_none() {
            let clock = self.clone();
            alarms.thread = Some(
                thread::Builder::new()
                    .name("plimsoll-clock".to_owned())
                    .spawn(move || clock.run())
                    .expect("a thread for alarms"),
            );
        } else if first {
            self.changed.notify_one();
        }
        id
    }

    /// Takes an alarm back, unless it has rung.
    pub(super) fn unset(&self, id: AlarmId) {
        let ring = lock(&self.alarms).set.remove(&id);
        // Outside the lock: it may hold the last reference to a job.
        drop(ring);
    }

    /// Takes all alarms back and ends the thread; waits for it unless called by an alarm.
    pub(super) fn stop(&self) {
        let mut alarms = lock(&self.alarms);
        alarms.stopped = true;
        let left = std::mem::take(&mut alarms.set);
        let thread = alarms.thread.take();
        drop(alarms);
        self.changed.notify_one();
        drop(left);
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // It contains the panics of alarms: there is nothing in this error.
            let _ = thread.join();
        }
    }

    fn run(&self) {
        let mut alarms = lock(&self.alarms);
        while !alarms.stopped {
            let now = Instant::now();
            let left = alarms.set.first_key_value().map(|((at, _), _)| at.saturating_duration_since(now));
            if left == Some(Duration::ZERO) {
                let ring = alarms.set.pop_first().map(|(_, ring)| ring);
                drop(alarms);
                if let Some(ring) = ring {
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ring));
                }
                alarms = lock(&self.alarms);
            } else {
                alarms = wait(&self.changed, alarms, left);
            }
        }
    }
}
