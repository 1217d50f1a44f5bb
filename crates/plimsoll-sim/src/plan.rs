//! The planner: how much memory a workload needs, what it reaches with what there is, and what would make it faster.
//!
//! Each answer is given twice: worked out from the shipped certificate and the pacer's formulas (Erlang's loss formula among
//! them), and simulated.

mod asked;
mod together;

use std::cell::RefCell;

use plimsoll::pipeline::Certificate;
use plimsoll::pipeline::pacing::{Pacer, Pacing, Rope, Work};
use plimsoll::{Budget, Bytes, Space};

use self::asked::Asked;
pub use self::together::Together;
use crate::engine::ours::{budget, layout, profile};
use crate::engine::{End, Options, Outcome, Progress, simulate};
use crate::workload::{Policy, PolicyKind, Site, Workload};

/// What the planner says.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The smallest budget with which every circuit gets through: the largest claim, its residencies and the runtime.
    pub smallest_budget: u64,
    /// The smallest simulated budget with which no more than a hundredth is lost against the whole machine.
    pub enough: Option<u64>,
    /// The budget that was asked about.
    pub budget: u64,
    /// What it reaches, each circuit by itself, as the formulas say.
    pub circuits: Vec<Forecast>,
    /// What it reaches all together, as the formulas say.
    pub together: Option<Together>,
    /// The same, simulated.
    pub simulated: Outcome,
    /// Of how many proofs in all the simulations are, where that is fewer than the workload asks for.
    pub shortened: Option<u64>,
    /// What holds it up, in words.
    pub bottleneck: String,
    /// What would change it.
    pub changes: Vec<Change>,
    /// What to set.
    pub settings: Vec<(&'static str, String)>,
}

/// What the formulas say of one circuit, alone on the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// The circuit.
    pub circuit: String,
    /// The certificate: smallest limits, backlogs, peaks.
    pub certificate: Certificate,
    /// Seconds a proof in steady state, of as many as are asked for.
    pub seconds_per_proof: Option<f64>,
    /// Seconds a proof in steady state if as many as possible are asked for.
    pub alone: Option<f64>,
    /// What is asked for is less than the machine could do.
    pub by_asking: Option<String>,
    /// Seconds that a proof takes at least.
    pub latency: f64,
    /// Seconds that the first one takes at least, with the loads of what is not there when it begins.
    pub first: f64,
    /// How many times slower what competes for memory bandwidth becomes.
    pub(crate) stretch: f64,
    /// What is held of host memory on average, residencies and runtime included.
    pub host_expected: Option<u64>,
    /// Jobs in progress.
    pub jobs: Option<u64>,
    /// The slowest station.
    pub drum: Option<&'static str>,
    /// Memory is slower than that.
    pub by_memory: bool,
}

/// One change of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What is changed.
    pub what: &'static str,
    /// Seconds a proof by the formulas, of all circuits together.
    pub analytic: Option<f64>,
    /// Simulated, of everything.
    pub simulated: Option<f64>,
    /// The part of the present seconds a proof that it saves, simulated.
    pub saves: f64,
}

/// The smallest budget with which every circuit gets through, alone: also beside what is set aside for urgent jobs, where it is
/// not urgent.
pub fn smallest_budget(workload: &Workload) -> u64 {
    let reserve = match workload.policy.kind {
        PolicyKind::Plimsoll { urgent_reserve, .. } => urgent_reserve,
        _ => 0,
    };
    let each = workload.circuits.iter().enumerate().map(|(at, circuit)| {
        let needs: u64 = circuit.needs.iter().map(|need| workload.residencies[*need].bytes).sum();
        let certificate = Certificate::new(&profile(workload, at, 0), &Budget::new());
        let host = certificate.smallest_spaces.iter().find(|entry| entry.0 == Space::HOST);
        let others = if circuit.urgent { 0 } else { reserve };
        host.map_or(0, |entry| entry.1.0) + needs + others
    });
    each.max().unwrap_or(0) + workload.machine.runtime
}

/// The same workload under our own policy with this budget.
fn with_budget(workload: &Workload, budget: u64) -> Workload {
    let mut workload = workload.clone();
    workload.policy = match workload.policy.kind {
        PolicyKind::Plimsoll { pacing, bypass, urgent_reserve, .. } => {
            Policy { kind: PolicyKind::Plimsoll { budget, pacing, bypass, urgent_reserve }, ..workload.policy.clone() }
        }
        _ => Policy::plimsoll(budget),
    };
    workload
}

