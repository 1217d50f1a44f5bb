//! What a sample costs: `cargo run --release -p plimsoll-profile --example sample_cost`.

use std::time::Instant;

use plimsoll::Ledger;
use plimsoll_profile::sample::Reader;

const SAMPLES: usize = 2000;

fn main() {
    let ledger = Ledger::unlimited();
    for (what, reader) in [
        ("of the process alone", Reader::new().without_others()),
        ("with a look at all other processes", Reader::new()),
    ] {
        let mut reader = reader;
        let first = timed(&mut reader, &ledger);
        let mut times: Vec<f64> = (0..SAMPLES).map(|_| timed(&mut reader, &ledger)).collect();
        times.sort_by(f64::total_cmp);
        println!(
            "a sample {what}: the first {first:.0} µs, then {:.0} µs (median), {:.0} µs (99 of 100), {:.0} µs at most",
            times[SAMPLES / 2],
            times[SAMPLES * 99 / 100],
            times[SAMPLES - 1]
        );
    }
}

/// Microseconds that one takes, with its line of a trace.
fn timed(reader: &mut Reader, ledger: &Ledger) -> f64 {
    let started = Instant::now();
    let sample = reader.sample(ledger.snapshot().time);
    std::hint::black_box(sample.json().to_string());
    started.elapsed().as_secs_f64() * 1e6
}
