//! The share kept for slack, following the measured one, so that the *process* stays under the line and not only the ledger.
//!
//! ```text
//! ledger's limit  =  line  −  overhead  −  margin
//! ```
//!
//! *Overhead* is what the process holds beside the ledger: the most of it in the last [`REMEMBERED`]. A higher overhead lowers
//! the limit at once; but first the allocator is told to give free pages back, so that no job waits for the sake of pages that
//! nobody uses. A lower one raises the limit when it has been lower for that long, by looks at which nothing that was promised was
//! still to be touched: promised memory hides what is beside it. Steps smaller than [`STEP_DIVISOR`]'s part of the line are not worth
//! the trouble.
//!
//! *Line* is the one that was set, or what the machine and the control groups leave to this process if that is less: a limit that is
//! lowered, or a neighbour that grows, lowers it at the next look.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::{Bytes, Ledger, Space};

use super::slack;
use crate::sample::Sample;
use crate::sample::allocator::Allocator;
use crate::sample::process::ProcessMemory;

/// For how long an overhead counts after it was seen.
pub const REMEMBERED: Duration = Duration::from_secs(30);
/// One part in so many of the line is the smallest change of the limit.
pub const STEP_DIVISOR: u64 = 128;
/// One part in so many of the overhead is kept on top of it, for what happens between two samples.
const MARGIN_DIVISOR: u64 = 8;
/// After a purge that brought nothing it is waited for at least and at most so long before the next one.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(64);
/// One part in so many of the line is slack enough to be purged when somebody waits.
const WORTH_PURGING_DIVISOR: u64 = 64;

/// Keeps a ledger's limit on host memory so that the process stays under a line.
#[derive(Debug)]
pub struct SlackKeeper {
    ledger: Ledger,
    line: u64,
    /// The limit never goes below this: the largest job, which could not run any more.
    floor: u64,
    /// The limit never goes above this.
    ceiling: u64,
    limit: u64,
    overheads: VecDeque<(u64, u64)>,
    /// When the overhead was last seen for what it is.
    seen: u64,
    purges: u64,
    /// Not purged before this time, and how long it is waited after a purge that brought nothing.
    rests_until: u64,
    rest: Duration,
}

/// What a keeper has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The allocator was told to give free pages back.
    pub purged: bool,
    /// The ledger's limit that was set, if it was changed.
    pub limit: Option<Bytes>,
    /// What the process was found to hold beside the ledger.
    pub overhead: Bytes,
    /// The line cannot be kept: the overhead leaves less than the floor.
    pub too_little: bool,
    /// The line that was kept to: the one that was set, or what others have left of it.
    pub line: Bytes,
}

impl SlackKeeper {
    /// Keeps `ledger` so that the process stays under `line`. The limit never goes below `floor`, which is to be the largest
    /// claim of a job: what does not fit is refused for good.
    pub fn new(ledger: &Ledger, line: Bytes, floor: Bytes) -> Self {
        let limit = ledger.snapshot().space(Space::HOST).map_or(line.0, |usage| usage.target.0);
        Self {
            ledger: ledger.clone(),
            line: line.0,
            floor: floor.0,
            ceiling: line.0,
            limit: limit.min(line.0),
            overheads: VecDeque::new(),
            seen: 0,
            purges: 0,
            rests_until: 0,
            rest: REST_MIN,
        }
    }

    /// Never raises the limit above what it is now.
    #[must_use]
    pub fn lowering_only(mut self) -> Self {
        self.ceiling = self.limit;
        self
    }

    /// How often free pages were given back because of it.
    pub fn purges(&self) -> u64 {
        self.purges
    }

