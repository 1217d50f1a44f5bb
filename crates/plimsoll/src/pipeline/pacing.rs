//! Pacing: how much work *should* be in progress, where memory says how much may be.
//!
//! The slowest station of a line is its *drum*: what it cannot take, nobody needs to have made. A *rope* lets a new job in
//! when an old one is through, so that the jobs in progress are just enough to keep the drum busy ([`work_in_progress`]),
//! and another one does the same at each stage that multiplies a job's bytes ([`Rope::of`]): bytes are made when the drum
//! will soon need them, and what is cheap is made ahead.
//!
//! The [`Pacer`] is pure. It is told when stages end and how long they took, and says how many tokens each rope has. It has
//! no clock and no thread and waits for nothing; the pipeline drives it, and so does a simulator in virtual time. It does
//! not hold the tokens either: they are slots in the ledger's vector, asked for together with the bytes. So a token is
//! never waited for while bytes are held beyond what the safety check has allowed for, comes back however a job ends, and
//! a pacer that was never told anything, or wrong things, can slow a line down but not stop it: each rope has a token at
//! least.
//!
//! `docs/pacing.md` tells what follows from all this, with measurements.

mod estimate;
mod layout;
mod memory;
mod rope;
mod rule;
mod warm_up;

use std::collections::BTreeMap;

use self::estimate::{Moments, Times};
use self::rule::TOKENS_MAX;
use self::warm_up::WarmUp;
use crate::{Budget, Bytes, Demand, Profile, Resource, Slots, Space};

pub use self::layout::{Berth, Layout, Site, Station};
pub use self::rope::Rope;
pub use self::rule::{LOSS, erlang_b, spread, utilisation, work_in_progress};

/// How the work in progress is limited, apart from the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pacing {
    /// As much as keeps the slowest station busy, found out while running. Nothing needs to be set.
    #[default]
    Auto,
    /// That many jobs at once, whatever they are doing. For comparison.
    Fixed(u64),
    /// As much as the budget admits. For comparison.
    Unpaced,
}

/// A class of work: jobs of about the same size, whose times are estimated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkClass(u32);

impl WorkClass {
    /// The class of jobs with this profile. Two classes for each doubling of the most that a job holds.
    pub fn of(profile: &Profile) -> WorkClass {
        let most = profile.stages().iter().map(|stage| {
            let bytes = stage.peak.iter().filter(|(resource, _)| matches!(resource, crate::Resource::Class(_)));
            bytes.fold(0u64, |sum, (_, bytes)| sum.saturating_add(bytes))
        });
        let most = most.max().unwrap_or(0).max(1);
        let octave = most.ilog2();
        let upper_half = octave > 0 && most >> (octave - 1) & 1 == 1;
        WorkClass(2 * octave + u32::from(upper_half))
    }
}

/// What the pacer has made of what it was told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The drum: an index into [`Layout::stations`]. `None` while times are not known.
    pub drum: Option<usize>,
    /// The space whose limit is slower than the drum, if one is: then memory sets the pace.
    pub memory: Option<Space>,
    /// Seconds between two jobs when the drum, or memory, is used to the full.
    pub interval_seconds: f64,
    /// How many jobs are on average anywhere but at the drum, at that rate (a).
    pub on_the_way: f64,
    /// How much that varies; see [`spread`].
    pub spread: f64,
}

/// How many jobs keep the slowest station busy, and how fast that is.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The slowest station.
    pub drum: &'static str,
    /// The space whose limit is slower still, if one is.
    pub memory: Option<Space>,
    /// How many jobs are under way.
    pub jobs: u64,
    /// Which part of the time the drum is busy with them.
    pub utilisation: f64,
    /// Jobs a second.
    pub rate: f64,
    /// What is held on average, in each space that has a limit.
    pub expected: Vec<(Space, Bytes)>,
}

