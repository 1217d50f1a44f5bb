//! The alarm on drift: what is unaccounted for stays beyond a threshold for a whole window.
//!
//! Memory is promised before it is touched, and given back before its promise: so what is unaccounted for swings, and what it
//! is at one moment means little. Above: it must be beyond the threshold in the whole window. Below: what was promised within
//! the window may still be touched, so that much is set aside; what is older and still not resident will never be.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use plimsoll::Bytes;
use plimsoll::ledger::snapshot::Snapshot;

use super::Table;

/// Watches one space.
#[derive(Clone, Debug)]
pub struct Drift {
    window: Duration,
    threshold: i64,
    /// Time, unaccounted, and all bytes that ever were granted in this space.
    seen: VecDeque<(u64, i64, u64)>,
    alarm: Option<Alarm>,
}

/// Ledger and kernel differ for longer than the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// So much is resident that nobody accounts for.
    Beyond(Bytes),
    /// So much is held in the ledger that is not there, and was not promised lately.
    NotThere(Bytes),
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alarm::Beyond(bytes) => write!(f, "{bytes} are resident that neither ledger nor allocator account for"),
            Alarm::NotThere(bytes) => {
                write!(
                    f,
                    "{bytes} are held in the ledger and not resident: charges that outlive their memory, or are too large"
                )
            }
        }
    }
}

impl Drift {
    /// The default window.
    pub const WINDOW: Duration = Duration::from_secs(10);

    /// Watches with a window and a threshold.
    pub fn new(window: Duration, threshold: Bytes) -> Self {
        Self { window, threshold: super::signed(threshold.0), seen: VecDeque::new(), alarm: None }
    }

    /// Takes a table, and the picture that it was made from. An alarm comes once, and again only after all was well.
    pub fn push(&mut self, table: &Table, snapshot: &Snapshot) -> Option<Alarm> {
        // What is pinned is host memory too; what goes on in other spaces is nothing to this one.
        let here = |space: plimsoll::Space| {
            let key = space.key().to_string();
            key == table.space || table.space == "host" && space == plimsoll::Space::PINNED
        };
        let of_space = snapshot.classes.iter().filter(|usage| here(usage.class.space()));
        let granted = of_space.map(|usage| usage.totals.bytes_in).fold(0, u64::wrapping_add);
        self.look(snapshot.time, table.unaccounted(), granted)
    }

    /// How they differ now, if they do.
    pub fn standing(&self) -> Option<Alarm> {
        self.alarm
    }

    fn look(&mut self, time: u64, unaccounted: i64, granted: u64) -> Option<Alarm> {
        self.seen.push_back((time, unaccounted, granted));
        let window = u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX);
        // One that is older than the window stays, so that the window is full.
        while self.seen.get(1).is_some_and(|(second, ..)| time.saturating_sub(*second) >= window) {
            self.seen.pop_front();
        }
        let (oldest, _, before) = *self.seen.front()?;
        if time.saturating_sub(oldest) < window {
            return None;
        }
        let least = self.seen.iter().map(|(_, unaccounted, _)| *unaccounted).min()?;
        let most = self.seen.iter().map(|(_, unaccounted, _)| *unaccounted).max()?;
        let young = super::signed(granted.wrapping_sub(before));
        let alarm = if least > self.threshold {
            Some(Alarm::Beyond(Bytes(least.unsigned_abs())))
        } else if most.saturating_add(young) < -self.threshold {
            Some(Alarm::NotThere(Bytes(most.saturating_add(young).unsigned_abs())))
        } else {
            None
        };
        let new = alarm.filter(|_| self.alarm.is_none());
        self.alarm = alarm;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    /// Looks once a second at what `at` says; the alarm and when it came.
    fn watch(seconds: u64, at: impl Fn(u64) -> (i64, u64)) -> Option<(u64, Alarm)> {
        let mut drift = Drift::new(Duration::from_secs(10), Bytes(64 << 20));
        let look = |second: u64| {
            let (unaccounted, granted) = at(second);
            drift.look(second * 1_000_000_000, unaccounted * MIB, granted << 20).map(|alarm| (second, alarm))
        };
        (0..seconds).find_map(look)
    }

    #[test]
    fn what_stays_beyond_is_told_after_the_window() {
        let alarm = watch(60, |second| (if second < 20 { 3 } else { 100 + second as i64 }, 0));
        assert_eq!(alarm, Some((30, Alarm::Beyond(Bytes(120 << 20)))));
    }

    #[test]
    fn what_swings_is_not_told() {
        assert_eq!(watch(200, |second| (if second % 9 == 0 { 0 } else { 500 }, 0)), None);
        assert_eq!(watch(200, |_| (60, 0)), None, "below the threshold");
    }

    #[test]
    fn memory_that_is_still_being_touched_is_not_told() {
        // A gigabyte is promised at 20 s and touched until 29 s.
        let touched = |second: u64| -1024 + (second.clamp(20, 29) as i64 - 20) * 1024 / 9;
        assert_eq!(watch(60, |s| if s < 20 { (0, 0) } else { (touched(s), 1024) }), None);
        // Job after job is promised 200 MiB a second, of which 800 are not touched yet at any time.
        assert_eq!(watch(200, |second| (-800, second * 200)), None);
    }

    #[test]
    fn what_was_promised_long_ago_and_is_not_there_is_told() {
        let alarm = watch(60, |second| if second < 20 { (0, 0) } else { (-1024, 1024) });
        assert_eq!(alarm, Some((30, Alarm::NotThere(Bytes(1024 << 20)))));
    }

    /// What goes to and fro in another space hides nothing in this one.
    #[test]
    fn grants_of_other_spaces_are_not_set_aside() {
        use plimsoll::{Class, Ledger, Space};
        const HOST: Class = Class::new("a", Space::HOST);
        const CARD: Class = Class::new("b", Space::device(0));
        let ledger = Ledger::unlimited();
        let _stuck = ledger.reserve(HOST, Bytes(1 << 30)).try_now().unwrap();
        let mut drift = Drift::new(Duration::from_nanos(1), Bytes(64 << 20));
        let mut look = || {
            let snapshot = ledger.snapshot();
            let sample = crate::sample::Sample { process: Some(Default::default()), ..Default::default() };
            let tables = Table::all(&snapshot, &sample, &super::super::Baseline::default());
            drift.push(&tables[0], &snapshot)
        };
        assert_eq!(look(), None, "the window is not full");
        drop(ledger.reserve(CARD, Bytes(1 << 40)).try_now().unwrap());
        assert!(matches!(look(), Some(Alarm::NotThere(_))));
    }

    #[test]
    fn an_alarm_comes_once() {
        let mut drift = Drift::new(Duration::from_secs(1), Bytes(1));
        let alarms: Vec<u64> = (0..20)
            .filter(|second| {
                drift.look(second * 1_000_000_000, if (8..12).contains(second) { 0 } else { 5 }, 0).is_some()
            })
            .collect();
        assert_eq!(alarms, [1, 13]);
    }
}
