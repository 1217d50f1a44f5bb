//! What happens when a stage fails: the job ends, or the stage is run again from its input, or the job from its start.
//!
//! A failed run gives back what it had taken, keeps its place, and comes again:
//!
//! - *from its input*: the stage works on a reference, and the pipeline keeps the input until a run has succeeded. What the
//!   input holds stays charged to the job meanwhile; the ledger keeps the job's claim, so that the stage is sure to be
//!   granted again;
//! - *from the start*: the job holds nothing any more and asks for admission again, at the age it had. It needs an input of
//!   the whole pipeline that can be cloned. The clone is kept until the last stage that may want it has ended, and charged
//!   if that was [asked for](super::Builder::charge_input); then the job stays in flight with what it was promised.
//!
//! A device that is out of memory is a failure of its own kind ([`Failure::OutOfMemory`]): somebody else has taken what the
//! budget promised, and may give it back. So it is tried again until the time limit, however often, and then the stage is
//! asked for less: the job goes on by the next of its [alternative](super::Builder::alternatives) plans, if there is one.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::time::{Duration, Instant};

use super::line::CloneFn;
use super::trip::Value;
use crate::{Bytes, Class, Profile, Reservation};

/// How often and how long a stage that fails is run again. Panics are bugs and end the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub(super) times: u32,
    pub(super) within: Duration,
    pub(super) pause: Duration,
    pub(super) from: From,
}

/// Where a job that failed takes up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Input,
    Start,
}

impl Retry {
    /// At most `times` times beyond the first, at once, and for a minute at most.
    pub const fn times(times: u32) -> Self {
        Self { times, within: Duration::from_secs(60), pause: Duration::ZERO, from: From::Input }
    }

    /// Begins no run later than this after the first failure.
    #[must_use]
    pub const fn within(mut self, limit: Duration) -> Self {
        self.within = limit;
        self
    }

    /// Waits so long before the second run, and each time twice as long as before.
    #[must_use]
    pub const fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    pub(super) const fn anew(mut self) -> Self {
        self.from = From::Start;
        self
    }
}

/// The input of a job, kept for another start. Dropped in this order.
pub(super) struct Spare {
    pub(super) value: Value,
    /// What it is charged as, from the job's first stage on.
    pub(super) bytes: Bytes,
    pub(super) paid: Option<Reservation>,
}

impl Spare {
    /// A clone of an input, where there may be another start.
    pub(super) fn of(clone: Option<CloneFn>, value: &Value, bytes: Bytes) -> Option<Spare> {
        clone.map(|clone| Spare { value: clone(value), bytes, paid: None })
    }
}

/// What the inputs of a line's jobs are charged as while they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) class: Class,
    /// The last stage that may send its job back to the start.
    pub(super) until: usize,
}

impl Kept {
    /// The profile with a kept input on top.
    pub(super) fn with(self, profile: &Profile, bytes: Bytes) -> Profile {
        profile.with(|index, stage| {
            let (peak, keep) = (stage.peak.clone(), stage.keep.clone());
            match index.cmp(&self.until) {
                Less => (peak.bytes(self.class, bytes), keep.bytes(self.class, bytes)),
                Equal => (peak.bytes(self.class, bytes), keep),
                Greater => (peak, keep),
            }
        })
    }
}

/// What kind of failure a stage's error is: see [`Builder::failures`](super::Builder::failures).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It will fail again: the job ends.
    Fatal,
    /// It may succeed next time.
    Transient,
    /// A device, or another place outside of the budget's power, had no memory for what the ledger had granted.
    OutOfMemory,
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Again {
        at: Instant,
    },
    /// Again, and with a smaller plan.
    Smaller,
    GiveUp,
}

/// The failures of one job in one stage, or of its stages that begin again from the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    failed: u32,
    since: Option<Instant>,
}

/// A pause before an out-of-memory retry where none was asked for: not to spin while others work.
const PAUSE_FOR_MEMORY: Duration = Duration::from_millis(1);
/// No pause grows beyond this.
const PAUSE_MAX: Duration = Duration::from_secs(10);

impl Tries {
    pub(super) fn failed(&mut self, failure: Failure, retry: &Retry, now: Instant) -> Answer {
        let since = *self.since.get_or_insert(now);
        let doublings = self.failed.min(16);
        self.failed += 1;
        let out_of_memory = failure == Failure::OutOfMemory;
        let first = if out_of_memory && retry.pause.is_zero() { PAUSE_FOR_MEMORY } else { retry.pause };
        let pause = first.saturating_mul(1 << doublings).min(PAUSE_MAX.max(retry.pause));
        // A moment that no clock shows is too late for any limit.
        let Some(at) = now.checked_add(pause) else { return Answer::GiveUp };
        let in_time = at.duration_since(since) <= retry.within;
        match failure {
            Failure::Fatal => Answer::GiveUp,
            Failure::OutOfMemory if in_time => Answer::Again { at },
            Failure::OutOfMemory => Answer::Smaller,
            Failure::Transient if in_time && self.failed <= retry.times => Answer::Again { at },
            Failure::Transient => Answer::GiveUp,
        }
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests {
    use super::*;

    #[test]
    fn tries_are_limited_in_number_and_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let retry = Retry::times(2).within(Duration::from_millis(100)).pause(Duration::from_millis(10));
        let run = |failure, moments: &[u64]| -> Vec<Answer> {
            let mut tries = Tries::default();
            moments.iter().map(|&ms| tries.failed(failure, &retry, at(ms))).collect()
        };
        let again = |ms| Answer::Again { at: at(ms) };
        assert_eq!(run(Failure::Fatal, &[0]), [Answer::GiveUp]);
        assert_eq!(run(Failure::Transient, &[0, 20, 50]), [again(10), again(40), Answer::GiveUp]);
        assert_eq!(run(Failure::Transient, &[0, 81]), [again(10), Answer::GiveUp]);
        // Out of memory: as often as it takes, and then for less.
        assert_eq!(run(Failure::OutOfMemory, &[0, 10, 30]), [again(10), again(30), again(70)]);
        assert_eq!(run(Failure::OutOfMemory, &[0, 10, 61]), [again(10), again(30), Answer::Smaller]);
        // A pause beyond all time is the end, and one that cannot be doubled stays what it is.
        let retry = Retry::times(9).within(Duration::MAX).pause(Duration::MAX);
        let for_ever = Tries::default().failed(Failure::Transient, &retry, start);
        assert_eq!(for_ever, Answer::GiveUp);
        let years = Duration::from_secs(1 << 33);
        let mut tries = Tries::default();
        let retry = retry.pause(years);
        let answers = [0, 1, 2].map(|_| tries.failed(Failure::Transient, &retry, start));
        assert_eq!(answers, [Answer::Again { at: start + years }; 3]);
    }
}
