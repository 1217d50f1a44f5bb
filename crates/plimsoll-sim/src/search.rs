//! The search for trouble: random worlds under our own policy, with the invariants looked at after every event.
//!
//! Times, sizes, orders of arrival, residencies, devices and their loss, limits that change, stages that fail and jobs that are given up are
//! all chance, from one seed for each world, which is enough to see it again. What breaks is told with its seed; so are the
//! worlds with the worst backlog and the longest wait.

use crate::Nanos;
use crate::engine::{End, Options, Outcome, Trouble, simulate_troubled};
use crate::random::{Law, Random, Times, Use};
use crate::workload::{
    Arrivals, Circuit, Machine, Policy, PolicyKind, Residency, Site, Stage, Stream, Take, Workload, on_host,
};
use plimsoll::{Class, Space};

/// What a search came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Worlds that were run.
    pub worlds: u64,
    /// Events, each followed by a check.
    pub events: u64,
    /// Seeds of worlds in which something broke, and what.
    pub broken: Vec<(u64, String)>,
    /// The most products that were made and not taken, as a part of what the certificate allows; and the seed.
    pub worst_backlog: (u64, u64),
    /// The longest that a job waited to be admitted, and the seed.
    pub longest_wait: (Nanos, u64),
    /// The most that a waiting admission was passed by others, and the seed.
    pub most_passed: (u32, u64),
}

/// Runs `worlds` random worlds, from this seed on; after the last seed comes the first.
pub fn search(first: u64, worlds: u64, mut progress: impl FnMut(&Findings)) -> Findings {
    let mut findings = Findings::default();
    for world in 0..worlds {
        let seed = first.wrapping_add(world);
        findings.worlds += 1;
        // An invariant that the ledger itself asserts is broken as well, and its seed is what one needs to know.
        let Ok((outcome, passed, broken)) = std::panic::catch_unwind(|| run(seed)) else {
            findings.broken.push((seed, "it panics".to_owned()));
            progress(&findings);
            continue;
        };
        findings.events += outcome.events;
        if let Some(why) = broken {
            findings.broken.push((seed, why));
        }
        findings.worst_backlog = findings.worst_backlog.max((outcome.backlog_peak, seed));
        findings.longest_wait = findings.longest_wait.max((outcome.wait_longest, seed));
        findings.most_passed = findings.most_passed.max((passed, seed));
        progress(&findings);
    }
    findings
}

/// One world: what it came to, how often a waiting admission was passed at most, and what broke.
pub fn run(seed: u64) -> (Outcome, u32, Option<String>) {
    let (workload, mut trouble) = world(seed);
    let outcome = simulate_troubled(&workload, Options { events_max: 200_000, ..Options::default() }, &mut trouble);
    let broken = trouble.broken.take().or_else(|| match &outcome.end {
        End::Done => None,
        End::Refused { why } if trouble.may_refuse => {
            let _ = why;
            None
        }
        other => Some(format!("it ends with {other:?}")),
    });
    (outcome, trouble.most_passed, broken)
}

/// Numbers by name, for one world.
struct Dice {
    random: Random,
    thrown: u64,
}

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.thrown += 1;
        ((u128::from(self.random.bits(0, self.thrown, Use::Other(0))) * u128::from(most.max(1))) >> 64) as u64
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const NAMES: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

/// The world of a seed.
pub fn world(seed: u64) -> (Workload, Trouble) {
    let mut dice = Dice { random: Random::new(seed), thrown: 0 };
    let devices = dice.below(3) as u16;
    let residencies: Vec<Residency> = (0..dice.below(4)).map(|at| residency(&mut dice, at as usize)).collect();
    let circuits: Vec<Circuit> =
        (0..dice.between(1, 3)).map(|at| circuit(&mut dice, at as usize, devices, &residencies)).collect();
    // Between what the largest job needs alone and room for some.
    let needs = |circuit: &Circuit| -> u64 {
        let peak = circuit.holdings().iter().map(|held| on_host(&held.peak)).max().unwrap_or(0);
        peak + circuit.needs.iter().map(|need| residencies[*need].bytes).sum::<u64>()
    };
    let least = circuits.iter().map(needs).max().unwrap_or(1).max(1);
    let budget = least + dice.below(4 * least);
    let reserve = if dice.one_in(4) { dice.below(budget - least + 1) } else { 0 };
    let of_device = |held: &crate::workload::Holdings| -> u64 {
        held.peak.iter().filter(|entry| entry.0.space().device_number().is_some()).map(|entry| entry.1).sum()
    };
    let on_device = circuits.iter().flat_map(|circuit| circuit.holdings()).map(|held| of_device(&held)).max();
    let machine = Machine {
        memory: 1 << 40,
        others: 0,
        runtime: 0,
        pinned: 1 << 40,
        workers: dice.between(1, 8),
        slowdown_ppb: dice.below(200_000_000),
        pcie: 1 << 30,
        devices,
        device_memory: on_device.unwrap_or(0) * dice.between(1, 2),
        lanes: dice.between(1, 3),
    };
    let streams = (0..circuits.len()).map(|circuit| stream(&mut dice, circuit)).collect();
    let pacing = match dice.below(3) {
        0 => plimsoll::pipeline::Pacing::Auto,
        1 => plimsoll::pipeline::Pacing::Fixed(dice.between(1, 6)),
        _ => plimsoll::pipeline::Pacing::Unpaced,
    };
    let kind = PolicyKind::Plimsoll { budget, pacing, bypass: dice.below(9) as u32, urgent_reserve: reserve };
    let policy = Policy::new(kind);
    // Limits go up and down again, never below what the largest job needs: then nothing may be refused.
    let resizes: Vec<(u64, u64)> =
        (0..dice.below(5)).map(|_| (dice.below(400_000_000_000), least + reserve + dice.below(4 * least))).collect();
    let mut trouble = Trouble {
        resizes,
        cancelled_of_a_thousand: if dice.one_in(2) { dice.below(100) } else { 0 },
        check: true,
        ..Trouble::default()
    };
    // In some worlds devices are lost, and in some of them all are.
    if dice.one_in(2) {
        let lost = (0..devices).filter(|_| !dice.one_in(3)).collect::<Vec<_>>();
        trouble.losses = lost.into_iter().map(|device| (dice.below(200_000_000_000), device)).collect();
    }
    let name = format!("world {seed}");
    (Workload { name, machine, residencies, circuits, streams, policy, seed }, trouble)
}

