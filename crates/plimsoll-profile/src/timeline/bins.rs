//! Time in at most [`BINS_MAX`] pieces of equal length, and series over them.
//!
//! [`Axis::reach`] is told of each event's time; when it answers that pieces were joined, every series is told to
//! `fold`, once for each time that the pieces' length doubled. A series is filled up to a piece only when
//! something in it changes or at the end, so what does not change costs nothing.

use super::BINS_MAX;

/// Where pieces of time begin.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    begin: u64,
    width: u64,
}

impl Axis {
    pub(super) fn new(begin: u64) -> Axis {
        Axis { begin, width: 1000 }
    }

    /// Makes pieces long enough for `time`; how often their length was doubled.
    pub(super) fn reach(&mut self, time: u64) -> u32 {
        let mut doubled = 0;
        while time.saturating_sub(self.begin) / self.width >= BINS_MAX as u64 {
            self.width *= 2;
            doubled += 1;
        }
        doubled
    }

    pub(super) fn width(&self) -> u64 {
        self.width
    }

    pub(super) fn bin(&self, time: u64) -> usize {
        (time.saturating_sub(self.begin) / self.width) as usize
    }

    fn start(&self, bin: usize) -> u64 {
        self.begin.saturating_add((bin as u64).saturating_mul(self.width))
    }
}

/// Joins pieces in pairs.
fn pairs<T: Clone>(bins: &mut Vec<T>, join: impl Fn(&T, &T) -> T) {
    let joined = bins.chunks(2).map(|pair| if let [a, b] = pair { join(a, b) } else { pair[0].clone() }).collect();
    *bins = joined;
}

/// The highest value of each piece, of something that keeps its value until it changes. What it is for no time at all (asked and
/// granted at once) does not count.
#[derive(Clone, Debug, Default)]
pub(super) struct High {
    bins: Vec<u64>,
    now: u64,
    since: Option<u64>,
    peak: u64,
}

impl High {
    pub(super) fn fold(&mut self) {
        pairs(&mut self.bins, |a, b| *a.max(b));
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn set(&mut self, axis: &Axis, time: u64, value: u64) {
        self.was_until(axis, time);
        (self.now, self.since) = (value, Some(time));
    }

    fn was_until(&mut self, axis: &Axis, time: u64) {
        let since = self.since.unwrap_or(axis.begin);
        let (from, to) = (axis.bin(since), axis.bin(time));
        self.bins.resize(self.bins.len().max(to + 1), 0);
        if time > since {
            self.bins[from..=to].iter_mut().for_each(|high| *high = self.now.max(*high));
            self.peak = self.peak.max(self.now);
        }
    }

    pub(super) fn finish(mut self, axis: &Axis, end: u64) -> (Vec<u64>, u64) {
        self.was_until(axis, end);
        (self.bins, self.peak)
    }
}

/// The last value of each piece, where one is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Last {
    bins: Vec<Option<u64>>,
    now: Option<u64>,
}

impl Last {
    pub(super) fn fold(&mut self) {
        pairs(&mut self.bins, |_, b| *b);
    }

    pub(super) fn set(&mut self, bin: usize, value: u64) {
        self.fill(bin);
        self.bins[bin] = Some(value);
        self.now = Some(value);
    }

    fn fill(&mut self, bin: usize) {
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, self.now);
        }
    }

    pub(super) fn finish(mut self, bin: usize) -> Vec<Option<u64>> {
        self.fill(bin);
        self.bins
    }
}

/// The highest value of each piece, of something that is measured now and then.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampled {
    bins: Vec<Option<u64>>,
    pub(super) peak: u64,
    pub(super) last: u64,
}

impl Sampled {
    pub(super) fn fold(&mut self) {
        pairs(&mut self.bins, |a, b| *a.max(b));
    }

    pub(super) fn add(&mut self, bin: usize, value: u64) {
        self.bins.resize(self.bins.len().max(bin + 1), None);
        self.bins[bin] = self.bins[bin].max(Some(value));
        (self.last, self.peak) = (value, self.peak.max(value));
    }