/// Decides how many tokens each rope has. See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct Pacer {
    pacing: Pacing,
    layout: Layout,
    ropes: Vec<Rope>,
    tokens: Vec<u64>,
    times: Times,
    /// Bytes at the peak of each stage, by class of work and space.
    bytes: BTreeMap<(u32, Space), Vec<u64>>,
    limits: BTreeMap<Space, u64>,
    warm_up: WarmUp,
    pace: Pace,
}

/// How many tokens a rope should have.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// With which next to nothing of the drum's time is lost.
    wanted: f64,
    /// With fewer it cannot be busy all the time, even if no time ever varies (Little's law).
    least: f64,
}

impl Target {
    fn at_most(self, most: f64) -> Target {
        Target { wanted: self.wanted.min(most), least: self.least.min(most) }
    }

    /// As a whole number. Half a token less than wanted costs next to nothing where times vary, for then it is a small part of the
    /// slack. Where they do not there is no slack, and what Little's law asks for is not rounded down.
    fn whole(self, exact: bool) -> f64 {
        let bounded = |target: f64| if target.is_finite() { target.clamp(1.0, TOKENS_MAX as f64) } else { 1.0 };
        let (wanted, least) = (bounded(self.wanted), bounded(self.least * (1.0 - LOSS)));
        if exact { wanted.floor() } else { (wanted - 0.5).ceil().max(least.ceil()) }
    }
}

impl Pacer {
    /// A pacer for a line with this layout and these ropes, the first of which is the source's.
    ///
    /// # Panics
    ///
    /// If a rope is tied to a stage that the layout does not have, or there is no rope at all.
    pub fn new(pacing: Pacing, layout: Layout, ropes: Vec<Rope>) -> Pacer {
        let stages = layout.stages.len();
        assert!(!ropes.is_empty() && ropes.iter().all(|rope| rope.last < stages), "ropes belong to stages");
        let ropes = match pacing {
            Pacing::Auto => ropes,
            Pacing::Fixed(_) => vec![ropes[0]],
            Pacing::Unpaced => Vec::new(),
        };
        let pace = Pace { drum: None, memory: None, interval_seconds: 0.0, on_the_way: 0.0, spread: 0.0 };
        let tokens = vec![TOKENS_MAX; ropes.len()];
        let times = Times::new(stages);
        let (bytes, limits) = (BTreeMap::new(), BTreeMap::new());
        let warm_up = WarmUp::new(stages);
        let mut pacer = Pacer { pacing, layout, ropes, tokens, times, bytes, limits, warm_up, pace };
        match pacing {
            Pacing::Auto => pacer.warm_up(),
            Pacing::Fixed(jobs) => pacer.tokens[0] = jobs.clamp(1, TOKENS_MAX),
            Pacing::Unpaced => {}
        }
        pacer
    }

    /// The ropes, the source's first.
    pub fn ropes(&self) -> &[Rope] {
        &self.ropes
    }

    /// The slots that a rope's tokens are.
    pub fn slots(&self, rope: usize) -> Slots {
        Slots::rope(self.layout.stages[self.ropes[rope].first].stage, rope as u16)
    }

    /// The ropes as limits of a child ledger.
    pub fn budget(&self) -> Budget {
        (0..self.ropes.len()).fold(Budget::new(), |budget, rope| budget.slots(self.slots(rope), self.tokens[rope]))
    }

    /// A profile with the tokens that its jobs need, stage by stage, beside everything else.
    pub fn tie(&self, profile: &Profile) -> Profile {
        let last = profile.stages().len().saturating_sub(1);
        let tied = |stage: usize, demand: &Demand, is_keep: bool| {
            let held = |rope: &Rope| rope.spans(stage) && !(is_keep && (stage == rope.last || stage == last));
            let ropes = self.ropes.iter().enumerate().filter(|(_, rope)| held(rope));
            ropes.fold(demand.clone(), |demand, (at, _)| demand.slots(self.slots(at), 1))
        };
        profile.with(|at, stage| (tied(at, &stage.peak, false), tied(at, &stage.keep, true)))
    }

