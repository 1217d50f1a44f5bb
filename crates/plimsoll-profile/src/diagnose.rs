//! "Something is leaking somewhere": one verdict with its evidence and the next step, from the time series of a run.
//!
//! [`Books`] turns events and samples into a [`Series`], live or from a trace; [`diagnose`] is a pure function of it. What each
//! verdict means, on what it rests and where its thresholds lie is told in `docs/diagnosis.md`.
//!
//! # How
//!
//! Every cause leaves a trace in one of four quantities, all in bytes:
//!
//! | | |
//! |---|---|
//! | *held* | what the ledger counts |
//! | *live* | what the program really has: resident, less what the allocator keeps for itself |
//! | *unaccounted* | live − held |
//! | *resting* | the part of held with which nothing is done: between stages, after a job's end, in free-standing reservations |
//!
//! Each cause looks at its own and answers with a finding or none. Growth is a slope of Theil and Sen for each
//! completed job, with an interval, after a warm-up or in the last part of the run by itself, and it must not slow down; a level must
//! stand for the larger part of the run. Of several findings the one that explains most is the verdict; the others are told beside it.

pub mod books;
mod causes;
mod fit;
mod growth;
mod levels;
pub mod statistics;
mod unfinished;

use std::fmt;

use plimsoll::Bytes;
use serde::Serialize;

pub use books::{Books, Moment, Rest, RestKind, Series};

/// What is the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing.
    Healthy,
    /// The peak follows the concurrency, without a trend, up to the limit: it is the limit that is low.
    Ceiling,
    /// What is produced and not yet consumed grows.
    Backlog,
    /// Memory that the ledger does not count grows: with each job, or as time goes by.
    Leak,
    /// Charges that nobody returns.
    StuckCharge,
    /// The allocator keeps pages that are free.
    AllocatorRetention,
    /// Pages stay because a little of each is in use.
    Fragmentation,
    /// Jobs hold more than they declare.
    Uncounted,
    /// Another process takes the memory.
    Neighbour,
    /// Memory of a device that the ledger does not count grows.
    CardLeak,
    /// The run did not come to its end, and nothing else explains it.
    Unfinished,
    /// Too little was seen to say.
    Unknown,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 12] = [
        Verdict::Healthy,
        Verdict::Ceiling,
        Verdict::Backlog,
        Verdict::Leak,
        Verdict::StuckCharge,
        Verdict::AllocatorRetention,
        Verdict::Fragmentation,
        Verdict::Uncounted,
        Verdict::Neighbour,
        Verdict::CardLeak,
        Verdict::Unfinished,
        Verdict::Unknown,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Healthy => "healthy",
            Verdict::Ceiling => "ceiling",
            Verdict::Backlog => "backlog",
            Verdict::Leak => "leak",
            Verdict::StuckCharge => "stuck charge",
            Verdict::AllocatorRetention => "allocator retention",
            Verdict::Fragmentation => "fragmentation",
            Verdict::Uncounted => "uncounted",
            Verdict::Neighbour => "neighbour",
            Verdict::CardLeak => "card leak",
            Verdict::Unfinished => "unfinished",
            Verdict::Unknown => "not enough seen",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How fast something grows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Bytes for each of `per`.
    pub bytes: f64,
    /// The lower end of the interval at 99 %.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// `job`, `reservation` or `second`.
    pub per: &'static str,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rate { bytes, low, high, per } = self;
        write!(f, "{} a {per} (99 %: {} to {})", signed(*bytes), signed(*low), signed(*high))
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What.
    pub verdict: Verdict,
    /// How many bytes it explains.
    pub bytes: u64,
    /// How fast it grows, if it does.
    pub rate: Option<Rate>,
    /// In one sentence.
    pub headline: String,
    /// What it rests on, a sentence each.
    pub evidence: Vec<String>,
    /// What to do now.
    pub next_step: String,
}

/// The verdict on a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// What is the matter, on what that rests, and what to do.
    #[serde(flatten)]
    pub finding: Finding,
    /// What else was found, in falling weight.
    pub also: Vec<Finding>,
}

