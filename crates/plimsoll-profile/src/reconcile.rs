//! Ledger against kernel: a table for each space that adds up, an alarm on drift, and a share for slack that follows what is
//! measured.
//!
//! ```text
//! held by class  +  baseline  +  allocator slack  +  unaccounted  =  what the kernel (or the driver) says
//! ```
//!
//! *Baseline* is what the process had before there was work, with the pages of files that it has now; *slack* is what the
//! allocator keeps; *unaccounted* is the rest, whatever its sign: negative where memory is promised and not touched yet.

mod drift;
mod keeper;

use std::fmt;

use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::{Bytes, Space};
use serde::Serialize;

pub use drift::{Alarm, Drift};
pub use keeper::{Change, REMEMBERED, STEP_DIVISOR, SlackKeeper};

use crate::sample::Sample;
use crate::sample::allocator::AllocatorMemory;

/// What a process had before there was work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Anonymous and shared memory that was neither the ledger's nor the allocator's slack.
    host: i64,
    /// What was used of each device.
    devices: Vec<(u16, i64)>,
}

impl Baseline {
    /// Takes it from the first sample and the ledger's picture at that time.
    pub fn of(sample: &Sample, snapshot: &Snapshot) -> Self {
        let held = |space| held_in(snapshot, space).iter().map(|(_, bytes)| *bytes).sum::<i64>();
        let unfiled = sample.process.map_or(0, |process| signed(process.unfiled_bytes()));
        let devices = sample.devices.iter().map(|device| {
            let used = device.own_bytes.unwrap_or(device.used_bytes());
            (device.device, signed(used) - held(Space::device(device.device)))
        });
        Self { host: (unfiled - slack(sample) - held(Space::HOST)).max(0), devices: devices.collect() }
    }
}

/// What a row of a table is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// What the ledger holds of a class.
    Held(String),
    /// What was there before there was work, and pages of files.
    Baseline,
    /// What the allocator keeps.
    Slack,
    /// The rest.
    Unaccounted,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Held(class) => f.pad(class),
            Part::Baseline => f.pad("(baseline)"),
            Part::Slack => f.pad("(allocator slack)"),
            Part::Unaccounted => f.pad("(unaccounted)"),
        }
    }
}

/// One space, reconciled. The rows add up to the total.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The space, as traces name it.
    pub space: String,
    /// Who says the total.
    pub source: &'static str,
    /// The rows, in bytes.
    pub rows: Vec<(Part, i64)>,
    /// What the kernel or the driver says, in bytes.
    pub total: i64,
}

impl Table {
    /// The tables of all spaces of which somebody else tells something: host memory and each device.
    pub fn all(snapshot: &Snapshot, sample: &Sample, baseline: &Baseline) -> Vec<Table> {
        let mut tables = Vec::new();
        if let Some(process) = &sample.process {
            let base = baseline.host + signed(process.file_bytes);
            let total = signed(process.resident_bytes);
            tables.push(Self::new(Space::HOST, "kernel (VmRSS)", snapshot, base, Some(slack(sample)), total));
        }
        for device in &sample.devices {
            let space = Space::device(device.device);
            let base =
                baseline.devices.iter().find(|(number, _)| *number == device.device).map_or(0, |(_, base)| *base);
            let (source, total) = match device.own_bytes {
                Some(own) => ("driver, of this process", own),
                None => ("driver, of all processes", device.used_bytes()),
            };
            tables.push(Self::new(space, source, snapshot, base, None, signed(total)));
        }
        tables
    }

    fn new(
        space: Space,
        source: &'static str,
        snapshot: &Snapshot,
        base: i64,
        slack: Option<i64>,
        total: i64,
    ) -> Table {
        let held = held_in(snapshot, space);
        let mut rows: Vec<(Part, i64)> = held.into_iter().map(|(class, bytes)| (Part::Held(class), bytes)).collect();
        rows.push((Part::Baseline, base));
        rows.extend(slack.map(|slack| (Part::Slack, slack)));
        let known: i64 = rows.iter().map(|(_, bytes)| *bytes).sum();
        rows.push((Part::Unaccounted, total - known));
        Table { space: space.key().to_string(), source, rows, total }
    }

    /// The bytes of a part; zero if it has no row.
    pub fn part(&self, part: &Part) -> i64 {
        self.rows.iter().find(|(other, _)| other == part).map_or(0, |(_, bytes)| *bytes)
    }

    /// What nobody accounts for.
    pub fn unaccounted(&self) -> i64 {
        self.part(&Part::Unaccounted)
    }

    /// What the ledger holds.
    pub fn held(&self) -> i64 {
        self.rows.iter().filter(|(part, _)| matches!(part, Part::Held(_))).map(|(_, bytes)| *bytes).sum()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (part, bytes) in &self.rows {
            writeln!(f, "{part:<24} {:>14}", in_words(*bytes))?;
        }
        write!(f, "{:<24} {:>14}", format!("= {}", self.source), in_words(self.total))
    }
}

fn in_words(bytes: i64) -> String {
    let size = Bytes(bytes.unsigned_abs()).to_string();
    if bytes < 0 { format!("-{size}") } else { size }
}

/// What the ledger holds in a space, by class. What is pinned is host memory.
fn held_in(snapshot: &Snapshot, space: Space) -> Vec<(String, i64)> {
    let counts = |other: Space| other == space || (space == Space::HOST && other == Space::PINNED);
    let classes = snapshot.classes.iter().filter(|usage| counts(usage.class.space()) && usage.totals.held > 0);
    classes.map(|usage| (usage.class.name().to_owned(), signed(usage.totals.held))).collect()
}

/// What the allocator keeps, resident: exactly with jemalloc, at most that with glibc, nothing that is known with others.
fn slack(sample: &Sample) -> i64 {
    let Some(allocator) = &sample.allocator else { return 0 };
    let AllocatorMemory { allocated_bytes, resident_bytes, free_bytes, .. } = allocator;
    match (resident_bytes, free_bytes) {
        (Some(resident), _) => signed(resident.saturating_sub(*allocated_bytes)),
        (None, Some(free)) => {
            let unfiled = sample.process.map_or(0, |process| process.unfiled_bytes());
            signed((*free).min(unfiled.saturating_sub(*allocated_bytes)))
        }
        (None, None) => 0,
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