/// More jobs than this say nothing new, and each plan is a score of simulations.
const JOBS_MAX: u64 = 4_000;

/// The same with fewer proofs, as many of each stream in proportion; and how many, if that is fewer.
fn shortened(workload: &Workload) -> (Workload, Option<u64>) {
    let jobs = |stream: &crate::workload::Stream| {
        u128::from(stream.proofs) * u128::from(workload.circuits[stream.circuit].parts)
    };
    let all: u128 = workload.streams.iter().map(jobs).sum();
    let mut workload = workload.clone();
    if all <= u128::from(JOBS_MAX) {
        return (workload, None);
    }
    for stream in &mut workload.streams {
        // Enough for a steady state, even of proofs of many parts.
        let fewer = (u128::from(stream.proofs) * u128::from(JOBS_MAX)).div_ceil(all) as u64;
        stream.proofs = fewer.max(stream.proofs.min(2));
    }
    let proofs = workload.streams.iter().map(|stream| stream.proofs).sum();
    (workload, Some(proofs))
}

/// What the formulas say of a circuit of a workload under our own policy.
pub fn forecast(workload: &Workload, at: usize) -> Forecast {
    let circuit = &workload.circuits[at];
    let limits = budget(workload);
    let devices = if circuit.device_stage().is_some() { workload.machine.devices } else { 1 };
    let profiles: Vec<_> = (0..devices.max(1)).map(|device| profile(workload, at, device)).collect();
    let certificate = Certificate::new(&profiles[0], &limits);
    let needs: u64 = circuit.needs.iter().map(|need| workload.residencies[*need].bytes).sum();
    let room = |space: Space| {
        let limit = limits.limit(space).unwrap_or_default();
        let resident = if space == Space::HOST { needs } else { 0 };
        limit.saturating_sub(Bytes(resident))
    };
    // Stages slow each other down, and how many run side by side follows from how fast the line is: until both agree.
    let mut work: Option<Work> = None;
    let mut stretch = 1.0;
    for _ in 0..32 {
        let mut pacer = Pacer::new(Pacing::Auto, layout(workload, at, &limits, &profiles), Rope::of(&profiles[0]));
        let class = pacer.classify_any(&profiles);
        pacer.set_limit(Space::HOST, room(Space::HOST));
        (0..devices).for_each(|device| pacer.set_limit(Space::device(device), room(Space::device(device))));
        let mean = |stage: &crate::workload::Stage| {
            let slowed = if stage.bandwidth_ppm > 0 { stretch } else { 1.0 };
            let transfer = stage.pcie as f64 * 1e9 / workload.machine.pcie as f64;
            (stage.time.mean() as f64 + transfer) * slowed
        };
        // Told in pairs above and below the mean, so that the differences have the law's variance.
        for turn in 0..64 {
            for (number, stage) in circuit.stages.iter().enumerate() {
                let off = libm::sqrt(stage.time.cv2() / 2.0) * stage.time.mean() as f64;
                let nanos = mean(stage) + if turn % 2 == 0 { off } else { -off };
                pacer.stage_ended(class, number, nanos.max(1.0) as u64, 0);
            }
        }
        work = pacer.forecast();
        let Some(work) = &work else { break };
        let beside: f64 = circuit
            .stages
            .iter()
            .filter(|stage| stage.bandwidth_ppm > 0)
            .map(|stage| work.rate * mean(stage) * 1e-9 * stage.bandwidth_ppm as f64 * 1e-6)
            .sum();
        let most = workload.machine.workers as f64;
        let slope = workload.machine.slowdown_ppb as f64 * 1e-9;
        let next = 1.0 + slope * (beside.min(most) - 1.0).max(0.0);
        if (next - stretch).abs() < 1e-9 {
            break;
        }
        stretch = (stretch + next) / 2.0;
    }
    let work = work.filter(|_| certificate.makes_progress());
    let alone = work.as_ref().map(|work| f64::from(circuit.parts) / work.rate);
    // A proof's parts go through everything beside each other, but one after another through the slowest station.
    let path: f64 = circuit
        .stages
        .iter()
        .map(|stage| {
            let slowed = if stage.bandwidth_ppm > 0 { stretch } else { 1.0 };
            (stage.time.mean() + workload.machine.transfer(stage.pcie).0) as f64 * 1e-9 * slowed
        })
        .sum();
    let latency = path + alone.unwrap_or(0.0) * (1.0 - 1.0 / f64::from(circuit.parts));
    // What it needs is loaded side by side.
    let needed = circuit.needs.iter().map(|need| &workload.residencies[*need]);
    let loads = needed.filter(|residency| !residency.preloaded).map(|residency| residency.load.seconds());
    let first = loads.fold(0.0, f64::max) + latency;
    let asked = asked::of(workload, at);
    let asked_seconds = match asked {
        Asked::Plenty => 0.0,
        Asked::AtATime(proofs) => latency / proofs as f64,
        Asked::EverySeconds(seconds) => seconds,
    };
    let by_asking = alone.filter(|alone| asked_seconds > 1.02 * alone).map(|alone| match asked {
        Asked::AtATime(1) => format!("one proof is asked for at a time; the machine could do one every {alone:.2} s"),
        Asked::AtATime(proofs) => {
            format!("{proofs} proofs are asked for at a time; with more the machine could do one every {alone:.2} s")
        }
        _ => format!("arrivals, one every {asked_seconds:.2} s; the machine could do one every {alone:.2} s"),
    });
    let held = |work: &Work| {
        let host = work.expected.iter().find(|entry| entry.0 == Space::HOST);
        // Little's law: so much less is under way.
        let part = alone.map_or(1.0, |alone| (alone / asked_seconds.max(alone)).min(1.0));
        host.map(|entry| (entry.1.0 as f64 * part) as u64 + needs + workload.machine.runtime)
    };
    Forecast {
        circuit: circuit.name.to_string(),
        seconds_per_proof: alone.map(|alone| alone.max(asked_seconds)),
        alone,
        by_asking,
        latency,
        first,
        stretch,
        host_expected: work.as_ref().and_then(held),
        jobs: work.as_ref().map(|work| work.jobs),
        drum: work.as_ref().map(|work| work.drum),
        by_memory: work.as_ref().is_some_and(|work| work.memory == Some(Space::HOST)),
        certificate: {
            let mut certificate = certificate;
            certificate.work = work;
            certificate
        },
    }
}