impl Diagnosis {
    /// What is the matter.
    pub fn verdict(&self) -> Verdict {
        self.finding.verdict
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { verdict, headline, evidence, next_step, .. } = &self.finding;
        writeln!(f, "{verdict}: {headline}")?;
        for line in evidence {
            writeln!(f, "  - {line}")?;
        }
        for other in &self.also {
            writeln!(f, "  - also {}: {}", other.verdict, other.headline)?;
        }
        write!(f, "Next: {next_step}")
    }
}

/// The verdict on a run: a pure function of what was seen.
pub fn diagnose(series: &Series) -> Diagnosis {
    let view = View::of(series);
    let mut findings = causes::all(&view);
    findings.extend(unfinished::find(series));
    // What grows will end the run, what stands costs, and a ceiling is what remains when nothing is wrong; among equals the
    // one that explains most. Pages that an allocator keeps are none of the ledger's bytes: where nothing sets the process's line,
    // they keep nobody waiting for them.
    let lined = series.moments.iter().any(|moment| moment.sample.line.is_some());
    findings.sort_by_key(|finding| {
        let rank = match finding.verdict {
            Verdict::Leak | Verdict::Backlog | Verdict::StuckCharge | Verdict::CardLeak => 0,
            Verdict::Neighbour | Verdict::Unfinished => 1,
            Verdict::AllocatorRetention if !lined => 4,
            Verdict::Uncounted | Verdict::AllocatorRetention | Verdict::Fragmentation => 2,
            Verdict::Ceiling => 3,
            Verdict::Healthy | Verdict::Unknown => 5,
        };
        (rank, std::cmp::Reverse(finding.bytes))
    });
    let mut findings = findings.into_iter();
    let finding = findings.next().unwrap_or_else(|| causes::healthy(&view));
    Diagnosis { finding, also: findings.collect() }
}

/// What the causes look at.
pub(crate) struct View<'s> {
    pub(crate) series: &'s Series,
    /// What growth is counted by.
    pub(crate) per: &'static str,
    /// The measure of growth at each moment: jobs, reservations or seconds.
    pub(crate) x: Vec<f64>,
    /// What is usually resident or held, in bytes: what is small is small beside it.
    pub(crate) scale: f64,
    /// What is not counted, taken apart: what the allocator has handed out, or, where it does not tell, what is in memory.
    fit: Option<fit::Fit>,
    measure: fn(&Moment) -> f64,
}

/// Fewer of them are no measure of growth.
const DONE_MIN: u64 = 8;
/// The quantile of neighbours that sets memory aside that is promised and not touched yet.
pub(crate) const UNTOUCHED_ASIDE: f64 = 0.9;
/// Levels below this many bytes are those of any small program.
const LEVEL_MIN: f64 = 3e6;
/// Where nothing is in flight at more of the moments than this, what grows then is looked at by itself.
const IDLE: f64 = 1.0 / 3.0;
/// Moments before this part of the run are warm-up.
const WARM_UP: f64 = 0.25;

impl<'s> View<'s> {
    fn of(series: &'s Series) -> Self {
        let moments = &series.moments;
        let done = |count: fn(&Moment) -> u64| {
            moments.last().map_or(0, count).saturating_sub(moments.first().map_or(0, count)) >= DONE_MIN
        };
        let (per, measure): (_, fn(&Moment) -> f64) = if done(|m| m.jobs_done) {
            ("job", |m| m.jobs_done as f64)
        } else if done(|m| m.reservations_done) {
            ("reservation", |m| m.reservations_done as f64)
        } else {
            ("second", |m| m.time as f64 / 1e9)
        };
        let truth = |m: &Moment| truth(m).unwrap_or(0.0).max(m.held as f64);
        let scale = statistics::quantile(moments.iter().map(truth), 0.75);
        let mut view = Self { series, per, x: moments.iter().map(measure).collect(), scale, fit: None, measure };
        view.fit = view.fit_of(handed_out, true).or_else(|| view.fit_of(uncounted_bytes, false));
        view
    }