    pub(super) fn finish(mut self, bin: usize) -> Vec<Option<u64>> {
        self.bins.resize(bin + 1, None);
        self.bins
    }
}

/// How often something happened in each piece.
#[derive(Clone, Debug, Default)]
pub(super) struct Count(Vec<u64>);

impl Count {
    pub(super) fn fold(&mut self) {
        pairs(&mut self.0, |a, b| a + b);
    }

    pub(super) fn add(&mut self, bin: usize) {
        self.0.resize(self.0.len().max(bin + 1), 0);
        self.0[bin] += 1;
    }

    pub(super) fn finish(mut self, bin: usize) -> Vec<u64> {
        self.0.resize(bin + 1, 0);
        self.0
    }
}

/// The time integral in each piece, of something that keeps its value until it changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Mean {
    /// Value times nanoseconds.
    bins: Vec<f64>,
    now: u64,
    since: u64,
    pub(super) peak: u64,
}

impl Mean {
    pub(super) fn new(begin: u64) -> Mean {
        Mean { since: begin, ..Mean::default() }
    }

    pub(super) fn fold(&mut self) {
        pairs(&mut self.bins, |a, b| a + b);
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn set(&mut self, axis: &Axis, time: u64, value: u64) {
        self.integrate(axis, time);
        (self.now, self.peak) = (value, self.peak.max(value));
    }

    fn integrate(&mut self, axis: &Axis, time: u64) {
        let last = axis.bin(time);
        self.bins.resize(self.bins.len().max(last + 1), 0.0);
        if self.now > 0 {
            for bin in axis.bin(self.since)..=last {
                let from = self.since.max(axis.start(bin));
                let to = time.min(axis.start(bin + 1));
                self.bins[bin] += self.now as f64 * (to - from) as f64;
            }
        }
        self.since = time;
    }

    /// The mean of each piece and of all. The last piece is as long as the time in it.
    pub(super) fn finish(mut self, axis: &Axis, end: u64) -> (Vec<f64>, f64) {
        self.integrate(axis, end);
        let all = self.bins.iter().sum::<f64>() / (end - axis.begin).max(1) as f64;
        let length = |bin: usize| (end.min(axis.start(bin + 1)) - axis.start(bin)).max(1) as f64;
        (self.bins.iter().enumerate().map(|(bin, integral)| integral / length(bin)).collect(), all)
    }
}

/// The bytes of a space by class. Each piece keeps the moment at which most was held.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack {
    bins: Vec<Moment>,
    /// Now.
    now: Moment,
}

#[derive(Clone, Debug, Default)]
struct Moment {
    total: u64,
    /// By the class's index in the space; classes that came later are not there yet.
    classes: Vec<u64>,
}

impl Stack {
    pub(super) fn fold(&mut self) {
        pairs(&mut self.bins, |a, b| if b.total > a.total { b.clone() } else { a.clone() });
    }

    pub(super) fn total(&self) -> u64 {
        self.now.total
    }

    pub(super) fn of(&self, class: usize) -> u64 {
        self.now.classes.get(class).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, bin: usize, class: usize, value: u64) {
        self.fill(bin);
        let classes = &mut self.now.classes;
        classes.resize(classes.len().max(class + 1), 0);
        let before = std::mem::replace(&mut classes[class], value);
        // The sum of a hostile trace may be more than there are numbers for.
        self.now.total = self.now.total.saturating_sub(before).saturating_add(value);
        if self.now.total > self.bins[bin].total {
            self.bins[bin].clone_from(&self.now);
        }
    }

    fn fill(&mut self, bin: usize) {
        while self.bins.len() <= bin {
            self.bins.push(self.now.clone());
        }
    }

    /// The totals, and those of each class.
    pub(super) fn finish(mut self, bin: usize, classes: usize) -> (Vec<u64>, Vec<Vec<u64>>) {
        self.fill(bin);
        let of = |class| self.bins.iter().map(|bin| bin.classes.get(class).copied().unwrap_or(0)).collect();
        (self.bins.iter().map(|bin| bin.total).collect(), (0..classes).map(of).collect())
    }
}
