//! A trace as a picture over time: what is held of which class under which line, who waited, what ran.
//!
//! However long a trace is, its timeline takes the same memory, beside who holds or wants something at the moment: time is cut into at most [`BINS_MAX`] pieces of equal length,
//! which are joined in pairs whenever time goes on beyond the last. Of bytes a piece keeps the moment at which most was held,
//! so no peak is ever averaged away; of slots and stages it keeps the mean; of queues the longest. Lists (spans, waits, holders)
//! have bounds of their own, and say what they left out.
//!
//! Sums are checked while the trace is read: each `changed` says what is held after it, and the timeline adds the same up for
//! itself, by class and by owner ([`Conservation`]).

mod bins;
mod build;
mod quantiles;
mod stages;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;

use serde::Serialize;

pub use self::build::Builder;
use crate::trace::{Event, Reader, RunEnd, TraceError};

/// The most pieces that time is cut into.
pub const BINS_MAX: usize = 1024;
/// The most spans that are kept. Of a longer run those around the peak are kept.
pub const SPANS_MAX: usize = 6000;
/// How many of the longest waits are kept.
pub const WAITS_KEPT: usize = 20;
/// How many holders are named at a peak and at the end.
pub const HOLDERS_KEPT: usize = 16;

/// What happened in a run, over time. Times are nanoseconds since the ledger was made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Timeline {
    /// How many events there were.
    pub events: u64,
    /// How many events were lost because the writer was too slow: the gaps in the sequence.
    pub events_lost: u64,
    /// Events that this version does not know, by name.
    pub unknown: BTreeMap<Arc<str>, u64>,
    /// The last line was cut off: the run was killed while it wrote.
    pub torn: bool,
    /// How the run ended, where the trace says so.
    pub ended: Option<RunEnd>,
    /// When the first event happened.
    pub begin_ns: u64,
    /// When the last event happened.
    pub end_ns: u64,
    /// The length of one piece of time. The series below have one entry a piece, from `begin_ns` on.
    pub bin_ns: u64,
    /// The bytes of each space, host memory first.
    pub spaces: Vec<SpaceLine>,
    /// Each kind of slots.
    pub slots: Vec<SlotsLine>,
    /// Each stage, in the order in which they were first entered.
    pub stages: Vec<StageLine>,
    /// What the process, the allocator and devices really held, by name.
    pub samples: Vec<SampleLine>,
    /// Jobs and how they ended.
    pub jobs: Jobs,
    /// Each residency that was loaded or evicted.
    pub residencies: Vec<ResidencyLine>,
    /// The longest waits, longest first.
    pub waits: Vec<Wait>,
    /// Stages that ran, by when they were granted: all, or those around the peak.
    pub spans: Vec<Span>,
    /// How many spans are left out of `spans`.
    pub spans_left_out: u64,
    /// Who holds something when the trace ends, most bytes first.
    pub left: Vec<Holder>,
    /// How many more hold something than are listed.
    pub left_out: u64,
    /// Whether the sums are right.
    pub conservation: Conservation,
}

/// The bytes of one space over time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SpaceLine {
    /// The space: `host`, `pinned`, `device0`. What is pinned counts in `host` too.
    pub space: Arc<str>,
    /// The limit when each piece of time ended, where one is known.
    pub line: Vec<Option<u64>>,
    /// When most was held, how much, and by whom.
    pub peak: Peak,
    /// The most bytes held in each piece of time.
    pub held: Vec<u64>,
    /// What is held when the trace ends.
    pub held_end: u64,
    /// The classes that were held in it, largest peak first.
    pub classes: Vec<ClassLine>,
}

/// The bytes of one class in one space.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClassLine {
    /// The class.
    pub class: Arc<str>,
    /// The most that was held of it.
    pub peak: u64,
    /// Bytes held at the moment of each piece of time at which most was held of the whole space.
    pub held: Vec<u64>,
}

/// The moment at which most was held of a space.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Peak {
    /// When.
    pub time_ns: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What was held of each class, most first.
    pub classes: Vec<(Arc<str>, u64)>,
    /// Who held most, most first.
    pub holders: Vec<Holder>,
    /// How many more held something.
    pub holders_left_out: u64,
}