    /// Takes apart what is not counted; `sharp` where that is known when it is taken, not only when it is touched.
    fn fit_of(&self, of: fn(&Moment) -> Option<f64>, sharp: bool) -> Option<fit::Fit> {
        // What is there before the first job and after the last one does not count: tables that are filled by the first jobs and go with
        // the program would look as if they came and went with jobs.
        let steady = self.steady().iter();
        let points: Vec<_> = steady.filter_map(|m| Some(((self.measure)(m), m, of(m)?))).collect();
        fit::Fit::of(&points, sharp)
    }

    /// What is in use and not counted, without what jobs in flight hold beyond their word.
    pub(crate) fn left_over(&self) -> impl Fn(&Moment) -> Option<f64> + use<> {
        let excesses = self.fit.as_ref().map(levels::excesses).unwrap_or_default();
        move |m| {
            let of = |excess: &fit::Excess| excess.each * fit::count(m, &(excess.stage.clone(), excess.behind)).0;
            Some(uncounted_bytes(m)? - excesses.iter().map(of).sum::<f64>())
        }
    }

    /// The growth of a quantity, over what growth is counted by.
    pub(crate) fn trend(&self, y: impl Fn(&Moment) -> Option<f64>) -> Option<statistics::Trend> {
        self.trend_of(y, 0.5, false)
    }

    /// The growth of something that the ledger counts.
    pub(crate) fn trend_exact(&self, y: impl Fn(&Moment) -> Option<f64>) -> Option<statistics::Trend> {
        self.trend_of(y, 0.5, true)
    }

    /// The growth of what nobody counts. Where only the kernel tells, memory that is promised and not touched yet pulls it down for a
    /// while and nothing pushes it up for long, so of neighbours a high one counts.
    pub(crate) fn trend_of_unaccounted(&self) -> Option<statistics::Trend> {
        self.trend_of(self.left_over(), UNTOUCHED_ASIDE, false)
    }

    /// The growth of what is touched and not counted.
    pub(crate) fn trend_of_untouched_aside(&self) -> Option<statistics::Trend> {
        self.trend_of(unaccounted, UNTOUCHED_ASIDE, false)
    }

    /// The growth of what nobody counts in the last part of the run by itself, or beneath something that swings, or in steps.
    pub(crate) fn late_trend_of(&self, y: impl Fn(&Moment) -> Option<f64>) -> Option<statistics::Trend> {
        let points: Vec<(f64, f64)> =
            self.x.iter().zip(&self.series.moments).filter_map(|(x, moment)| Some((*x, y(moment)?))).collect();
        statistics::late(&points, UNTOUCHED_ASIDE).or_else(|| statistics::moving_up(&points))
    }

    /// Whether what nobody counts has been slowing all along.
    pub(crate) fn slows(&self, y: impl Fn(&Moment) -> Option<f64>) -> bool {
        let points: Vec<(f64, f64)> =
            self.x.iter().zip(&self.series.moments).filter_map(|(x, moment)| Some((*x, y(moment)?))).collect();
        statistics::slows(&points, UNTOUCHED_ASIDE)
    }

    /// The growth of what is there when nothing is in flight, by the second; `None` where there is always something.
    pub(crate) fn idle_trend_of(&self, y: impl Fn(&Moment) -> Option<f64>) -> Option<statistics::Trend> {
        let steady = self.steady();
        let idle = || steady.iter().filter(|m| levels::is_idle(m));
        if idle().count() as f64 <= IDLE * steady.len() as f64 {
            return None;
        }
        let all = self.series.moments.iter().filter(|m| levels::is_idle(m));
        let points: Vec<(f64, f64)> = all.filter_map(|m| Some((m.time as f64 / 1e9, y(m)?))).collect();
        let late = || statistics::late(&points, 0.5);
        statistics::trend(&points, 0.5, false).filter(|trend| trend.goes_on).or_else(late)
    }

