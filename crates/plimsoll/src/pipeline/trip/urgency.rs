//! A job's time: the alarms of its deadline and its time-out, and what follows when they ring.
//!
//! An alarm rings on the clock's thread and leaves word in the trip; whoever drives the trip next acts on it. Word that
//! finds somebody driving leaves the mark `again`, like any wake-up, so that it is not overlooked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Driver, Papers, Reason, Trip};
use crate::ledger::JobSpec;
use crate::pipeline::clock::AlarmId;
use crate::pipeline::options::{JobOptions, URGENT};
use crate::pipeline::stats::Event;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};

/// What a trip knows about time.
pub(super) struct Urgency {
    options: JobOptions,
    /// The deadline is near.
    raised: AtomicBool,
    /// The same, and the ledger has not been told.
    due: AtomicBool,
    alarms: Mutex<Vec<AlarmId>>,
}

impl Urgency {
    pub(super) fn new(options: JobOptions) -> Self {
        Self { options, raised: AtomicBool::new(false), due: AtomicBool::new(false), alarms: Mutex::new(Vec::new()) }
    }

    /// The priority, raised once the deadline is near.
    pub(super) fn priority(&self) -> i32 {
        let raise = if self.raised.load(Ordering::Relaxed) { URGENT } else { 0 };
        self.options.priority.saturating_add(raise)
    }

    fn is_due(&self) {
        self.raised.store(true, Ordering::Relaxed);
        self.due.store(true, Ordering::Relaxed);
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
                self.at(from, |trip| {
                    trip.urgency.is_due();
                    trip.driven_by(Driver::Passer);
                });
            }
            self.at(deadline, |trip| trip.deadline_missed());
        }
        if let Some(give_up) = timeout.and_then(|timeout| now.checked_add(timeout)) {
            self.at(give_up, |trip| trip.stop(Reason::TimedOut));
        }
    }

    /// How long before its deadline a job becomes urgent: twice as long as jobs have run so far, or half of the time that
    /// is left while that is not known.
    fn lead(&self, left: Duration) -> Duration {
        let runs = self.line.stages.iter().map(|stage| stage.meter.mean()).sum::<Option<Duration>>();
        runs.map_or(left / 2, |runs| runs * 2)
    }

    pub(super) fn at(self: &Arc<Self>, moment: Instant, ring: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let trip = self.handle();
        let alarm = self.line.clock.set(moment, move || _ = trip.with(ring));
        lock(&self.urgency.alarms).push(alarm);
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
        let job = &mut papers.job;
        if !self.urgency.due.load(Ordering::Relaxed) || !self.urgency.due.swap(false, Ordering::Relaxed) {
            return false;
        }
        let priority = self.urgency.priority();
        if !job.is_admitted() {
            // As another job it may be served from the urgent reserve. It loses its age, which
            // its new priority makes up for. Where that is refused the old one stands. It waits for memory alone: who is in
            // a hurry goes beside the pace of the others.
            let untied = |profile| self.line.paced.untie(profile);
            let mut spec = JobSpec::new("", untied(job.profile())).priority(priority).urgent();
            spec.name = self.name.clone();
            spec.alternatives = job.profiles()[1..].iter().map(untied).collect();
            spec.restarts = self.line.kept.is_some();
            self.line.needs.add_to(&mut spec, &self.line.needs.by_choice(&self.declared));
            if let Ok(urgent) = self.line.ledger.submit(spec) {
                *job = urgent;
                return true;
            }
        }
        job.prioritise(priority);
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
