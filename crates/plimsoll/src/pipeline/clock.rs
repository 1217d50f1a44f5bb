//! Alarms: deadlines, time-outs, pauses before a retry. A thread that exists only once there was one, and sleeps between
//! them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::contain::contain;
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
    /// As if the system had no thread for it.
    #[cfg(test)]
    pub(super) refused: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct Alarms {
    set: BTreeMap<AlarmId, Ring>,
    numbered: u64,
    thread: Option<thread::JoinHandle<()>>,
    stopped: bool,
}

impl Clock {
    /// Starts the thread, if it does not run. Until the clock is stopped every alarm is set then.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        self.tick(&mut lock(&self.alarms))
    }

    fn tick(self: &Arc<Self>, alarms: &mut Alarms) -> io::Result<()> {
        #[cfg(test)]
        if self.refused.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if alarms.thread.is_none() && !alarms.stopped {
            let clock = self.clone();
            let thread = thread::Builder::new().name("plimsoll-clock".to_owned());
            alarms.thread = Some(thread.spawn(move || clock.run())?);
        }
        Ok(())
    }

    /// Calls `ring` at that moment or soon after, on the clock's thread; briefly, for other alarms wait. A clock that has
    /// been stopped drops it.
    ///
    /// # Errors
    ///
    /// If the clock has no thread yet, and the system has none for it.
    pub(super) fn set(self: &Arc<Self>, at: Instant, ring: impl FnOnce() + Send + 'static) -> io::Result<AlarmId> {
        let mut alarms = lock(&self.alarms);
        self.tick(&mut alarms)?;
        let id = (at, alarms.numbered);
        alarms.numbered += 1;
        if alarms.stopped {
            return Ok(id);
        }
        let first = alarms.set.first_key_value().is_none_or(|(first, _)| id < *first);
        alarms.set.insert(id, Box::new(ring));
        if first {
            self.changed.notify_one();
        }
        Ok(id)
    }

    /// Takes an alarm back, unless it has rung.
    pub(super) fn unset(&self, id: AlarmId) {
        let ring = lock(&self.alarms).set.remove(&id);
        // Outside the lock: it may hold the last reference to a job.
        drop(ring);
    }

    /// Takes all alarms back and ends the thread.
    pub(super) fn stop(&self) {
        drop(self.take_apart());
    }

    /// The same, and waits for the thread unless called by an alarm. Not by who has a job in hand: an alarm may wait for that.
    pub(super) fn stop_and_wait(&self) {
        if let Some(thread) = self.take_apart()
            && thread.thread().id() != thread::current().id()
        {
            // It contains the panics of alarms: there is nothing in this error.
            let _ = thread.join();
        }
    }

    fn take_apart(&self) -> Option<thread::JoinHandle<()>> {
        let mut alarms = lock(&self.alarms);
        alarms.stopped = true;
        let left = std::mem::take(&mut alarms.set);
        let thread = alarms.thread.take();
        drop(alarms);
        self.changed.notify_one();
        drop(left);
        thread
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
                    drop(contain(ring));
                }
                alarms = lock(&self.alarms);
            } else {
                alarms = wait(&self.changed, alarms, left);
            }
        }
    }
}