    /// The profile as it was before [`tie`](Pacer::tie).
    pub fn untie(&self, profile: &Profile) -> Profile {
        let untied = |demand: &Demand| {
            demand.iter().fold(Demand::new(), |rest, (resource, amount)| match resource {
                Resource::Class(class) => rest.bytes(class, Bytes(amount)),
                Resource::Slots(slots) if (0..self.ropes.len()).any(|rope| self.slots(rope) == slots) => rest,
                Resource::Slots(slots) => rest.slots(slots, amount),
            })
        };
        profile.with(|_, stage| (untied(&stage.peak), untied(&stage.keep)))
    }

    /// How many tokens each rope has: at least one.
    pub fn tokens(&self) -> &[u64] {
        &self.tokens
    }

    /// What it has made of what it was told.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// The layout that it was made for.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Takes note of what jobs of this profile hold, and says which class of work they are.
    pub fn classify(&mut self, profile: &Profile) -> WorkClass {
        self.classify_any(std::slice::from_ref(profile))
    }

    /// The same for jobs that may be served by any of these profiles. Where they differ in the device, each is taken to have
    /// its share.
    ///
    /// # Panics
    ///
    /// Without a profile.
    pub fn classify_any(&mut self, profiles: &[Profile]) -> WorkClass {
        let class = WorkClass::of(&profiles[0]);
        if !self.bytes.keys().any(|key| key.0 == class.0) {
            let mut kinds: Vec<rope::BySpace> = Vec::new();
            for profile in profiles {
                let bytes = rope::by_space(profile);
                if !kinds.iter().any(|known| known.keys().eq(bytes.keys())) {
                    kinds.push(bytes);
                }
            }
            let shares = kinds.len() as u64;
            for (space, (peaks, _)) in kinds.into_iter().flatten() {
                let sums = self.bytes.entry((class.0, space)).or_insert_with(|| vec![0; peaks.len()]);
                sums.iter_mut().zip(peaks).for_each(|(sum, peak)| *sum += peak / shares);
            }
        }
        if self.pacing == Pacing::Auto && !self.warm_up.has_begun() {
            // What is cheap may be made ahead from the beginning.
            self.warm_up();
        }
        class
    }

    /// Other numbers of servers serve the stages from now on. A layout of other stages or stations is not taken.
    pub fn set_layout(&mut self, layout: Layout) {
        if layout.stages == self.layout.stages && layout.stations.len() == self.layout.stations.len() {
            self.layout = layout;
        }
    }

    /// How many bytes of a space the line may use; without it, memory is taken for plenty.
    pub fn set_limit(&mut self, space: Space, limit: Bytes) {
        self.limits.insert(space, limit.0);
    }

    /// A stage of a job has ended well: it `ran` for so many nanoseconds, after its grant had `waited` for a server. A stage
    /// that failed or was cancelled says nothing about how long a stage takes, and is not reported.
    ///
    /// Returns whether the number of tokens has changed.
    pub fn stage_ended(&mut self, class: WorkClass, stage: usize, ran: u64, waited: u64) -> bool {
        if self.pacing != Pacing::Auto {
            return false;
        }
        self.times.add(class.0, stage, ran as f64, waited as f64);
        self.warm_up.stage_ended(stage, &self.layout);
        let before = self.tokens.clone();
        if self.is_without_servers() || !self.times.is_complete() {
            self.warm_up();
        } else if stage + 1 == self.layout.stages.len() || self.pace.drum.is_none() {
            self.tune();
        }
        self.tokens != before
    }

    /// Nothing serves these jobs that could be busy: no station can be the drum, and only memory says how many may be under way.
    fn is_without_servers(&self) -> bool {
        let unlimited = |site: &Site| self.layout.servers(site.station).is_none();
        self.layout.stages.iter().all(unlimited) && !mutant!("paced-without-a-drum")
    }

