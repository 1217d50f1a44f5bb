//! Random ways through random worlds of `plimsoll-check`, with everything that it knows at once: residencies, parts,
//! alternatives, children, a reserve, lost devices, limits that change, jobs that begin again or run alone, the reaper.
//!
//! Its rules are the second oracle: what is granted, in which order, who may be passed, what is loaded, evicted and safe is
//! worked out from what the world declares, with no counter of the state machine.

use std::time::Duration;

use plimsoll::{Budget, Bytes, Class, Demand, Profile, Slots, Space};
use plimsoll_check::{CheckError, JobKind, Report, ReservationKind, ResidencyKind, World};

use crate::world::Dice;

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::device(0));
const C: Class = Class::new("c", Space::device(1));
const P: Class = Class::new("p", Space::PINNED);
const LANE: Slots = Slots::new("lane");
const KEYS: [(&str, Class); 4] = [
    ("key", Class::new("key", Space::HOST)),
    ("other key", Class::new("other key", Space::HOST)),
    ("table", Class::new("table", Space::device(0))),
    ("other table", Class::new("other table", Space::device(1))),
];

/// Goes one way through the world that a seed makes.
///
/// # Errors
///
/// The rule that does not hold, and the way there.
pub fn run(seed: u64) -> Result<Report, CheckError> {
    let mut dice = Dice(seed);
    let world = world(&mut dice);
    let report = world.walk(dice.roll(0, u64::MAX - 1))?;
    Ok(report)
}

/// The world of a seed, as it is declared.
pub fn declared(seed: u64) -> String {
    format!("{:#?}", world(&mut Dice(seed)))
}

struct Limits {
    host: u64,
    devices: [u64; 2],
    lanes: u64,
}

/// The world.
fn world(dice: &mut Dice) -> World {
    let limits = Limits { host: dice.roll(5, 12), devices: [dice.roll(2, 5), dice.roll(1, 4)], lanes: dice.roll(1, 3) };
    let mut budget = Budget::new()
        .space(Space::HOST, Bytes(limits.host))
        .space(Space::device(0), Bytes(limits.devices[0]))
        .space(Space::device(1), Bytes(limits.devices[1]))
        .space(Space::PINNED, Bytes(2))
        .slots(LANE, limits.lanes)
        .bypass(dice.roll(0, 3) as u32);
    let reserve = one_in(dice, 3);
    if reserve {
        budget = budget.urgent_reserve(Space::HOST, Bytes(dice.roll(1, 2)));
    }
    let mut world = World::new(budget).child("tenant", Budget::new().space(Space::HOST, Bytes(dice.roll(2, 5))));
    let mut names = Vec::new();
    for (name, class) in KEYS {
        if one_in(dice, 2) {
            let kind = ResidencyKind::new(name, class, Bytes(dice.roll(1, 3)));
            let kind = kind.rebuild(Duration::from_nanos(dice.roll(1, 4)));
            let kind = kind.gives_up(dice.roll(0, 2) as u8).fails(u8::from(one_in(dice, 3)));
            world = world.residency(if one_in(dice, 3) { kind.returns(Bytes(1)) } else { kind });
            names.push(name);
        }
    }
    for number in 0..dice.roll(2, 4) {
        world = add_jobs(dice, world, &limits, &names, &format!("kind {number}"), reserve);
    }
    if one_in(dice, 2) {
        let class = [A, B, P][dice.roll(0, 2) as usize];
        let kind = ReservationKind::new("reservation", class, Bytes(1)).cancels();
        let kind = if one_in(dice, 2) { kind.grows_to(Bytes(2)) } else { kind.frees_later() };
        let kind = if one_in(dice, 5) { kind.retained() } else { kind };
        world = world.reservations(dice.roll(1, 2) as usize, kind);
    }
    for _ in 0..dice.roll(0, 3) {
        world = match dice.roll(0, 2) {
            0 => world.resize(Space::HOST, Bytes(dice.roll(limits.host / 2, limits.host + 2))),
            1 => world.resize_slots(LANE, dice.roll(0, limits.lanes)),
            _ => world.resize_child("tenant", Space::HOST, Bytes(dice.roll(1, 5))),
        };
    }
    for device in 0..2 {
        if one_in(dice, 3) {
            world = world.loses(Space::device(device));
        }
    }
    if one_in(dice, 8) { world.closes() } else { world }
}

fn one_in(dice: &mut Dice, n: u64) -> bool {
    dice.roll(1, n) == 1
}

