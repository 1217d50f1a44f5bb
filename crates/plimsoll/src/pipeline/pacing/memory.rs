//! Where memory sets the pace: the largest rate at which the jobs in progress fit, and the tokens that go with it.
//!
//! More jobs than that would not only wait: what is made ahead takes the room in which the jobs before it multiply, and so
//! fewer of those run side by side. The ledger keeps all of them able to finish; that they finish soon is decided here.
//!
//! What fits is what may be held at once, not what is held on average: at the rate of the line no stage has more jobs in it than
//! Little's law says, rounded up, and the largest of them may well come together.

use super::estimate::StageTimes;
use super::rule::LOSS;
use super::{Pacer, Rope};
use crate::{Bytes, Space};

/// How the bytes of jobs in progress add up, space by space.
pub(super) struct Rooms {
    rooms: Vec<Room>,
    /// Nanoseconds in each stage.
    stages: Vec<f64>,
    /// And inside each rope.
    spans: Vec<f64>,
    /// For each stage, the ropes that span it.
    spanning: Vec<Vec<usize>>,
    /// The ropes, the shortest first.
    by_length: Vec<usize>,
}

struct Room {
    space: Space,
    limit: f64,
    /// What a job holds in each stage, in the present mix of jobs.
    peaks: Vec<f64>,
    /// The stages, those first in which most is held.
    heaviest: Vec<usize>,
    /// The least that a job holds inside of each rope, where it is in none that lies within.
    lightest: Vec<f64>,
    /// How many jobs there may be so that one of them has room for the most that it holds, and then the next.
    safe: f64,
    /// Nanoseconds at a job's end in which one more than that may be there.
    tail: f64,
}

/// What jobs hold at once at most.
struct Most {
    held: f64,
    /// The stage with more than the least in it in which one ends soonest, and when.
    shortest: Option<(usize, f64)>,
    /// The stage in which most is held by one job, and how many are in it.
    largest: Option<(usize, f64)>,
}

/// How a line goes.
struct Going {
    /// Nanoseconds between two jobs.
    pace: f64,
    /// The same with room for everything.
    free: f64,
    /// How long a job waits for room.
    waits: f64,
    /// The space for want of which it is slower than without limits, if one is.
    full: Option<Space>,
}

/// Jobs that wait for room now and then wait longer than for the end of what they wait for: a pace with waits has to be faster than
/// one without by such a part of them.
const WAITS: f64 = 0.25;

/// The best that fits.
pub(super) struct Bound {
    /// The space that is full at the pace of the drum, if one is.
    pub(super) space: Option<Space>,
    /// Nanoseconds between two jobs.
    pub(super) interval: f64,
    /// For each rope, the source's first.
    pub(super) tokens: Vec<f64>,
}

impl Rooms {
    pub(super) fn new(pacer: &Pacer) -> Rooms {
        let (times, ropes) = (&pacer.times, &pacer.ropes);
        let count = pacer.layout.stages.len();
        let stage = |at: usize| times.sum(|stage, times| (stage == at).then(|| times.held())).mean;
        let whole = times.sum(|_, times| Some(times.service())).mean;
        let span = |rope: &Rope| times.sum(|stage, times| rope.spans(stage).then(|| times.held())).mean;
        let mut by_length: Vec<usize> = (0..ropes.len()).collect();
        by_length.sort_by_key(|rope| ropes[*rope].last - ropes[*rope].first);
        let spanning: Vec<Vec<usize>> = (0..count)
            .map(|stage| by_length.iter().copied().filter(|rope| ropes[*rope].spans(stage)).collect())
            .collect();
        let stages: Vec<f64> = (0..count).map(stage).collect();
        let room = |(&space, &limit): (&Space, &u64)| {
            let held = |at: usize| {
                times.mean_of(|class| {
                    let peaks = pacer.bytes.get(&(class, space));
                    move |stage, _: &StageTimes| match peaks {
                        Some(peaks) if stage == at => peaks[stage] as f64,
                        _ => 0.0,
                    }
                })
            };
            let peaks: Vec<f64> = (0..count).map(held).collect();
            let mut heaviest: Vec<usize> = (0..count).collect();
            heaviest.sort_by(|one, other| peaks[*other].total_cmp(&peaks[*one]));
            // Where nothing is held in between, nothing is what waits.
            let lightest = |rope: usize| {
                let within = (0..count).filter(|stage| spanning[*stage].first() == Some(&rope));
                within.map(|stage| peaks[stage]).min_by(f64::total_cmp).unwrap_or(0.0)
            };
            let lightest = (0..ropes.len()).map(lightest).collect();
            let (most, least) = (peaks[heaviest[0]], peaks[heaviest[count - 1]]);
            let spare = if least > 0.0 { (limit as f64 - most) / least } else { f64::INFINITY };
            let safe = 1.0 + (spare + 1e-9).floor().max(0.0);
            // And from where on one of them no longer counts, since it has its largest stages behind it.
            let fits = |from: &usize| {
                let left = peaks[*from..].iter().copied().fold(0.0, f64::max);
                left + least * safe <= limit as f64 * (1.0 + 1e-9)
            };
            let passed = (0..count).find(fits).unwrap_or(count);
            let tail = stages[passed..].iter().sum();
            Room { space, limit: limit as f64, peaks, heaviest, lightest, safe, tail }
        };
        let rooms = pacer.limits.iter().filter(|entry| *entry.1 > 0).map(room).collect();
        let spans = std::iter::once(whole).chain(ropes[1..].iter().map(span)).collect();
        Rooms { rooms, stages, spans, spanning, by_length }
    }