fn residency(dice: &mut Dice, at: usize) -> Residency {
    let space = if dice.one_in(2) { Space::PINNED } else { Space::HOST };
    Residency {
        name: NAMES[at].into(),
        class: Class::new(["r1", "r2", "r3", "r4"][at], space),
        bytes: dice.between(1, 60),
        load: Nanos(dice.below(20_000_000_000)),
        preloaded: dice.one_in(3),
    }
}

fn circuit(dice: &mut Dice, at: usize, devices: u16, residencies: &[Residency]) -> Circuit {
    let count = dice.between(1, 5) as usize;
    let mut held: Vec<Class> = Vec::new();
    let mut stages = Vec::new();
    for &name in NAMES.iter().take(count) {
        let on = match dice.below(if devices > 0 { 4 } else { 1 }) {
            0 | 1 => Site::Worker,
            2 => Site::Lane,
            _ => Site::Device,
        };
        let mut takes = Vec::new();
        for class in 0..dice.below(3) as usize {
            let space = match (dice.below(4), on) {
                (0, Site::Lane | Site::Device) => Space::device(0),
                (1, _) => Space::PINNED,
                _ => Space::HOST,
            };
            let class = Class::new(["a", "b", "c"][class], space);
            // What is on a device does not leave it.
            let scratch = dice.one_in(3) || space.device_number().is_some();
            let grows = space.device_number().is_none() && dice.one_in(2);
            takes.push(Take { class, bytes: dice.between(1, 40), grows, scratch });
            if !scratch && !held.contains(&class) {
                held.push(class);
            }
        }
        let mut frees = Vec::new();
        held.retain(|class| {
            let goes = dice.one_in(3);
            frees.extend(goes.then_some((*class, None)));
            !goes
        });
        let mean = Nanos(dice.between(1_000_000, 30_000_000_000));
        let law = match dice.below(4) {
            0 => Law::Fixed(mean),
            1 => Law::Uniform(Nanos(0), Nanos(2 * mean.0)),
            2 => Law::Exponential(mean),
            _ => Law::LogNormal(mean, 0.5),
        };
        stages.push(Stage {
            name,
            on,
            at_most: dice.one_in(5).then(|| dice.between(1, 3)),
            time: Times::new(&law),
            pcie: 0,
            bandwidth_ppm: if dice.one_in(2) { 1_000_000 } else { 0 },
            takes,
            frees,
            failing_ppb: if dice.one_in(4) { dice.below(100_000_000) } else { 0 },
        });
    }
    let urgent = dice.one_in(5);
    Circuit {
        name: ["x", "y", "z"][at].into(),
        parts: dice.between(1, 4) as u32,
        priority: if urgent { 10 } else { dice.below(3) as i32 },
        urgent,
        deadline: None,
        needs: (0..residencies.len()).filter(|_| dice.one_in(2)).collect(),
        stages,
    }
}

fn stream(dice: &mut Dice, circuit: usize) -> Stream {
    let proofs = dice.between(5, 40);
    let arrivals = match dice.below(4) {
        0 => Arrivals::Batch,
        1 => Arrivals::ClosedLoop(dice.between(1, 10)),
        2 => Arrivals::Every(Nanos(dice.between(100_000_000, 20_000_000_000))),
        _ => Arrivals::Poisson(Nanos(dice.between(100_000_000, 20_000_000_000))),
    };
    Stream { circuit, arrivals, proofs }
}
