//! More of anything that a machine has never makes it slower, whatever the workload; and what the pacer makes of memory that is slower
//! than the drum is what the formulas say.

use plimsoll_sim::random::{Law, Random, Times, Use};
use plimsoll_sim::workload::Policy;
use plimsoll_sim::{End, Nanos, Options, Workload, plan, simulate, sweep};

use super::support::{example, porep, unlimited};

/// How much slower a run may be for what chance and whole jobs make of it.
const NOISE: f64 = 0.08;

/// PoRep with every time, size, and part of the machine another one.
fn another(seed: u64) -> Workload {
    let random = Random::new(seed);
    let mut drawn = 0;
    // From 1/e^spread to e^spread times as much.
    let mut times = |spread: f64| {
        drawn += 1;
        let unit = random.bits(0, drawn, Use::Other(9)) as f64 / u64::MAX as f64;
        libm::exp((2.0 * unit - 1.0) * spread)
    };
    let mut workload = porep(40);
    for stage in &mut workload.circuits[0].stages {
        let mean = stage.time.mean() as f64 * times(0.7);
        stage.time = Times::new(&Law::LogNormal(Nanos(mean as u64), libm::sqrt(stage.time.cv2()).max(0.01)));
        for take in stage.takes.iter_mut().filter(|take| take.class.space().device_number().is_none()) {
            take.bytes = (take.bytes as f64 * times(0.5)) as u64;
        }
    }
    let machine = &mut workload.machine;
    machine.pcie = (machine.pcie as f64 * times(1.0)) as u64;
    machine.slowdown_ppb = (machine.slowdown_ppb as f64 * times(1.0)) as u64;
    machine.workers = (machine.workers as f64 * times(0.6)) as u64;
    workload
}

/// The most that a job holds of host memory.
fn peak(workload: &Workload) -> u64 {
    let host = |held: &plimsoll_sim::workload::Holdings| -> u64 {
        held.peak.iter().filter(|entry| entry.0.space().device_number().is_none()).map(|entry| entry.1).sum()
    };
    workload.circuits[0].holdings().iter().map(host).max().expect("a stage")
}

fn seconds(workload: &Workload) -> f64 {
    let outcome = simulate(workload, Options::default());
    assert_eq!(outcome.end, End::Done);
    outcome.seconds_per_proof_steady
}

#[test]
fn more_of_anything_is_no_slower() {
    let mut worst = (0.0, String::new());
    for seed in 0..6 {
        let mut workload = if seed == 0 { porep(40) } else { another(seed) };
        let (least, each) = (plan::smallest_budget(&workload), peak(&workload) as f64);
        for jobs in [0.3, 1.0, 2.0, 3.0, 4.5] {
            let budget = |jobs: f64| Policy::plimsoll(least + (each * jobs) as u64);
            workload.policy = budget(jobs);
            let before = seconds(&workload);
            let mut with = |what: &str, change: &dyn Fn(&mut Workload)| {
                let mut more = workload.clone();
                change(&mut more);
                let off = seconds(&more) / before - 1.0;
                if off > worst.0 {
                    worst =
                        (off, format!("seed {seed}, room for {jobs} more, {what}: {off:.3} slower than {before:.1} s"));
                }
            };
            with("PCIe twice as fast", &|workload| workload.machine.pcie *= 2);
            with("one more GPU", &|workload| workload.machine.devices += 1);
            with("twice the workers", &|workload| workload.machine.workers *= 2);
            with("twice the bandwidth", &|workload| workload.machine.slowdown_ppb /= 2);
            with("a little more memory", &|workload| workload.policy = budget(jobs + 0.25));
            with("much more memory", &|workload| workload.policy = budget(jobs + 1.5));
        }
    }
    assert!(worst.0 <= NOISE, "{}", worst.1);
}

/// What a card that is twice as fast makes of the incident's machine: memory sets the pace then, and that is no slower.
#[test]
fn a_faster_card_is_no_slower_where_memory_sets_the_pace() {
    let mut workload = porep(150);
    let before = seconds(&workload);
    workload.machine.pcie *= 2;
    let after = seconds(&workload);
    assert!(after <= 0.99 * before, "{after} s a proof, {before} with half of the PCIe");
}

/// Over all shipped workloads that are not held up by those who ask, and from the smallest budget to the whole machine.
#[test]
fn formulas_and_simulation_agree_at_every_budget() {
    let mut worst = (0.0, String::new());
    for (name, proofs) in [("porep32.toml", 40), ("snapdeals.toml", 40), ("windowpost.toml", 400)] {
        let mut workload = example(name);
        workload.streams[0].proofs = proofs;
        for budget in sweep::budgets(&workload, 16) {
            workload.policy = Policy::plimsoll(budget);
            let formulas = plan::forecast(&workload, 0).seconds_per_proof.expect("times are known");
            let off = seconds(&workload) / formulas - 1.0;
            if off.abs() > worst.0 {
                worst =
                    (off.abs(), format!("{name}, {budget} bytes: {formulas:.1} s a proof, and {off:+.3} simulated"));
            }
        }
    }
    assert!(worst.0 <= 0.15, "{}", worst.1);
}

/// A long line in which many wait for their turn: who waits for no more than that does not hold back those who come, for they would
/// come all at once then, and wait all at once, for ever.
#[test]
fn a_long_line_makes_no_waves() {
    let mut wide = porep(150);
    wide.machine.memory *= 8;
    (wide.machine.devices, wide.machine.workers) = (8, 192);
    wide.machine.slowdown_ppb /= 8;
    wide.policy = Policy::plimsoll(2000 << 30);
    let mut slow = porep(150);
    let witness = &mut slow.circuits[0].stages[0];
    assert_eq!(witness.name, "witness");
    witness.time = Times::new(&Law::Fixed(Nanos(12 * witness.time.mean())));
    slow.circuits[0].stages.iter_mut().for_each(|stage| stage.bandwidth_ppm = 0);
    slow.machine.workers = 256;
    slow.policy = Policy::plimsoll(660 << 30);
    for (what, workload) in [("eight devices", &wide), ("seventy jobs before one", &slow)] {
        let (is, may) = (seconds(workload), seconds(&unlimited(workload)));
        assert!(is <= 1.02 * may, "{what}: {is} s a proof, {may} without a line");
    }
}
