//! Where memory sets the pace: the largest rate at which the jobs in progress fit, and the tokens that go with it.
//!
//! More jobs than that would not only wait: what is made ahead takes the room in which the jobs before it multiply, and so
//! fewer of those run side by side. The ledger keeps all of them able to finish; that they finish soon is decided here.

use super::estimate::StageTimes;
use super::{Pacer, Rope};
use crate::{Bytes, Space};

/// How the bytes of jobs in progress add up, space by space.
pub(super) struct Rooms {
    rooms: Vec<Room>,
    /// Nanoseconds that a job takes as a whole, and inside each inner rope.
    whole: f64,
    spans: Vec<f64>,
    /// The inner ropes that lie within each inner rope, and in no other one within it.
    within: Vec<Vec<usize>>,
}

struct Room {
    space: Space,
    limit: f64,
    /// What a job holds outside of the inner ropes, on average.
    base: f64,
    /// What it holds in addition inside of each, where it is in none that lies within.
    extra: Vec<f64>,
}

/// The best that fits.
pub(super) struct Bound {
    /// The space that is full at a higher rate.
    pub(super) space: Space,
    /// Nanoseconds between two jobs.
    pub(super) interval: f64,
    /// For each rope, the source's first.
    pub(super) tokens: Vec<f64>,
}

impl Rooms {
    pub(super) fn new(pacer: &Pacer) -> Rooms {
        let times = &pacer.times;
        let inner = &pacer.ropes[1..];
        let whole = times.sum(|_, times| Some(times.service())).mean;
        let span = |rope: &Rope| times.sum(|stage, times| rope.spans(stage).then(|| times.held())).mean;
        let room = |(&space, &limit): (&Space, &u64)| {
            // Bytes by time, over the time: a mean over the stages that are picked, in the present mix of jobs.
            let mean = |picked: &dyn Fn(usize) -> bool| {
                let area = times.mean_of(|class| {
                    let peaks = pacer.bytes.get(&(class, space));
                    move |stage, times: &StageTimes| match peaks {
                        Some(peaks) if picked(stage) => peaks[stage] as f64 * times.held().mean,
                        _ => 0.0,
                    }
                });
                let time =
                    times.mean_of(|_| |stage, times: &StageTimes| if picked(stage) { times.held().mean } else { 0.0 });
                if time > 0.0 { area / time } else { 0.0 }
            };
            let base = mean(&|stage| !inner.iter().any(|rope| rope.spans(stage)));
            let is_innermost = |at: usize, stage: usize| innermost(inner, |rope| rope.spans(stage)) == Some(at);
            let of = |at: usize| mean(&|stage| is_innermost(at, stage));
            let extra = (0..inner.len()).map(|at| (of(at) - base).max(0.0)).collect();
            Room { space, limit: limit as f64, base, extra }
        };
        let rooms = pacer.limits.iter().filter(|entry| *entry.1 > 0).map(room).collect();
        Rooms { rooms, whole, spans: inner.iter().map(span).collect(), within: nested(inner) }
    }

    /// What jobs hold in addition inside of the inner ropes: each job counts where it is innermost.
    fn inside(&self, room: &Room, tokens: impl Fn(usize) -> f64) -> f64 {
        let own = |at: usize| (tokens(at) - self.within[at].iter().map(|&inner| tokens(inner)).sum::<f64>()).max(0.0);
        room.extra.iter().enumerate().map(|(at, extra)| extra * own(at)).sum()
    }

    /// `None` where the wanted tokens fit. Otherwise the fastest pace, not faster than one job in each `interval`, whose
    /// jobs fit.
    pub(super) fn bound(&self, interval: f64, wanted: &[f64]) -> Option<Bound> {
        let mut space = self.too_small_for(wanted)?;
        let mut interval = interval;
        loop {
            let tokens = self.tokens(interval);
            match self.too_small_for(&tokens) {
                Some(full) if tokens.iter().any(|tokens| *tokens > 1.0) => space = full,
                _ => return Some(Bound { space, interval, tokens: self.spare(interval, tokens) }),
            }
            interval *= 1.02;
        }
    }

    /// Little's law: how many jobs are in progress, and inside of each inner rope.
    fn tokens(&self, interval: f64) -> Vec<f64> {
        let spans = std::iter::once(&self.whole).chain(&self.spans);
        spans.map(|span| (span / interval).ceil().max(1.0)).collect()
    }

    /// Where only one job at a time multiplies, one more that is made ahead takes no room from it.
    fn spare(&self, interval: f64, mut tokens: Vec<f64>) -> Vec<f64> {
        if tokens[1..].iter().all(|tokens| *tokens <= 1.0) {
            tokens[0] = (self.whole / interval).ceil() + 1.0;
        }
        tokens
    }

    /// What so many jobs hold on average.
    pub(super) fn expected(&self, tokens: &[u64]) -> Vec<(Space, Bytes)> {
        let held = |room: &Room| {
            let inside = self.inside(room, |at| tokens[at + 1] as f64);
            (room.space, Bytes((room.base * tokens[0] as f64 + inside).min(room.limit) as u64))
        };
        self.rooms.iter().map(held).collect()
    }

    fn too_small_for(&self, tokens: &[f64]) -> Option<Space> {
        let full = |room: &&Room| {
            let inside = self.inside(room, |at| tokens[at + 1]);
            // Means of what was measured: a hair too much is no reason to do without a token, and the ledger keeps the line.
            room.base * tokens[0] + inside > room.limit * 1.02
        };
        self.rooms.iter().find(full).map(|room| room.space)
    }
}

/// The shortest of those inner ropes, by index.
fn innermost(ropes: &[Rope], picked: impl Fn(&Rope) -> bool) -> Option<usize> {
    let picked = ropes.iter().enumerate().filter(|(_, rope)| picked(rope));
    picked.min_by_key(|(_, rope)| rope.last - rope.first).map(|(at, _)| at)
}

fn nested(ropes: &[Rope]) -> Vec<Vec<usize>> {
    let mut within = vec![Vec::new(); ropes.len()];
    for (at, inner) in ropes.iter().enumerate() {
        let around = |rope: &Rope| rope != inner && rope.first <= inner.first && inner.last <= rope.last;
        if let Some(outer) = innermost(ropes, around) {
            within[outer].push(at);
        }
    }
    within
}
