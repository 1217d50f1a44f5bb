//! How fast the simulator is, and so the admission path of production: `cargo run --release -p plimsoll-sim --example speed`.

use std::path::Path;
use std::time::Instant;

use plimsoll_sim::workload::Policy;
use plimsoll_sim::{Options, Workload, simulate};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/workloads");
    let porep = Workload::read(&folder.join("porep32.toml")).unwrap_or_else(|error| panic!("{error}"));

    let mut long = porep.clone();
    long.streams[0].proofs = 10_000;
    run("10,000 proofs of 10 partitions", &long);

    // Eight times the machine: about a hundred jobs in flight.
    let mut wide = long.clone();
    wide.machine.memory *= 8;
    (wide.machine.devices, wide.machine.workers) = (8, 192);
    wide.machine.slowdown_ppb /= 8;
    wide.policy = Policy::plimsoll(2000 << 30);
    run("the same on eight devices", &wide);

    // A hundred jobs in flight on one device.
    let mut slow = long;
    for stage in &mut slow.circuits[0].stages {
        let factor = if stage.name == "witness" { 12 } else { 1 };
        stage.time = plimsoll_sim::random::Times::new(&plimsoll_sim::random::Law::Fixed(plimsoll_sim::Nanos(
            stage.time.mean() * factor,
        )));
        stage.bandwidth_ppm = 0;
    }
    slow.machine.workers = 256;
    slow.policy = Policy::plimsoll(660 << 30);
    run("a hundred jobs in flight before one device", &slow);
}

fn run(what: &str, workload: &Workload) {
    let started = Instant::now();
    let outcome = simulate(workload, Options::default());
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{what}: {:?}, {} jobs, {} events in {seconds:.2} s: {:.2} million a second; tokens {:?}, {:.2} s a proof",
        outcome.end,
        outcome.jobs,
        outcome.events,
        outcome.events as f64 / seconds * 1e-6,
        outcome.tokens,
        outcome.seconds_per_proof_steady,
    );
}
