//! Virtual time that does not pass equally fast for all: stages that compete for memory bandwidth.
//!
//! What slows down with what runs beside it is given a *clock* whose work passes at a rate that depends on how much runs. All
//! stages of one sensitivity share a clock, and on it each has a fixed end: when the rate changes nothing needs to be sorted
//! again. The clock of what never slows down passes with virtual time itself.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens when a time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The stage of this job ends.
    StageEnd(u32),
    /// A proof of this stream arrives.
    Arrival(u32),
    /// This residency is loaded.
    Loaded(u32),
    /// The policy wants to be called.
    Wake,
    /// This job asks again.
    Again(u32),
    /// This limit is set.
    Resize(u32),
    /// This device is lost.
    Lose(u16),
    /// A piece of what a stage grows by is there, for the timeline.
    Grown(u32),
}

/// One rate for all that is on it.
#[derive(Clone, Debug)]
struct Clock {
    /// How much slower it is for each stage beside: in 2^-20.
    slope: u64,
    /// Nanoseconds of virtual time for one of work, in 2^-20.
    factor: u64,
    work: u64,
    /// Virtual time up to which `work` is.
    at: u64,
    /// The rest of a division, so that no work is lost however often the rate changes.
    rest: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Due)>>,
    /// What grows: Σ bytes per work, and Σ bytes per work × the work at which each began; in 2^-16.
    growth: i128,
    begun: i128,
}

const ONE: u64 = 1 << 20;

/// Four thousand million times slower is as good as for ever.
const FACTOR_MAX: u128 = 1 << 52;

impl Clock {
    fn advance(&mut self, now: u64) {
        let passed = (u128::from(now - self.at) << 20) + u128::from(self.rest);
        self.work += (passed / u128::from(self.factor)) as u64;
        self.rest = (passed % u128::from(self.factor)) as u64;
        self.at = now;
    }

    /// When the first on it is due, in virtual time.
    fn next(&self) -> Option<(u64, u64)> {
        let Reverse((end, sequence, _)) = self.heap.peek()?;
        if self.factor == ONE {
            return Some((self.at.saturating_add(end.saturating_sub(self.work)), *sequence));
        }
        let left = u128::from(end.saturating_sub(self.work)) * u128::from(self.factor);
        let left = left.saturating_sub(u128::from(self.rest)).div_ceil(u128::from(ONE));
        let time = u64::try_from(u128::from(self.at) + left).unwrap_or(u64::MAX);
        Some((time, *sequence))
    }

    fn grown(&self) -> i128 {
        (i128::from(self.work) * self.growth - self.begun) >> 16
    }
}

/// All clocks, the first of which is virtual time.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    clocks: Vec<Clock>,
    sequence: u64,
    /// How much runs, in millionths of a stage.
    pressure: u64,
}

/// What grows while a stage runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Growing {
    pub(super) clock: usize,
    rate: i128,
    from: i128,
}

impl Clocks {
    /// A clock for virtual time, and one for each of these sensitivities (billionths of its time that a stage loses by each
    /// one beside it).
    pub(super) fn new(slopes_ppb: &[u64]) -> Clocks {
        let clock = |slope_ppb: &u64| Clock {
            slope: ((u128::from(*slope_ppb) << 20) / 1_000_000_000) as u64,
            factor: ONE,
            work: 0,
            at: 0,
            rest: 0,
            heap: BinaryHeap::new(),
            growth: 0,
            begun: 0,
        };
        Clocks { clocks: std::iter::once(&0).chain(slopes_ppb).map(clock).collect(), sequence: 0, pressure: 0 }
    }