    fn trend_of(&self, y: impl Fn(&Moment) -> Option<f64>, q: f64, exactly: bool) -> Option<statistics::Trend> {
        let points: Vec<(f64, f64)> =
            self.x.iter().zip(&self.series.moments).filter_map(|(x, moment)| Some((*x, y(moment)?))).collect();
        statistics::trend(&points, q, exactly)
    }

    /// Moments after the warm-up.
    pub(crate) fn steady(&self) -> &'s [Moment] {
        let moments = &self.series.moments;
        &moments[(moments.len() as f64 * WARM_UP) as usize..]
    }

    /// What a growth must come to, to be worth a word.
    pub(crate) fn growth_floor(&self) -> f64 {
        (self.scale * 0.01).max(1e6)
    }

    /// What a level must come to, to be worth a word.
    pub(crate) fn level_floor(&self) -> f64 {
        (self.scale * 0.04).max(LEVEL_MIN)
    }

    pub(crate) fn rate(&self, slope: statistics::Slope) -> Rate {
        Rate { bytes: slope.value, low: slope.low, high: slope.high, per: self.per }
    }
}

/// What buffers are made of, in memory or swapped out.
///
/// Without what was freed and waits for the kernel to take it: it counts as resident, and is nobody's.
pub(crate) fn truth(moment: &Moment) -> Option<f64> {
    let process = moment.sample.process?;
    let muzzy = moment.sample.allocator.as_ref().and_then(|allocator| allocator.muzzy_bytes).unwrap_or(0);
    let freed = process.lazily_freed_bytes.unwrap_or(0).max(muzzy);
    let all = process.unfiled_bytes().saturating_add(process.swapped_bytes);
    Some(all.saturating_sub(freed) as f64)
}

/// What the allocator keeps of it for itself: free pages and the unused parts of others. `None`: it does not tell.
pub(crate) fn slack(moment: &Moment) -> Option<f64> {
    let allocator = moment.sample.allocator.as_ref()?;
    if let Some(resident) = allocator.resident_bytes {
        return Some(resident as f64 - allocator.allocated_bytes as f64);
    }
    // glibc: as much of what is free as can be in memory, given what is handed out.
    let truth = truth(moment)?;
    Some((allocator.free_bytes? as f64).min(truth - allocator.allocated_bytes as f64).max(0.0))
}

/// What the program really has.
pub(crate) fn live(moment: &Moment) -> Option<f64> {
    Some(truth(moment)? - slack(moment).unwrap_or(0.0))
}

/// What it has and the ledger does not count; negative where more is promised than is there.
pub(crate) fn unaccounted(moment: &Moment) -> Option<f64> {
    Some(live(moment)? - moment.held as f64)
}

/// What the allocator has handed out and the ledger does not count.
pub(crate) fn handed_out(moment: &Moment) -> Option<f64> {
    Some(moment.sample.allocator.as_ref()?.allocated_bytes as f64 - moment.held as f64)
}

/// What is in use and the ledger does not count, whether it is touched or not: what the allocator has handed out, and what is resident
/// beyond all that it has, less what is held. Where the allocator does not tell that, what is unaccounted for.
///
/// It is sharper than [`unaccounted`]: pages that a buffer of the books touches at last, or that a program gets back untouched, are no
/// growth here.
pub(crate) fn uncounted_bytes(moment: &Moment) -> Option<f64> {
    let Some((allocated, whole)) = moment.sample.allocator.as_ref().and_then(|allocator| {
        Some((allocator.allocated_bytes as f64, allocator.resident_bytes.or(allocator.mapped_bytes)? as f64))
    }) else {
        return unaccounted(moment);
    };
    Some(allocated + (truth(moment)? - whole).max(0.0) - moment.held as f64)
}

/// Bytes in words, with their sign.
pub(crate) fn signed(bytes: f64) -> String {
    let size = Bytes(bytes.abs() as u64);
    if bytes < 0.0 { format!("-{size}") } else { size.to_string() }
}

#[cfg(test)]
mod tests;
