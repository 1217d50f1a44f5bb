//! A job's time: the alarms of its deadline and its time-out, and what follows when they ring.
//!
//! An alarm rings on the clock's thread and leaves word in the trip; whoever drives the trip next acts on it. Word that
//! finds somebody driving leaves the mark `again`, like any wake-up, so that it is not overlooked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Driver, Papers, Reason, Trip};
use crate::pipeline::clock::AlarmId;
use crate::pipeline::options::{JobOptions, URGENT};
use crate::pipeline::stats::Event;
use crate::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use crate::sync::{Mutex, lock};

/// What a trip knows about time.
pub(super) struct Urgency {
    options: JobOptions,
    /// As it is now: raised once the deadline is near, its own or that of the job whose part this is.
    priority: AtomicI32,
    /// It was raised, and the ledger has not been told.
    due: AtomicBool,
    alarms: Mutex<Vec<AlarmId>>,
}

impl Urgency {
    pub(super) fn new(options: JobOptions) -> Self {
        let (priority, due) = (AtomicI32::new(options.priority), AtomicBool::new(false));
        Self { options, priority, due, alarms: Mutex::new(Vec::new()) }
    }

    /// The priority, raised once the deadline is near.
    pub(super) fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Whether it was raised because the deadline is near.
    pub(super) fn is_raised(&self) -> bool {
        self.priority() > self.options.priority
    }

    pub(super) fn options(&self) -> &JobOptions {
        &self.options
    }

    fn is_due(&self) {
        self.raise_to(self.options.priority.saturating_add(URGENT));
    }

    /// True if it was lower.
    fn raise_to(&self, priority: i32) -> bool {
        let is_higher = self.priority.fetch_max(priority, Ordering::Relaxed) < priority;
        if is_higher {
            self.due.store(true, Ordering::Relaxed);
        }
        is_higher
    }

    pub(super) fn is_late(&self) -> bool {
        self.options.deadline.is_some_and(|deadline| deadline < Instant::now())
    }

    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout.unwrap_or_default()
    }
}

impl<E: Send + 'static> Trip<E> {
    /// Called once, before the trip sets off.
    pub(super) fn set_alarms(self: &Arc<Self>) {
        let JobOptions { deadline, timeout, .. } = self.urgency.options;
        let now = Instant::now();
        if let Some(deadline) = deadline {
            let urgent_from = deadline.checked_sub(self.lead(deadline.saturating_duration_since(now)));
            if urgent_from.is_none_or(|from| from <= now) {
                self.urgency.is_due();
            } else if let Some(from) = urgent_from {
                self.ring(from, |trip| trip.deadline_is_near());
            }
            self.ring(deadline, |trip| trip.deadline_missed());
        }
        if let Some(give_up) = timeout.and_then(|timeout| now.checked_add(timeout)) {
            self.ring(give_up, |trip| trip.stop(Reason::TimedOut));
        }
    }

    /// How long before its deadline a job becomes urgent: twice as long as jobs have run so far, or half of the time that
    /// is left while that is not known.
    fn lead(&self, left: Duration) -> Duration {
        let runs = self.line.stages.iter().map(|stage| stage.meter.mean()).sum::<Option<Duration>>();
        runs.map_or(left / 2, |runs| runs * 2)
    }

    /// The job's deadline is near: it hurries, and so do its parts that are under way.
    pub(in crate::pipeline) fn deadline_is_near(self: &Arc<Self>) {
        self.urgency.is_due();
        self.driven_by(Driver::Passer);
    }

    /// The job whose part this is has become more urgent.
    pub(super) fn hurry_to(self: &Arc<Self>, priority: i32) {
        if self.urgency.raise_to(priority) {
            self.driven_by(Driver::Passer);
        }
    }

    /// An alarm of the job's own: the clock was started before the job was taken on.
    fn ring(self: &Arc<Self>, moment: Instant, ring: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let set = self.at(moment, ring);
        debug_assert!(set, "the clock runs");
    }

    /// Has `ring` called at that moment; false if the system has no thread for that.
    #[must_use]
    pub(super) fn at(self: &Arc<Self>, moment: Instant, ring: impl FnOnce(&Arc<Self>) + Send + 'static) -> bool {
        let trip = self.handle();
        let alarm = self.line.clock.set(moment, move || _ = trip.with(ring));
        let (mut alarms, now) = (lock(&self.urgency.alarms), Instant::now());
        // Those that have rung need not be taken back: a job that rests often remembers one.
        alarms.retain(|(at, _)| *at > now);
        alarms.extend(alarm.as_ref().ok());
        alarm.is_ok()
    }

    fn deadline_missed(&self) {
        if self.has_ended() {
            return;
        }
        self.line.deadlines_missed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let stage = self.line.stages[self.stage.load(Ordering::Relaxed)].name;
        self.line.tell(|| Event::DeadlineMissed { job: self.name.clone(), stage });
    }

    /// Tells the ledger that the deadline is near, if so. Called by whoever drives, when the job has to wait for its stage;
    /// then it may have been granted.
    pub(super) fn hurry_if_due(&self, papers: &mut Papers) -> bool {
        if !self.urgency.due.load(Ordering::Relaxed) || !self.urgency.due.swap(false, Ordering::Relaxed) {
            return false;
        }
        // A part is its job's, and comes in with those of jobs in flight. The age that others lose by that, the new priority
        // makes up for.
        if papers.job.is_admitted() || !self.line.is_outermost() || !self.asks_anew(papers) {
            papers.job.prioritise(self.urgency.priority());
        }
        true
    }

    /// The job has ended: nothing about it need be remembered but its identity, for a while.
    pub(super) fn forget(&self, succeeded: bool) {
        for alarm in std::mem::take(&mut *lock(&self.urgency.alarms)) {
            self.line.clock.unset(alarm);
        }
        if let Some(id) = &self.urgency.options.id {
            lock(&self.line.ids).end(id, succeeded);
        }
    }
}
