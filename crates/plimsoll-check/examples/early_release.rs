//! The permit that is given back too early: a way to 668 GiB, found in small.
//!
//! A proof's partitions are synthesised on the CPU, 16 GiB each, and proved on a GPU. A permit bounds how many are
//! synthesised at once. As long as it is given back when synthesis ends, it bounds running tasks, not the bytes that pile
//! up behind them. `cargo run -p plimsoll-check --example early_release` finds the pile-up and prints the way there; then it shows that the
//! same engine, when the bytes stay on the books until they are gone, stays below the line in every reachable state.

use plimsoll::{Budget, Bytes, Class, Demand, Profile, Slots, Space};
use plimsoll_check::{At, CheckError, JobKind, Report, World};

const PROVERS: Class = Class::new("provers", Space::HOST);
const PERMITS: Slots = Slots::new("synthesis permits");
const GPU: Slots = Slots::new("GPU lanes");

/// Room for two partitions, one of them in synthesis, one on the GPU.
fn budget() -> Budget {
    Budget::new().space(Space::HOST, Bytes(32 << 30)).slots(PERMITS, 1).slots(GPU, 1)
}

/// A partition with these bytes on the books while it is synthesised and proved, and between the two.
fn partition(bytes: Bytes) -> Profile {
    let held = Demand::new().bytes(PROVERS, bytes);
    Profile::new().stage("synthesise", held.clone().slots(PERMITS, 1), held.clone()).stage(
        "prove",
        held.slots(GPU, 1),
        Demand::new(),
    )
}

/// The permit comes back when synthesis ends, and the ledger knows nothing of the bytes.
pub(crate) fn permit_released_at_the_end_of_synthesis() -> Result<Report, CheckError> {
    let kind = JobKind::new("partition", partition(Bytes::ZERO)).really(partition(Bytes(16 << 30)));
    World::new(budget()).jobs(4, kind).explore()
}

/// The bytes are on the books from synthesis to the end of the proof.
pub(crate) fn bytes_kept_until_they_are_gone() -> Result<Report, CheckError> {
    let waits_for_the_gpu = |at| matches!(at, At::Waiting(1));
    World::new(budget())
        .jobs(4, JobKind::new("partition", partition(Bytes(16 << 30))))
        .invariant("at most one partition is made and not yet on the GPU", move |view| {
            match view.count("partition", waits_for_the_gpu) {
                0 | 1 => Ok(()),
                backlog => Err(format!("{backlog} are")),
            }
        })
        .explore()
}

fn main() {
    match permit_released_at_the_end_of_synthesis() {
        Ok(report) => println!("no pile-up: {report}"),
        Err(error) => {
            println!("with the permit released at the end of synthesis:\n{error}");
            if let Some(violation) = error.violation() {
                println!("the same as a diagram, for a mermaid viewer:\n{}", violation.trace.mermaid());
            }
        }
    }
    match bytes_kept_until_they_are_gone() {
        Ok(report) => println!("with the bytes kept until they are gone, every rule holds: {report}"),
        Err(error) => println!("with the bytes kept until they are gone:\n{error}"),
    }
}