    /// Nothing is known of some stage yet.
    fn warm_up(&mut self) {
        if self.is_without_servers() {
            return self.tokens.fill(TOKENS_MAX);
        }
        let (source, others) = self.warm_up.tokens(&self.layout, &self.ropes, &self.bytes, &self.limits);
        for (at, tokens) in self.tokens.iter_mut().enumerate() {
            *tokens = if at == 0 { source } else { others };
        }
    }

    /// What follows from the times that are known; `None` while they are not.
    pub fn forecast(&self) -> Option<Work> {
        if self.pacing != Pacing::Auto || !self.times.is_complete() {
            return None;
        }
        let mut settled = self.clone();
        // Tokens at most double at a time.
        (0..2 * TOKENS_MAX.ilog2()).for_each(|_| settled.tune());
        let Pace { drum, memory, interval_seconds, on_the_way, spread } = settled.pace;
        let drum = drum?;
        let jobs = settled.tokens[0];
        let service = settled.load(drum)?.0 * 1e-9;
        let utilisation = match memory {
            Some(_) => (service / interval_seconds).min(1.0),
            None => utilisation(jobs, on_the_way, settled.layout.servers(drum).unwrap_or(1), spread),
        };
        let tokens: Vec<f64> = settled.tokens.iter().map(|tokens| *tokens as f64).collect();
        let expected = memory::Rooms::new(&settled).expected(interval_seconds * 1e9, &tokens);
        let drum = settled.layout.stations[drum].name;
        Some(Work { drum, memory, jobs, utilisation, rate: utilisation / service, expected })
    }

    /// A pacer that has been told each stage's time, in nanoseconds, often enough to believe it.
    pub(super) fn with_times(mut self, profile: &Profile, nanos: &[u64]) -> Pacer {
        let class = self.classify(profile);
        for _ in 0..32 {
            nanos.iter().enumerate().for_each(|(stage, &nanos)| _ = self.stage_ended(class, stage, nanos, 0));
        }
        self
    }

    /// Forgets the limits of spaces.
    pub(super) fn without_limits(mut self) -> Pacer {
        self.limits.clear();
        self
    }

    fn tune(&mut self) {
        let Some((drum, interval)) = self.find_drum() else { return };
        let doubt = self.times.doubt(|stage| self.layout.stages[stage].station == drum);
        let (pace, targets, exact) = self.targets(drum, interval * doubt);
        // What a few samples say by chance lets no more in than they say for sure, and holds back none who is in.
        let certain = if doubt > 1.0 { self.targets(drum, interval) } else { (pace, targets.clone(), exact) };
        self.pace = pace;
        for (rope, (target, certain_target)) in targets.into_iter().zip(certain.1).enumerate() {
            // No more jobs can be inside than are in the line.
            let most = if rope == 0 { f64::INFINITY } else { self.tokens[0] as f64 };
            self.raise(rope, target.at_most(most), exact);
            self.lower(rope, certain_target.at_most(most), certain.2);
        }
    }

