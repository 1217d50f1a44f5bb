//! What comes back when nothing new is begun any more. A program that ends in order drops its maps, joins its threads and returns what
//! had been stuck until then; its trace would say that everything came back in the end, and the fault would be forgotten with it.
//!
//! So what came back after a long time is remembered until something new is begun: then it did come back while the run went on, and
//! its time counts among the usual ones.

use super::{Owner, Rest, TIMES_KEPT};

/// The most holders remembered.
const RESTS_MAX: usize = 16_384;
/// One part in so many of how long a run has lasted is long; less is never stuck.
const LONG: u64 = 50;

/// What came back since the last beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct WindDown {
    rests: Vec<Rest>,
    reserved_times: Vec<u64>,
    ended_times: Vec<u64>,
    jobs_seen: bool,
}

impl WindDown {
    /// Whether this beginning, of a job or of a reservation, says that the run goes on. Where there are jobs only they do: those that
    /// are about to end still make reservations.
    pub(super) fn ends(&mut self, is_job: bool) -> bool {
        self.jobs_seen |= is_job;
        is_job || !self.jobs_seen
    }

    /// Whether it has been in its state for long.
    pub(super) fn is_long(owner: &Owner, time: u64) -> bool {
        let since = if owner.is_job { owner.since } else { owner.held_since };
        !owner.held.is_empty() && Self::is_long_for(time.saturating_sub(since), time)
    }

    /// Whether so many nanoseconds are long, at this time.
    pub(super) fn is_long_for(lasted: u64, time: u64) -> bool {
        lasted > time / LONG
    }

    /// Notes that it has come back.
    pub(super) fn came_back(&mut self, rest: Rest, time: u64) {
        if self.rests.len() < RESTS_MAX {
            self.rests.push(Rest { until: Some(time), ..rest });
        }
    }

    /// Notes how long a reservation, or a job after its end, had lasted that did so for long.
    pub(super) fn lasted(&mut self, is_job: bool, time: u64) {
        let times = if is_job { &mut self.ended_times } else { &mut self.reserved_times };
        if times.len() < TIMES_KEPT {
            times.push(time);
        }
    }

    /// The run goes on: the times of reservations, and of jobs after their end, that are usual from now on.
    pub(super) fn taken_back(&mut self) -> (Vec<u64>, Vec<u64>) {
        self.rests.clear();
        (std::mem::take(&mut self.reserved_times), std::mem::take(&mut self.ended_times))
    }

    /// What has come back after a long time.
    pub(super) fn rests(&self) -> impl Iterator<Item = &Rest> {
        self.rests.iter()
    }
}