/// Plans a workload with a budget. `events_max` bounds each simulation, and `progress` is told how far each is.
pub fn plan(workload: &Workload, budget: u64, events_max: u64, progress: &mut dyn FnMut(&Progress)) -> Plan {
    let (workload, shortened) = &shortened(workload);
    let progress = RefCell::new(progress);
    let run = |workload: &Workload| {
        let mut told = |now: &Progress| (progress.borrow_mut())(now);
        simulate(workload, Options { events_max, progress: Some(&mut told), timeline: None })
    };
    let smallest = smallest_budget(workload);
    let whole = workload.machine.memory - workload.machine.others;
    let now = with_budget(workload, budget);
    let simulated = run(&now);
    let alone = workload.circuits.len() == 1;
    let per = |outcome: &Outcome| if alone { outcome.seconds_per_proof_steady } else { outcome.seconds_per_proof };
    let seconds = |outcome: &Outcome| (outcome.end == End::Done).then(|| per(outcome));
    let enough = seconds(&run(&with_budget(workload, whole))).map(|best| {
        let does = |budget: u64| seconds(&run(&with_budget(workload, budget))).is_some_and(|got| got <= 1.01 * best);
        // To a gibibyte; the curve falls but for noise.
        let (mut few, mut many) = (smallest, whole);
        if does(few) {
            return few;
        }
        while many - few > 1 << 30 {
            let middle = few + (many - few) / 2;
            if does(middle) { many = middle } else { few = middle }
        }
        many
    });
    let forecasts: Vec<Forecast> = (0..workload.circuits.len()).map(|at| forecast(&now, at)).collect();
    let changes = changes(&now, budget, &simulated, &run);
    let together = together::forecast(&now, &forecasts);
    let bottleneck = bottleneck(&now, &forecasts, together.as_ref(), &simulated);
    let mut settings = vec![
        ("budget", Bytes(budget.saturating_sub(workload.machine.runtime)).to_string()),
        ("pacing", "Pacing::Auto (nothing to set)".to_owned()),
        ("pool threads", workload.machine.workers.to_string()),
    ];
    if workload.machine.devices > 0 {
        settings.push(("lanes a device", workload.machine.lanes.to_string()));
    }
    for (circuit, tokens) in workload.circuits.iter().zip(&simulated.tokens) {
        if let [jobs, ..] = **tokens {
            settings
                .push(("work in progress it settles on", format!("{}: {jobs} jobs, ropes {tokens:?}", circuit.name)));
        }
    }
    Plan {
        smallest_budget: smallest,
        enough,
        budget,
        circuits: forecasts,
        together,
        simulated,
        shortened: *shortened,
        bottleneck,
        changes,
        settings,
    }
}