    /// The pace with a drum that takes one job in each `interval`, and the number of tokens that each rope should have.
    fn targets(&self, drum: usize, interval: f64) -> (Pace, Vec<Target>, bool) {
        let servers = self.layout.servers(drum).unwrap_or(1);
        let at_drum = |stage: usize| self.layout.stages[stage].station == drum;
        let drum_cv2 = self.times.sum(|stage, times| at_drum(stage).then(|| times.service())).cv2();
        let way = self.times.sum(|stage, times| (!at_drum(stage)).then(|| times.service()));
        let on_the_way = way.mean / interval;
        let spread = rule::spread(way.cv2(), drum_cv2);
        let waiting = (0..self.layout.stations.len()).filter(|station| *station != drum).filter_map(|station| {
            let (load, times) = self.load(station)?;
            Some(rule::queue(self.layout.servers(station)?, load / interval, (spread + times.cv2()) / 2.0))
        });
        let wanted = rule::work_in_progress(on_the_way, servers, spread, LOSS) + waiting.sum::<f64>();
        let mut targets = vec![Target { wanted, least: on_the_way + servers as f64 }];
        for rope in &self.ropes[1..] {
            let inside = |stage: usize| rope.spans(stage) && !at_drum(stage);
            let way = self.times.sum(|stage, times| inside(stage).then(|| times.held()));
            let mut drums = (0..self.layout.stages.len()).filter(|stage| at_drum(*stage));
            targets.push(if drums.all(|stage| rope.spans(stage)) {
                let way_of = way.mean / interval;
                let wanted = rule::work_in_progress(way_of, servers, rule::spread(way.cv2(), drum_cv2), LOSS);
                Target { wanted, least: way_of + servers as f64 }
            } else {
                // The drum is elsewhere, so that here only what is on its way counts. A stretch with so many tokens is a
                // station with so many servers, and must not be nearly as slow as the drum.
                let span = self.times.sum(|stage, times| rope.spans(stage).then(|| times.held()));
                let inside = span.mean / interval;
                let wanted = rule::work_in_progress(inside, 1, rule::spread(span.cv2(), drum_cv2), LOSS) - 1.0;
                Target { wanted, least: inside / rule::BUSY_MAX }
            });
        }
        let wanted: Vec<_> = targets.iter().map(|target| target.whole(false)).collect();
        let bounded = memory::Rooms::new(self).bound(interval, &wanted);
        let (memory, interval) = bounded.as_ref().map_or((None, interval), |bound| (bound.space, bound.interval));
        let exact = bounded.is_some();
        if let Some(bound) = bounded {
            // Rounding and the reluctance to change are for estimates; these are whole numbers that fit.
            let exact = |(fits, wanted): (f64, f64)| Target { wanted: fits.min(wanted), least: 1.0 };
            targets = bound.tokens.into_iter().zip(wanted).map(exact).collect();
        }
        let pace = Pace { drum: Some(drum), memory, interval_seconds: interval * 1e-9, on_the_way, spread };
        (pace, targets, exact)
    }

    /// Gives a rope the tokens that it should have, if it has fewer. They at most double at a time, so that what a first few
    /// samples say by chance is corrected by the next ones before much is made of it.
    fn raise(&mut self, rope: usize, target: Target, exact: bool) {
        let tokens = self.tokens[rope];
        let wanted = target.whole(exact) as u64;
        if wanted > tokens {
            self.tokens[rope] = wanted.min(2 * tokens + 1);
        }
    }

    /// Takes tokens from a rope that has more than it should, unless the target is so near that it may be chance.
    fn lower(&mut self, rope: usize, target: Target, exact: bool) {
        let tokens = self.tokens[rope];
        let wanted = target.whole(exact) as u64;
        if wanted < tokens && (exact || target.wanted < tokens as f64 - 0.75) {
            self.tokens[rope] = wanted;
        }
    }

    /// Nanoseconds between two jobs if this station alone set the pace, and its times.
    fn load(&self, station: usize) -> Option<(f64, Moments)> {
        let servers = self.layout.servers(station)?;
        let times =
            self.times.sum(|stage, times| (self.layout.stages[stage].station == station).then(|| times.service()));
        Some((times.mean / servers as f64, times))
    }

    /// The station with the most to do for each of its servers. The drum stays what it was until another is clearly slower.
    fn find_drum(&self) -> Option<(usize, f64)> {
        let loads = (0..self.layout.stations.len()).filter_map(|station| Some((station, self.load(station)?.0)));
        let (slowest, load) = loads.max_by(|one, other| one.1.total_cmp(&other.1)).filter(|entry| entry.1 > 0.0)?;
        let before = self.pace.drum.and_then(|drum| Some((drum, self.load(drum)?.0)));
        Some(before.filter(|before| load < before.1 * 1.05).unwrap_or((slowest, load)))
    }
}
