//! Checks and measurements on a real device: `gpu-check PART…`. `cargo xtask gpu` builds it; docs/gpu.md tells what comes out.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

mod cards;
mod circom;
mod circuits;
mod conform;
mod erased;
mod faults;
mod keys;
mod memory;
mod pieces;
mod prove;
mod setting;
mod speed;
mod stream;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A part's name, what it is, and the part.
type Part = (&'static str, &'static str, fn(&[String]) -> Outcome);

const PARTS: [Part; 18] = [
    ("info", "what there is", memory::info),
    ("conform", "LOW HIGH: the conformance harness from 2^LOW to 2^HIGH", conform::run),
    ("large", "LOW HIGH: closed forms from 2^LOW to 2^HIGH", conform::large),
    ("memory", "the arena's touched bytes against the plans, and the driver's free memory", memory::run),
    ("pieces", "LOG: what a proof is put together from, each against the processor", pieces::run),
    ("faults", "a neighbour that takes the memory, a context that breaks", faults::run),
    ("architecture", "that a device is refused for which this was not built", faults::architecture),
    ("proofs", "LOW HIGH [DIR]: proofs of each kind of circuit, verified and equal to the processor's", prove::conform),
    ("keys", "LOG: two keys in the room of one", keys::run),
    ("cards", "LOG PROOFS: a stream over all devices, and one that loses all but one of them on the way", cards::run),
    (
        "circom",
        "ZKEY WTNS: proofs with a key and a witness of circom's, verified and equal to the processor's",
        circom::run,
    ),
    ("erased", "LOG: what proofs have left on the device and in pinned memory when they are made", erased::run),
    ("full", "LOG KIND [ROUNDS]: the time of one proof alone (KIND: dense, boolean, sha256)", prove::full),
    ("key", "LOG KIND FILE: a key of the right shape, in bellperson's format, for other provers", prove::key),
    (
        "stream",
        "LOG KIND PROOFS MIB[p]…: a stream of proofs under each device budget (p: points pass through)",
        stream::run,
    ),
    ("pile-up", "LOG KIND PROOFS MIB: a stream of proofs by each policy", stream::pile_up),
    ("ntt", "times of transforms against their floor", speed::transforms),
    ("msm", "times of multiplications against their floor, uniform and skewed", speed::multiplications),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((_, _, part)) = args.first().and_then(|name| PARTS.iter().find(|part| part.0 == name)) else {
        eprintln!("usage: gpu-check PART [ARGUMENT…]");
        for (name, what, _) in PARTS {
            eprintln!("  {name:10} {what}");
        }
        return ExitCode::from(2);
    };
    let started = Instant::now();
    match part(&args[1..]) {
        Ok(()) => {
            println!("{}: passed in {:.1} s", args.join(" "), started.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{}: FAILED: {error}", args.join(" "));
            let mut cause = error.source();
            while let Some(error) = cause {
                println!("  because {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

/// A number among the arguments.
fn number(args: &[String], at: usize, otherwise: u32) -> Result<u32, std::num::ParseIntError> {
    args.get(at).map_or(Ok(otherwise), |text| text.parse())
}

/// The arena's size, from `PLIMSOLL_GPU_ARENA` in MiB.
fn arena_bytes(otherwise_mib: u64) -> u64 {
    let asked = std::env::var("PLIMSOLL_GPU_ARENA").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(otherwise_mib) << 20
}

/// A line at once, also into a file.
fn say(line: &str) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}