    /// `None` where the wanted tokens lose nothing for want of room. Otherwise the fastest pace, not faster than one job in each
    /// `interval`, and the tokens that go with it.
    pub(super) fn bound(&self, interval: f64, wanted: &[f64]) -> Option<Bound> {
        let Going { pace, free, full, .. } = self.going(interval, wanted);
        if pace <= free * (1.0 + LOSS) {
            return None;
        }
        let mut best: Option<(f64, Going, Vec<f64>)> = None;
        let mut at = interval;
        while best.as_ref().is_none_or(|best| at < best.0) {
            // Little's law: how many jobs are in progress, and inside of each inner rope.
            let tokens: Vec<f64> = self.spans.iter().map(|span| (span / at).ceil().max(1.0)).collect();
            let is_least = tokens.iter().all(|tokens| *tokens <= 1.0);
            let going = self.going(interval, &tokens);
            let worth = going.pace + WAITS * going.waits;
            if best.as_ref().is_none_or(|best| worth <= best.0) {
                best = Some((worth, going, tokens));
            }
            if is_least {
                break;
            }
            at *= 1.02;
        }
        let (_, mut now, mut tokens) = best?;
        let is_slower = now.pace > interval * (1.0 + LOSS);
        for rope in 0..tokens.len() {
            // As much more as there is room for. Where memory is slower than the drum, one job that is ahead is all that helps: where it
            // makes a job come sooner, or nobody waits for the room that it takes, or one at a time multiplies.
            let most = if is_slower { tokens[rope] + f64::from(u8::from(rope == 0)) } else { wanted[rope] };
            while tokens[rope] + 1.0 <= most {
                tokens[rope] += 1.0;
                let more = self.going(interval, &tokens);
                let gains = more.pace < now.pace * (1.0 - LOSS);
                let is_free = !is_slower || more.waits == 0.0 || tokens[1..].iter().all(|inner| *inner <= 1.0);
                if !gains && (more.pace > now.pace * (1.0 + 1e-9) || !is_free) {
                    tokens[rope] -= 1.0;
                    break;
                }
                now = more;
            }
        }
        Some(Bound { space: full.filter(|_| is_slower), interval: now.pace, tokens })
    }

    /// What so many jobs hold on average.
    pub(super) fn expected(&self, interval: f64, tokens: &[f64]) -> Vec<(Space, Bytes)> {
        let pace = self.going(interval, tokens).pace;
        let waiting = (tokens[0] - self.spans[0] / pace).max(0.0);
        let held = |room: &Room| {
            let busy: f64 = room.peaks.iter().zip(&self.stages).map(|(bytes, time)| bytes * time / pace).sum();
            let spare = room.lightest[0] * waiting;
            (room.space, Bytes((busy + spare).min(room.limit) as u64))
        };
        self.rooms.iter().map(held).collect()
    }