/// A job or reservation that holds something.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// Its name.
    pub name: Arc<str>,
    /// Its number in the trace.
    pub id: u64,
    /// It is a job.
    pub is_job: bool,
    /// It has ended, and its buffers live on.
    pub ended: bool,
    /// The stage that it is in.
    pub stage: Option<Arc<str>>,
    /// When it first held something.
    pub since_ns: u64,
    /// All its bytes.
    pub bytes: u64,
    /// Where in the source it asked for them, where the trace says so.
    pub place: Option<Arc<str>>,
    /// Its bytes by class and space, most first.
    pub classes: Vec<(Arc<str>, Arc<str>, u64)>,
}

/// Slots of one kind over time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SlotsLine {
    /// The kind.
    pub slots: Arc<str>,
    /// How many there are, where that is known.
    pub limit: Option<u64>,
    /// The most that were held at once.
    pub peak: u64,
    /// The mean number held in each piece of time.
    pub mean: Vec<f64>,
    /// The mean over the whole trace.
    pub mean_all: f64,
}

/// One stage: how many waited, how many ran.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StageLine {
    /// The stage.
    pub stage: Arc<str>,
    /// How often it was entered.
    pub runs: u64,
    /// How often it is to be entered again.
    pub retries: u64,
    /// The most that waited to enter it at once.
    pub queue_peak: u64,
    /// The most that waited to enter it in each piece of time. For every stage but the first these have been produced, and are
    /// not yet consumed.
    pub queue: Vec<u64>,
    /// The mean number that ran in each piece of time.
    pub running: Vec<f64>,
    /// The mean number that ran over the whole trace.
    pub running_all: f64,
    /// How long it ran.
    pub run: Quantiles,
    /// How long jobs waited for its grant.
    pub wait: Quantiles,
    /// How long jobs waited, granted, for a place to run.
    pub place_wait: Quantiles,
}

/// What a list of times looks like. Of more than a few, quantiles are rounded up by at most an eighth; `max`, `total` and `count`
/// are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// How many.
    pub count: u64,
    /// Half are at most this.
    pub p50_ns: u64,
    /// Nineteen of twenty are at most this.
    pub p95_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// All together.
    pub total_ns: u64,
}

/// What was measured under one name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SampleLine {
    /// The name, with its unit: `resident_bytes`.
    pub name: Arc<str>,
    /// The highest value of each piece of time in which there was a sample.
    pub high: Vec<Option<u64>>,
    /// The highest of all.
    pub peak: u64,
    /// The last.
    pub last: u64,
}

/// Jobs and how they ended.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Jobs {
    /// Taken on.
    pub submitted: u64,
    /// Ended, whatever way.
    pub ended: u64,
    /// How jobs of pipelines finished: `result`, `failed`, `cancelled`, …
    pub finished: BTreeMap<Arc<str>, u64>,
    /// Finished after their deadline.
    pub late: u64,
    /// Requests that were refused for good.
    pub refused: u64,
    /// Requests that were taken back.
    pub withdrawn: u64,
    /// Admitted alone above a limit.
    pub forced: u64,
    /// Sent back to before their first stage.
    pub restarted: u64,
    /// Time from being taken on to the end, of those that entered a stage.
    pub time: Quantiles,
    /// How many finished with a result in each piece of time.
    pub done: Vec<u64>,
    /// The most that had been taken on and had not ended.
    pub open_peak: u64,
}

/// What is loaded once and shared.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ResidencyLine {
    /// Its name.
    pub name: Arc<str>,
    /// How often it was loaded.
    pub loads: u64,
    /// How many loads were given up.
    pub failed: u64,
    /// How often it was evicted.
    pub evictions: u64,
}

/// One request that waited.
#[derive(Clone, Debug, Serialize)]
pub struct Wait {
    /// Who.
    pub name: Arc<str>,
    /// Its number in the trace.
    pub id: u64,
    /// The stage that it waited to enter.
    pub stage: Option<Arc<str>>,
    /// When it asked.
    pub asked_ns: u64,
    /// How long it waited.
    pub wait_ns: u64,
    /// How it ended: `granted`, `refused`, `withdrawn`, or `waiting` when the trace ends.
    pub how: &'static str,
}