fn add_jobs(dice: &mut Dice, world: World, limits: &Limits, residencies: &[&str], name: &str, reserve: bool) -> World {
    let is_parent = one_in(dice, 3);
    let part = profile(dice, limits, 1, 3);
    let stages = dice.roll(1, 3) as usize;
    let mut kind = if is_parent {
        let count = dice.roll(1, 2);
        let left = part.stages().last().map_or(0, |stage| stage.keep.of(A));
        let first = Demand::new().bytes(A, Bytes(1));
        let joined = Demand::new().bytes(A, Bytes(1 + count * left));
        let parent = Profile::new().stage("s0", first.clone(), joined.clone()).parts(count, &part);
        JobKind::new(name, parent.stage("s1", joined, Demand::new()))
    } else {
        let mut kind = JobKind::new(name, profile(dice, limits, stages, 2));
        while one_in(dice, 3) {
            kind = kind.or(profile(dice, limits, stages, 2));
        }
        kind
    };
    let mut needed = Vec::new();
    for residency in residencies {
        if one_in(dice, 3) {
            kind = kind.needs(residency);
            needed.push(*residency);
        }
    }
    kind = kind.priority(dice.roll(0, 2) as i32 - 1);
    if one_in(dice, 4) {
        kind = kind.child("tenant");
    }
    if reserve && one_in(dice, 3) {
        kind = kind.urgent();
    }
    kind = trouble(dice, kind);
    if one_in(dice, 5) {
        kind = kind.alone_if_oversize();
    }
    kind = match dice.roll(0, 5) {
        0 => kind.restarts(1),
        1 => kind.restarts_with_its_input(1),
        _ => kind,
    };
    let world = world.jobs(if is_parent { 1 } else { dice.roll(1, 2) as usize }, kind);
    if !is_parent {
        return world;
    }
    let mut parts = JobKind::new(&format!("part of {name}"), part).part_of(name);
    if one_in(dice, 3) {
        parts = parts.or(profile(dice, limits, 1, 3));
    }
    for residency in needed {
        if one_in(dice, 2) {
            parts = parts.needs(residency);
        }
    }
    world.jobs(dice.roll(1, 2) as usize, trouble(dice, parts))
}

fn trouble(dice: &mut Dice, mut kind: JobKind) -> JobKind {
    if one_in(dice, 2) {
        kind = kind.cancels();
    }
    if one_in(dice, 3) {
        kind = kind.withdraws(1);
    }
    if one_in(dice, 3) {
        kind = kind.retries_stages(1);
    }
    if one_in(dice, 4) {
        kind = kind.fails();
    }
    if one_in(dice, 3) {
        kind = kind.pauses();
    }
    if one_in(dice, 4) {
        kind = kind.frees_later();
    }
    if one_in(dice, 5) {
        kind = kind.releases_early();
    }
    kind
}

/// Each stage holds at least what the one before has kept; the last one leaves at most a byte.
fn profile(dice: &mut Dice, limits: &Limits, stages: usize, share: u64) -> Profile {
    let most = [limits.host / share + 1, limits.devices[0], limits.devices[1], limits.lanes];
    let mut kept = [0; 4];
    let mut profile = Profile::new();
    for (stage, name) in (0..stages).zip(["s0", "s1", "s2"]) {
        let peak: [u64; 4] = std::array::from_fn(|at| {
            let high = if one_in(dice, 2) { most[at] } else { kept[at] };
            dice.roll(kept[at], high.max(kept[at]))
        });
        let last = stage + 1 == stages;
        kept = std::array::from_fn(|at| match at {
            0 if last => u64::from(one_in(dice, 3)).min(peak[0]),
            _ if last => 0,
            _ => dice.roll(0, peak[at]),
        });
        profile = profile.stage(name, demand(peak), demand(kept));
    }
    profile
}

fn demand([a, b, c, lanes]: [u64; 4]) -> Demand {
    Demand::new().bytes(A, Bytes(a)).bytes(B, Bytes(b)).bytes(C, Bytes(c)).slots(LANE, lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_walks_hold_every_rule() {
        let mut steps = 0;
        let mut seen = std::collections::BTreeMap::new();
        for seed in 0..150 {
            let report = run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            steps += report.transitions;
            for (event, times) in report.events {
                *seen.entry(event).or_insert(0) += times;
            }
        }
        println!("{steps} steps: {seen:?}");
        assert!(steps > 2_000, "{steps} steps in 150 walks");
        for event in ["take load", "give up load", "gone", "lose", "resize", "restart", "retry stage", "freed"] {
            assert!(seen.contains_key(event), "{event} never happens");
        }
    }

    /// Each of these once broke a rule, by a fault of the ledger or of the rules.
    #[test]
    fn walks_that_found_a_fault_pass() {
        const SEEDS: [u64; 13] =
            [7_308, 7_964, 9_580, 13_903, 19_016, 20_186, 21_818, 24_065, 25_004, 27_747, 43_835, 101_365, 110_090];
        for seed in SEEDS {
            run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}
