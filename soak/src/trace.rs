//! Random traces of the state machine against the oracle: whatever happens, both grant the same, in the same order.

use crate::oracle::Oracle;
use crate::world::{Dice, random_world};

/// Runs one trace in the world that a seed makes. `choose` picks one of so many events, or ends the trace. Returns how
/// many events there were.
///
/// # Panics
///
/// If the state machine and the oracle differ, or an invariant does not hold.
pub fn run(seed: u64, jobs: usize, mut choose: impl FnMut(usize) -> Option<usize>) -> usize {
    let world = random_world(seed, jobs);
    let mut run = world.start();
    let mut oracle = Oracle::new(&world);
    let mut trace = Vec::new();
    loop {
        let events = world.events(&run);
        if events.is_empty() {
            return trace.len();
        }
        let Some(choice) = choose(events.len()) else { return trace.len() };
        let event = events[choice % events.len()];
        trace.push(event);
        world.step(&mut run, event);
        world.check(&run);
        let expected = oracle.step(event);
        assert_eq!((run.granted.clone(), run.refused.clone()), expected, "seed {seed}: {world:?} after {trace:?}");
    }
}

/// A trace of random choices.
pub fn run_random(seed: u64) -> usize {
    let mut dice = Dice(seed);
    let jobs = dice.roll(2, 6) as usize;
    run(dice.roll(0, u64::MAX - 1), jobs, |events| Some(dice.roll(0, events as u64 - 1) as usize))
}

/// A trace as a fuzzer has it: eight bytes make the world, one says how many jobs, and each of the rest chooses an event.
pub fn run_bytes(bytes: &[u8]) -> usize {
    let Some((seed, rest)) = bytes.split_first_chunk::<8>() else { return 0 };
    let Some((jobs, mut choices)) = rest.split_first() else { return 0 };
    run(u64::from_le_bytes(*seed), 2 + usize::from(*jobs) % 5, |_| {
        let (choice, rest) = choices.split_first()?;
        choices = rest;
        Some(usize::from(*choice))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_of_the_seed_corpus_run() {
        let corpus = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/ledger_trace"));
        let mut events = 0;
        for file in corpus.expect("the corpus is there") {
            events += run_bytes(&std::fs::read(file.expect("it can be listed").path()).expect("it can be read"));
        }
        assert!(events > 100, "{events} events in the whole corpus");
    }

    #[test]
    fn random_traces_run() {
        let events: usize = (0..50).map(run_random).sum();
        assert!(events > 200, "{events} events in fifty traces");
    }
}
