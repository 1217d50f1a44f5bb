//! The snapshot at a high-water mark: who held what when most was held.

use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::{Bytes, Resource, Space};
use serde::{Deserialize, Serialize};

use crate::plain::plain;
use crate::sample::Sample;

/// What was so when most was resident, or held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mark {
    /// Nanoseconds since the ledger was made.
    pub time_ns: u64,
    /// What was resident.
    pub resident_bytes: u64,
    /// What the ledger held of host memory.
    pub held_bytes: u64,
    /// The ledger's limit on it.
    pub limit_bytes: Option<u64>,
    /// The most that the process was to hold.
    pub line_bytes: Option<u64>,
    /// What the machine, or the control group, had left.
    pub left_bytes: Option<u64>,
    /// Bytes by class and space, the largest first.
    pub classes: Vec<(String, String, u64)>,
    /// Who held most, the largest first.
    pub holders: Vec<MarkHolder>,
    /// Requests that waited, in words.
    pub waiters: Vec<String>,
}

/// Somebody who held something at a high-water mark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MarkHolder {
    /// The name.
    pub who: String,
    /// The stage that it was in, or waited to enter.
    pub stage: Option<String>,
    /// What it held.
    pub bytes: u64,
    /// When it was last granted something.
    pub since_ns: u64,
    /// Where in the source it asked.
    pub at: Option<String>,
}

impl Mark {
    /// Takes it.
    pub(super) fn of(sample: &Sample, snapshot: &Snapshot) -> Self {
        let host = snapshot.space(Space::HOST);
        let mut classes: Vec<_> = snapshot
            .classes
            .iter()
            .filter(|usage| usage.totals.held > 0)
            .map(|usage| (usage.class.name().to_owned(), usage.class.space().key().to_string(), usage.totals.held))
            .collect();
        classes.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
        let mut holders: Vec<_> = snapshot
            .holders
            .iter()
            .map(|holder| MarkHolder {
                who: holder.who.to_string(),
                stage: holder.stage.map(str::to_owned),
                bytes: holder
                    .held
                    .iter()
                    .filter(|(resource, _)| matches!(resource, Resource::Class(_)))
                    .map(|(_, bytes)| bytes)
                    .sum(),
                since_ns: holder.since,
                at: holder.reserved_at.map(ToString::to_string),
            })
            .collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        Self {
            time_ns: sample.time,
            resident_bytes: sample.process.map_or(0, |process| process.resident_bytes),
            held_bytes: host.map_or(0, |usage| usage.held.0),
            limit_bytes: host.map(|usage| usage.limit.0),
            line_bytes: sample.line,
            left_bytes: sample.left_bytes(),
            classes,
            holders,
            waiters: snapshot.waiters.iter().map(|waiter| waiter.shortage.to_string()).collect(),
        }
    }

    /// As JSON of at most so many bytes: the smallest holders are left out first, then waiters.
    pub(super) fn fitting(&self, bytes: usize) -> String {
        let mut mark = self.clone();
        loop {
            let text = serde_json::to_string(&mark).unwrap_or_default();
            if text.len() <= bytes {
                return text;
            }
            if mark.holders.len() > 4 {
                mark.holders.truncate(mark.holders.len() / 2);
            } else if !mark.waiters.is_empty() {
                mark.waiters.truncate(mark.waiters.len() / 2);
            } else {
                (mark.holders, mark.classes) = (Vec::new(), Vec::new());
            }
        }
    }

    /// In words: what was held, by whom, and what was left.
    pub fn in_words(&self) -> String {
        let mut text = format!("{} resident, {} held", Bytes(self.resident_bytes), Bytes(self.held_bytes));
        if let Some(line) = self.line_bytes {
            text.push_str(&format!(", under a line of {}", Bytes(line)));
        }
        if let Some(left) = self.left_bytes {
            text.push_str(&format!("; {} were left to be had", Bytes(left)));
        }
        for (class, space, bytes) in self.classes.iter().take(8) {
            text.push_str(&format!("\n  {:<20} {:<8} {}", plain(class), plain(space), Bytes(*bytes)));
        }
        for holder in self.holders.iter().take(8) {
            let stage = holder.stage.as_ref().map_or(String::new(), |stage| format!(" in {stage:?}"));
            let place = holder.at.as_ref().map_or(String::new(), |at| format!(", asked for at {}", plain(at)));
            text.push_str(&format!("\n  {:?}{stage} held {}{place}", holder.who, Bytes(holder.bytes)));
        }
        for waiter in self.waiters.iter().take(4) {
            text.push_str(&format!("\n  waited: {}", plain(waiter)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_commands_to_a_terminal() {
        let odd = || "\u{1b}]0;x".to_owned();
        let holder = MarkHolder { who: odd(), stage: Some(odd()), at: Some(odd()), ..MarkHolder::default() };
        let mark =
            Mark { classes: vec![(odd(), odd(), 1)], holders: vec![holder], waiters: vec![odd()], ..Mark::default() };
        assert!(!mark.in_words().contains('\u{1b}'), "{}", mark.in_words());
    }
}