    /// A number that rises, to tell equal times apart.
    pub(super) fn ticket(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Lets `due` come in so many nanoseconds of this clock's work.
    pub(super) fn set(&mut self, clock: usize, now: u64, work: u64, due: Due) {
        let sequence = self.ticket();
        let clock = &mut self.clocks[clock];
        clock.advance(now);
        clock.heap.push(Reverse((clock.work.saturating_add(work), sequence, due)));
    }

    /// When the next thing is due.
    pub(super) fn next(&self) -> Option<(u64, usize)> {
        let each = self.clocks.iter().enumerate().filter_map(|(at, clock)| clock.next().map(|next| (next, at)));
        each.min().map(|((time, _), at)| (time, at))
    }

    /// Takes what is due next, which `next` has told.
    pub(super) fn pop(&mut self, clock: usize, now: u64) -> Due {
        let clock = &mut self.clocks[clock];
        clock.advance(now);
        let Reverse((end, _, due)) = clock.heap.pop().expect("it was the next");
        // Rounding may leave the work a nanosecond short of the end.
        if clock.work < end {
            (clock.work, clock.rest) = (end, 0);
        }
        due
    }

    /// More or less runs from now on.
    pub(super) fn press(&mut self, now: u64, more: i64) {
        if more == 0 {
            return;
        }
        self.pressure = self.pressure.checked_add_signed(more).expect("what ends has begun");
        let others = self.pressure.saturating_sub(1_000_000);
        for clock in &mut self.clocks[1..] {
            clock.advance(now);
            let slower = u128::from(clock.slope) * u128::from(others) / 1_000_000;
            clock.factor = ONE + slower.min(FACTOR_MAX) as u64;
            clock.rest = 0;
        }
    }

    /// Bytes begin to grow, to be all there after so much work on a clock.
    pub(super) fn grow(&mut self, clock: usize, now: u64, bytes: u64, work: u64) -> Growing {
        let at = &mut self.clocks[clock];
        at.advance(now);
        // What is over in less than a microsecond grows later than it does; and rate times time stays far below 2^127.
        let rate = (i128::from(bytes) << 16) / i128::from(work.max(1 << 9));
        let growing = Growing { clock, rate, from: rate * i128::from(at.work) };
        at.growth += growing.rate;
        at.begun += growing.from;
        growing
    }

    /// They are all there, and counted elsewhere.
    pub(super) fn grown(&mut self, growing: Growing) {
        let clock = &mut self.clocks[growing.clock];
        clock.growth -= growing.rate;
        clock.begun -= growing.from;
    }

    /// How much of what grows is there now.
    pub(super) fn growing_bytes(&mut self, now: u64) -> u64 {
        let mut sum = 0;
        for clock in &mut self.clocks {
            if clock.growth != 0 {
                clock.advance(now);
                sum += clock.grown();
            }
        }
        u64::try_from(sum).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_beside_each_other_slow_each_other_down() {
        // Each other one costs a tenth.
        let mut clocks = Clocks::new(&[100_000_000]);
        clocks.press(0, 1_000_000);
        clocks.set(1, 0, 1000, Due::StageEnd(0));
        assert_eq!(clocks.next(), Some((1000, 1)));
        // A second one comes in the middle, and makes the rest a tenth slower.
        clocks.press(500, 1_000_000);
        clocks.set(1, 500, 1000, Due::StageEnd(1));
        assert_eq!(clocks.next(), Some((1050, 1)));
        assert_eq!(clocks.pop(1, 1050), Due::StageEnd(0));
        clocks.press(1050, -1_000_000);
        // It has done 500 of 1000 by now, and is alone again.
        let (end, _) = clocks.next().expect("one is left");
        assert!((1549..=1551).contains(&end), "{end}");
        assert_eq!(clocks.pop(1, end), Due::StageEnd(1));
    }

    #[test]
    fn what_grows_is_there_in_proportion() {
        let mut clocks = Clocks::new(&[]);
        let growing = clocks.grow(0, 100, 1 << 30, 1000);
        assert_eq!(clocks.growing_bytes(100), 0);
        assert!(clocks.growing_bytes(600).abs_diff(1 << 29) < 1 << 20);
        clocks.grown(growing);
        assert_eq!(clocks.growing_bytes(1100), 0);
    }
}