    /// Looks at a sample and acts. `again` reads the process and its allocator once more after a purge.
    pub fn follow(
        &mut self,
        sample: &Sample,
        snapshot: &Snapshot,
        allocator: Option<&dyn Allocator>,
        again: impl FnOnce() -> Option<ProcessMemory>,
    ) -> Change {
        let held = snapshot.space(Space::HOST).map_or(0, |usage| usage.held.0);
        let mut overhead = overhead(sample, held);
        let kept = u64::try_from(slack(sample)).unwrap_or(0);
        let resident = sample.process.map_or(0, |process| process.resident_bytes);
        let line = self.line_now(sample);
        // Somebody waits, or will have to because the limit must go down, or the process is nearly at the line.
        let short = sample.waiting_for_memory.is_some_and(|waiting| waiting > 0)
            || limit_for(line, overhead) + self.line / STEP_DIVISOR < self.limit
            || resident > line - line / 32;
        let purged = short
            && kept > self.line / WORTH_PURGING_DIVISOR
            && sample.time >= self.rests_until
            && allocator.is_some_and(|allocator| allocator.purge());
        let touched = is_touched(sample, held, kept);
        if purged {
            self.purges += 1;
            let (process, memory) = (again(), allocator.and_then(|allocator| allocator.read()));
            let after = Sample { process: process.or(sample.process), allocator: memory, ..sample.clone() };
            overhead = self::overhead(&after, held);
            let left = u64::try_from(slack(&after)).unwrap_or(0);
            if kept.saturating_sub(left) < self.line / WORTH_PURGING_DIVISOR / 2 {
                // Pages that cannot be given back are not asked for again and again: an allocator stops everybody meanwhile.
                self.rests_until = sample.time.saturating_add(u64::try_from(self.rest.as_nanos()).unwrap_or(u64::MAX));
                self.rest = (self.rest * 2).min(REST_MAX);
            } else {
                self.rest = REST_MIN;
                // What could be given back was no overhead that has to be kept room for.
                self.overheads.clear();
            }
        }
        self.remember(sample.time, overhead, touched);
        let worst = self.overheads.iter().map(|(_, overhead)| *overhead).max().unwrap_or(0);
        let wanted = limit_for(line, worst);
        let target = wanted.max(self.floor).min(self.ceiling);
        // A small step is taken only where the line would be crossed without it.
        let must = target < self.limit && self.limit.saturating_add(worst) > line;
        let step = must || target.abs_diff(self.limit) >= (self.line / STEP_DIVISOR).max(1);
        let limit = step.then_some(Bytes(target));
        let limit = limit.filter(|limit| self.ledger.resize(Space::HOST, *limit).is_ok());
        if let Some(limit) = limit {
            self.limit = limit.0;
        }
        Change { purged, limit, overhead: Bytes(overhead), too_little: wanted < self.floor, line: Bytes(line) }
    }

    /// The line that was set, or less where the machine or a control group does not leave as much to this process.
    fn line_now(&self, sample: &Sample) -> u64 {
        let own = sample.process.map(|process| process.resident_bytes);
        own.zip(sample.left_bytes()).map_or(self.line, |(own, left)| self.line.min(own.saturating_add(left)))
    }

    fn remember(&mut self, time: u64, overhead: u64, touched: bool) {
        let remembered = u64::try_from(REMEMBERED.as_nanos()).unwrap_or(u64::MAX);
        if touched {
            self.seen = time;
        }
        // Nothing is forgotten for looks at which there was less to be seen than there is.
        self.overheads.retain(|(when, _)| self.seen.saturating_sub(*when) <= remembered);
        // Only what is not exceeded by a later one can ever be the most.
        while self.overheads.back().is_some_and(|(_, last)| *last <= overhead) {
            self.overheads.pop_back();
        }
        self.overheads.push_back((time, overhead));
    }
}

fn limit_for(line: u64, overhead: u64) -> u64 {
    line.saturating_sub(overhead).saturating_sub(overhead / MARGIN_DIVISOR)
}

/// Whether all that is held seems to be touched: then what is resident beside it is all there is.
fn is_touched(sample: &Sample, held: u64, kept: u64) -> bool {
    let Some(process) = &sample.process else { return false };
    process.resident_bytes.saturating_sub(held) > kept + process.file_bytes || held == 0
}

/// What the process holds beside the ledger. While memory is promised and not touched, resident − held says too little; what the
/// allocator keeps and the pages of files are there in any case.
fn overhead(sample: &Sample, held: u64) -> u64 {
    let Some(process) = &sample.process else { return 0 };
    let kept = u64::try_from(slack(sample)).unwrap_or(0);
    process.resident_bytes.saturating_sub(held).max(kept + process.file_bytes)
}