    /// How a line goes with so many tokens, and a drum that takes one job in each `interval`.
    fn going(&self, interval: f64, tokens: &[f64]) -> Going {
        let with = |tokens: &[f64], more: f64, tail: f64| {
            let each = |(rope, (span, tokens)): (usize, (&f64, &f64))| {
                (span + more - if rope == 0 { tail } else { 0.0 }) / tokens
            };
            self.spans.iter().zip(tokens).enumerate().map(each).fold(interval, f64::max)
        };
        let free = with(tokens, 0.0, 0.0);
        let mut slowest = Going { pace: free, free, waits: 0.0, full: None };
        for room in &self.rooms {
            if tokens[0] * room.peaks[room.heaviest[0]] <= room.limit {
                continue;
            }
            // With more than this nobody could come to his end any more, so that more are not let in.
            let tail = if tokens[0] > room.safe { room.tail } else { 0.0 };
            let mut tokens = tokens.to_vec();
            tokens[0] = tokens[0].min(room.safe).max(1.0);
            let (waits, in_turns) = self.in_turns(room, with(&tokens, 0.0, tail), &tokens);
            let pace = with(&tokens, waits, tail).max(in_turns);
            slowest.waits = slowest.waits.max(waits);
            if pace > slowest.pace {
                (slowest.pace, slowest.full) = (pace, Some(room.space));
            }
        }
        slowest
    }

    /// How long a job waits for others where not all that could be held at once fits: for the end of what is shortest, and so on,
    /// until the rest fits. And how long it takes at least from one job to the next, since those that wait take their turns with the
    /// largest.
    fn in_turns(&self, room: &Room, pace: f64, tokens: &[f64]) -> (f64, f64) {
        let mut most: Vec<f64> = self.stages.iter().map(|time| (time / pace - 0.01).ceil().max(0.0)).collect();
        let (mut waits, mut turns) = (0.0, vec![0.0; most.len()]);
        loop {
            let Most { held, shortest, largest: pair } = self.most(room, &most, tokens);
            let largest = |(stage, jobs): (usize, f64)| {
                let others = turns.iter().enumerate().filter(|(other, _)| *other != stage).map(|(_, time)| time);
                (self.stages[stage] + others.sum::<f64>()) / jobs
            };
            let is_full = held > room.limit * (1.0 + 1e-9) && !mutant!("nobody-waits-for-room");
            let Some((stage, time)) = shortest.filter(|_| is_full) else {
                return (waits, if waits > 0.0 { pair.map_or(0.0, largest) } else { 0.0 });
            };
            // Of very many not one by one.
            let jobs = (most[stage] / 8.0).floor().max(1.0);
            most[stage] -= jobs;
            waits += jobs * time;
            turns[stage] = self.stages[stage];
        }
    }

    /// The most that so many jobs hold at once, no more of them in each stage than `most`.
    fn most(&self, room: &Room, most: &[f64], tokens: &[f64]) -> Most {
        let mut left = tokens.to_vec();
        let mut held = 0.0;
        let mut take = |ropes: &[usize], most: f64, bytes: f64| {
            let jobs = ropes.iter().map(|rope| left[*rope]).fold(most, f64::min);
            ropes.iter().for_each(|rope| left[*rope] -= jobs);
            held += jobs * bytes;
            jobs
        };
        let (mut shortest, mut largest): (Option<(usize, f64)>, _) = (None, None);
        for &stage in &room.heaviest {
            let jobs = take(&self.spanning[stage], most[stage], room.peaks[stage]);
            if jobs > 0.0 && room.peaks[stage] > room.lightest[0] {
                largest = largest.or(Some((stage, jobs)));
                let time = self.stages[stage] / most[stage];
                if shortest.is_none_or(|shortest| time < shortest.1) {
                    shortest = Some((stage, time));
                }
            }
        }
        // The rest waits.
        for &rope in &self.by_length {
            if let Some(around) = self.spanning.iter().find(|ropes| ropes.first() == Some(&rope)) {
                take(around, f64::INFINITY, room.lightest[rope]);
            }
        }
        Most { held, shortest, largest }
    }
}