/// One trip through a stage.
#[derive(Clone, Debug, Serialize)]
pub struct Span {
    /// The job.
    pub name: Arc<str>,
    /// Its number in the trace.
    pub id: u64,
    /// The stage.
    pub stage: Arc<str>,
    /// When the job asked to enter it.
    pub asked_ns: u64,
    /// When it was granted.
    pub granted_ns: u64,
    /// When it began to run, where the trace says so.
    pub began_ns: Option<u64>,
    /// When it ended, or the trace did.
    pub ended_ns: u64,
    /// Where it ran: `worker`, `carrier`, `runtime`.
    pub place: Option<Arc<str>>,
    /// The device slots that it held: `lane0`, `lease0`.
    pub device: Option<Arc<str>>,
    /// The trace ended first.
    pub open: bool,
}

impl Span {
    /// When it began to run, or was granted if the trace does not say more.
    pub fn start_ns(&self) -> u64 {
        self.began_ns.unwrap_or(self.granted_ns)
    }
}

/// Whether a trace's sums are right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conservation {
    /// Each class's books.
    pub classes: Vec<ClassBooks>,
    /// How often an event said something else of what is held than the events before it add up to.
    pub mismatches: u64,
    /// How often an owner returned more than it had.
    pub overdrafts: u64,
}

/// The books of one class in one space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassBooks {
    /// The class.
    pub class: Arc<str>,
    /// The space.
    pub space: Arc<str>,
    /// Held before the trace began: zero, if it was written from the ledger's beginning.
    pub before: u64,
    /// All that came.
    pub came: u64,
    /// All that went.
    pub went: u64,
    /// Held at the end, as the last event says.
    pub held: u64,
    /// Held at the end, added up over the owners that the trace has seen take something.
    pub by_owners: u64,
}

impl ClassBooks {
    /// What came, less what went, is what is held, and somebody holds it. (Who holds what was there before the trace began, it
    /// does not say.)
    pub fn is_balanced(&self) -> bool {
        let (before, came, went) = (i128::from(self.before), i128::from(self.came), i128::from(self.went));
        let known = if self.before == 0 { self.by_owners == self.held } else { self.by_owners <= self.held };
        before + came - went == i128::from(self.held) && known
    }
}

impl Conservation {
    /// All sums are right.
    pub fn holds(&self) -> bool {
        self.mismatches == 0 && self.overdrafts == 0 && self.classes.iter().all(ClassBooks::is_balanced)
    }
}

impl Timeline {
    /// Reads a trace to its end.
    ///
    /// # Errors
    ///
    /// Where the trace cannot be read. A last line without its end is none: see [`Timeline::torn`].
    pub fn read(input: impl BufRead) -> Result<Timeline, TraceError> {
        let mut reader = Reader::new(input)?;
        let mut builder = Builder::new();
        for event in reader.by_ref() {
            builder.push(&event?);
        }
        let mut timeline = builder.finish();
        timeline.torn = reader.is_torn();
        Ok(timeline)
    }

    /// The timeline of events that are there already.
    pub fn from_events<E: std::borrow::Borrow<Event>>(events: impl IntoIterator<Item = E>) -> Timeline {
        let mut builder = Builder::new();
        for event in events {
            builder.push(event.borrow());
        }
        builder.finish()
    }

    /// How long the trace is.
    pub fn length_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// How many pieces time is cut into.
    pub fn bins(&self) -> usize {
        usize::try_from(self.length_ns() / self.bin_ns.max(1)).unwrap_or(usize::MAX) + 1
    }

    /// The bytes of a space.
    pub fn space(&self, space: &str) -> Option<&SpaceLine> {
        self.spaces.iter().find(|line| &*line.space == space)
    }

    /// What was measured under a name.
    pub fn sample(&self, name: &str) -> Option<&SampleLine> {
        self.samples.iter().find(|line| &*line.name == name)
    }

    /// Jobs that finished with a result. Where no pipeline says how they finished, all that ended.
    pub fn done(&self) -> u64 {
        if self.jobs.finished.is_empty() {
            self.jobs.ended
        } else {
            self.jobs.finished.get("result").copied().unwrap_or(0)
        }
    }
}

#[cfg(test)]
mod tests;
