//! The table of `docs/pacing.md`: a line of the shape of a proof for a sector of 32 GiB in virtual time, under memory lines of
//! every size, paced and unpaced.
//!
//! ```sh
//! cargo run --release -p plimsoll --example pacing_table
//! ```

#![expect(dead_code, reason = "the tests use more of the line than this does")]

#[path = "../tests/pacing/line.rs"]
mod line;

use line::{Line, Time};
use plimsoll::pipeline::pacing::Pacing;

/// More than the line can use; without pacing it is filled.
const PLENTY: u64 = 1 << 12;

/// Jobs a second in steady state. Times in seconds, bytes in GiB: witness, evaluation (with a copy of the witness), device,
/// finish. The more run side by side, the slower each.
fn rate(pacing: Pacing, memory: u64) -> (f64, Line) {
    let stages = [
        (Time::Contended(22.0, 0.64), 0, 4, 4),
        (Time::Contended(7.0, 0.21), 0, 20, 16),
        (Time::Uniform(3.5, 3.8), 1, 16, 4),
        (Time::Uniform(1.7, 2.1), 0, 7, 0),
    ];
    let mut line = Line::new(pacing, &[Some(64), Some(1)], &stages, memory).seed(7);
    line.run(100);
    (line.run(300).0, line)
}

fn main() {
    let seconds = |rate: f64| if rate > 0.0 { 10.0 / rate } else { f64::INFINITY };
    for memory in [PLENTY, 100, 80, 60, 40, 24] {
        let (unpaced, mut free) = rate(Pacing::Unpaced, memory);
        let (paced, mut line) = rate(Pacing::Auto, memory);
        let (unpaced, paced, tokens) = (seconds(unpaced), seconds(paced), line.pacer.tokens().to_vec());
        let (free, held) = (free.peak(), line.peak());
        println!("{memory} GiB: unpaced {unpaced:.1} s ({free} GiB), paced {paced:.1} s ({held} GiB), {tokens:?}");
    }
    let (unlimited, _) = rate(Pacing::Unpaced, PLENTY);
    let enough = |jobs: &u64| rate(Pacing::Fixed(*jobs), PLENTY).0 >= 0.99 * unlimited;
    let permits = (1..).find(enough).expect("some number");
    let (held, mut line) = rate(Pacing::Fixed(permits), PLENTY);
    println!("{permits} permits held to the end: {:.1} s ({} GiB)", seconds(held), line.peak());
}