fn changes(now: &Workload, budget: u64, simulated: &Outcome, run: &dyn Fn(&Workload) -> Outcome) -> Vec<Change> {
    // Of several kinds of proofs there is no steady state: some come to their end before others begin.
    let alone = now.circuits.len() == 1;
    let seconds = |outcome: &Outcome| if alone { outcome.seconds_per_proof_steady } else { outcome.seconds_per_proof };
    let before = seconds(simulated);
    let mut tried: Vec<(&'static str, Workload)> = Vec::new();
    if now.machine.devices > 0 {
        let mut more = now.clone();
        more.machine.devices += 1;
        tried.push(("one more GPU", more));
    }
    let mut more = with_budget(now, budget + (64 << 30));
    more.machine.memory += 64 << 30;
    tried.push(("64 GiB more memory", more));
    if now.circuits.iter().any(|circuit| circuit.stages.iter().any(|stage| stage.pcie > 0)) {
        let mut more = now.clone();
        more.machine.pcie = more.machine.pcie.saturating_mul(2);
        tried.push(("PCIe twice as fast", more));
    }
    if now.machine.slowdown_ppb > 0 {
        let mut more = now.clone();
        more.machine.slowdown_ppb /= 2;
        tried.push(("twice the memory bandwidth", more));
    }
    let change = |(what, workload): (&'static str, Workload)| {
        let outcome = run(&workload);
        let simulated = (outcome.end == End::Done).then(|| seconds(&outcome));
        let saves = simulated.map_or(0.0, |after| if before > 0.0 { 1.0 - after / before } else { 0.0 });
        let forecasts: Vec<Forecast> = (0..workload.circuits.len()).map(|at| forecast(&workload, at)).collect();
        let together = || together::forecast(&workload, &forecasts).map(|together| together.seconds_per_proof);
        let analytic = if alone { forecasts[0].seconds_per_proof } else { together() };
        Change { what, analytic, simulated, saves }
    };
    tried.into_iter().map(change).collect()
}

fn bottleneck(workload: &Workload, forecasts: &[Forecast], together: Option<&Together>, simulated: &Outcome) -> String {
    match &simulated.end {
        End::Done => {}
        End::Refused { why } => return format!("nothing runs: {why}"),
        _ => return format!("it does not get through: {}", simulated.in_words()),
    }
    let of = |forecast: &Forecast| match (forecast.drum, forecast.by_memory) {
        _ if forecast.by_asking.is_some() => {
            format!("{}: {}", forecast.circuit, forecast.by_asking.as_deref().unwrap_or_default())
        }
        (_, true) => format!(
            "{}: memory. The jobs that fit make fewer than the machine could; {} would be next",
            forecast.circuit,
            forecast.drum.unwrap_or("nothing")
        ),
        (Some(drum), _) => {
            let what = match drum {
                "lease" => "the device, which computes for one job at a time",
                "lane" => "the lanes of the device",
                "pool" => "the CPU",
                other => other,
            };
            format!("{}: {what}", forecast.circuit)
        }
        (None, _) => format!("{}: {}", forecast.circuit, obstacles(forecast)),
    };
    let mut text: Vec<String> = forecasts.iter().map(of).collect();
    if let Some(together) = together.filter(|_| forecasts.len() > 1) {
        text.insert(0, format!("all together: {}", together.by));
        text[1].insert_str(0, "each alone: ");
    }
    if workload.machine.devices > 0 && workload.circuits.iter().any(|c| c.stages.iter().any(|s| s.on == Site::Device)) {
        text.push(format!("the devices compute {:.0} % of the time", 100.0 * simulated.device_busy));
    }
    text.join("; ")
}

fn obstacles(forecast: &Forecast) -> String {
    let obstacles: Vec<_> = forecast.certificate.obstacles.iter().map(ToString::to_string).collect();
    if obstacles.is_empty() { "nothing is known of its times".into() } else { obstacles.join("; ") }
}
