//! How many proofs are asked for: what arrives more slowly than the machine works is held up by nobody but those who ask.

use crate::Nanos;
use crate::random::{Law, Random, Times, Use};
use crate::workload::{Arrivals, Workload};

/// More draws than this say nothing new about a mean.
const DRAWS_MAX: u64 = 100_000;

/// What is asked for of one circuit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked {
    /// More than can be done at once.
    Plenty,
    /// So many proofs at a time.
    AtATime(u64),
    /// One proof in so many seconds.
    EverySeconds(f64),
}

/// When the proofs of a stream arrive that arrives by itself, by its number: as the simulation draws them.
fn times(workload: &Workload, number: usize) -> Option<Vec<u64>> {
    let stream = &workload.streams[number];
    let gap = match &stream.arrivals {
        Arrivals::Batch | Arrivals::ClosedLoop(_) => return None,
        Arrivals::At(times) => return Some(times.iter().take(stream.proofs as usize).map(|time| time.0).collect()),
        Arrivals::Poisson(mean) => Times::new(&Law::Exponential(*mean)),
        Arrivals::Every(gap) => Times::new(&Law::Fixed(*gap)),
    };
    let random = Random::new(workload.seed);
    let mut now = 0u64;
    let draw = |nth: u64| {
        now = now.saturating_add(gap.pick(random.bits(number as u64, nth, Use::Arrival)));
        now
    };
    Some((0..stream.proofs.min(DRAWS_MAX)).map(draw).collect())
}

/// What is asked for of a circuit, by all its streams together.
pub(super) fn of(workload: &Workload, circuit: usize) -> Asked {
    let (mut rate, mut at_a_time) = (0.0, 0);
    for (number, stream) in workload.streams.iter().enumerate().filter(|(_, stream)| stream.circuit == circuit) {
        match (&stream.arrivals, times(workload, number)) {
            (Arrivals::ClosedLoop(proofs), _) => at_a_time += proofs,
            (_, Some(times)) if times.len() > 1 => {
                // Of the last three quarters, which are what is simulated as the steady state.
                let from = times.len().div_ceil(4) - 1;
                let span = times[times.len() - 1] - times[from];
                if span == 0 {
                    return Asked::Plenty;
                }
                rate += (times.len() - 1 - from) as f64 * 1e9 / span as f64;
            }
            _ => return Asked::Plenty,
        }
    }
    match (at_a_time, rate > 0.0) {
        (0, true) => Asked::EverySeconds(1.0 / rate),
        (0, false) => Asked::Plenty,
        (proofs, false) => Asked::AtATime(proofs),
        // Whoever asks again and again takes what the others leave.
        (_, true) => Asked::Plenty,
    }
}

/// When the last proof of each circuit arrives that arrives by itself.
pub(super) fn last(workload: &Workload, circuit: usize) -> Nanos {
    let streams = (0..workload.streams.len()).filter(|number| workload.streams[*number].circuit == circuit);
    let last = streams.filter_map(|number| {
        let times = times(workload, number)?;
        let (last, count) = (*times.last()?, times.len() as u64);
        // Of very many proofs the first ones stand for all.
        let scale = workload.streams[number].proofs.max(1) as f64 / count as f64;
        Some((last as f64 * scale.max(1.0)) as u64)
    });
    Nanos(last.max().unwrap_or(0))
}
