//! Random worlds, each explored whole: four jobs of three kinds on two kinds of memory, of any shape, with everything that
//! can happen to a job.
//!
//! `PLIMSOLL_CHECK_WORLDS` says how many (60 otherwise), `PLIMSOLL_CHECK_SEED` which is the first; each world is made
//! from its own number, which a failure names. Thousands of them take minutes, in a release build.

use plimsoll::{Budget, Bytes, Class, Demand, Profile, Slots, Space};
use plimsoll_check::{CheckError, JobKind, ReservationKind, ResidencyKind, World};

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::device(0));
const LANE: Slots = Slots::new("lane");

/// SplitMix64 (Steele, Lea, Flood 2014): a world from a number, on every machine the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

fn demand([a, b, lanes]: [u64; 3]) -> Demand {
    Demand::new().bytes(A, Bytes(a)).bytes(B, Bytes(b)).slots(LANE, lanes)
}

/// Two or three stages, each of which needs what the one before kept or more, up to the limits.
fn profile(random: &mut Random, limits: [u64; 3], leaves: bool) -> Profile {
    const NAMES: [&str; 3] = ["first", "second", "third"];
    let stages = random.between(2, 3) as usize;
    let mut held = [0; 3];
    (0..stages).fold(Profile::new(), |profile, stage| {
        let last = stage + 1 == stages && !leaves;
        let mut draw = |low: [u64; 3], high: [u64; 3]| [0, 1, 2].map(|at| random.between(low[at], high[at]));
        let peak = draw(held, limits);
        let keep = if last { [0; 3] } else { draw([0; 3], peak) };
        held = keep;
        profile.stage(NAMES[stage], demand(peak), demand(keep))
    })
}

/// The worlds of the rules' own trial: jobs that arrive, run and are given up while they wait.
fn plain(random: &mut Random) -> World {
    let limits = [random.between(3, 6), random.between(1, 3), 0];
    let profiles = [0; 3].map(|_| profile(random, limits, false));
    let budget = Budget::new().space(Space::HOST, Bytes(limits[0])).space(Space::device(0), Bytes(limits[1]));
    let mut counts = [[0; 2]; 3];
    for _ in 0..4 {
        counts[random.between(0, 2) as usize][usize::from(random.one_in(3))] += 1;
    }
    let mut world = World::new(budget.bypass(random.between(0, 2) as u32));
    for (kind, counts) in counts.iter().enumerate() {
        for (priority, count) in counts.iter().enumerate().filter(|count| *count.1 > 0) {
            let name = format!("{} of priority {priority}", ["a", "b", "c"][kind]);
            let job = JobKind::new(&name, profiles[kind].clone()).priority(priority as i32).cancels();
            world = world.jobs(*count, job);
        }
    }
    world
}

/// Three jobs and a reservation, with lanes and whatever else may happen.
fn eventful(random: &mut Random) -> World {
    let limits = [random.between(3, 6), random.between(1, 3), random.between(1, 2)];
    let budget = Budget::new().space(Space::HOST, Bytes(limits[0])).space(Space::device(0), Bytes(limits[1]));
    let mut budget = budget.slots(LANE, limits[2]).bypass(random.between(0, 2) as u32);
    let mut share = limits;
    let reserve = random.one_in(4);
    if reserve {
        budget = budget.urgent_reserve(Space::HOST, Bytes(1));
        share[0] -= 1;
    }
    let mut world = World::new(budget);
    let child = random.one_in(3);
    if child {
        world = world.child("child", Budget::new().space(Space::HOST, Bytes(random.between(2, share[0]))));
    }
    for name in ["x", "y"] {
        let leaves = random.one_in(3);
        let mut job = JobKind::new(name, profile(random, share, leaves)).priority(i32::from(random.one_in(4)));
        job = match random.between(0, 6) {
            0 => job.cancels(),
            1 => job.fails(),
            2 => job.retries(1),
            3 => job.releases_early(),
            4 => job.withdraws(1),
            5 => job.tries_to_grow(A, Bytes(1)),
            _ => job.pauses(),
        };
        if child && random.one_in(2) {
            job = job.child("child");
        } else if reserve && random.one_in(2) {
            job = job.urgent();
        }
        world = world.jobs(random.between(1, 2) as usize, job);
    }
    if random.one_in(3) {
        let first = random.between(1, share[0] - 1);
        let kind = ReservationKind::new("reservation", A, Bytes(first));
        let kind = if random.one_in(2) { kind.grows_to(Bytes(random.between(first + 1, share[0]))) } else { kind };
        world = world.reservations(1, if random.one_in(4) { kind.retained() } else { kind.cancels() });
    }
    if random.one_in(4) {
        world = world.resize(Space::HOST, Bytes(random.between(1, 7)));
    }
    world
}

/// A job with room for parts in its first stage, its parts, and another job; any of them may be served in several ways.
fn family(random: &mut Random) -> World {
    let limits = [random.between(4, 7), random.between(1, 3), random.between(1, 2)];
    let budget = Budget::new().space(Space::HOST, Bytes(limits[0])).space(Space::device(0), Bytes(limits[1]));
    let mut budget = budget.slots(LANE, limits[2]).bypass(random.between(0, 2) as u32);
    let mut share = limits;
    if random.one_in(4) {
        budget = budget.urgent_reserve(Space::HOST, Bytes(2));
        share[0] -= 2;
    }
    let leaves = random.between(0, 1);
    let part = |random: &mut Random, leaves: u64| {
        let small = [share[0].div_ceil(2), share[1], share[2]];
        let first = [0, 1, 2].map(|at| random.between(0, small[at]));
        let last =
            [0, 1, 2].map(|at| random.between(first[at].max(if at == 0 { leaves } else { 0 }), small[at].max(1)));
        let profile = Profile::new().stage("begin", demand(first), demand(first));
        profile.stage("end", demand(last), demand([leaves, 0, 0]))
    };
    let shape = part(random, leaves);
    let count = random.between(1, 2);
    let own = random.between(0, 1);
    let whole = |own: u64| {
        let kept = [own + count * leaves, 0, 0];
        let profile = Profile::new().stage("parts", demand([own, 0, 0]), demand(kept)).parts(count, &shape);
        profile.stage("join", demand([kept[0], 0, 1]), demand([0; 3]))
    };
    let troubled = |random: &mut Random, job: JobKind| match random.between(0, 5) {
        0 => job.cancels(),
        1 => job.fails(),
        2 => job.releases_early(),
        3 => job.withdraws(1),
        4 => job.tries_to_grow(A, Bytes(1)),
        _ => job.pauses(),
    };
    let mut parent = JobKind::new("parent", whole(own)).priority(i32::from(random.one_in(3)));
    if random.one_in(3) {
        parent = parent.or(whole(1 - own));
    }
    if share != limits && random.one_in(2) {
        parent = parent.urgent();
    }
    let mut parts = JobKind::new("part", shape.clone()).part_of("parent");
    if random.one_in(2) {
        let leaves = leaves + u64::from(random.one_in(3));
        parts = parts.or(part(random, leaves));
    }
    let first = profile(random, share, false);
    let second = profile(random, share, false);
    let is_alike = first.stages().len() == second.stages().len();
    let mut other = JobKind::new("other", first);
    if is_alike {
        other = other.or(second);
    }
    let (parent, parts) = (troubled(random, parent), troubled(random, parts));
    let world = World::new(budget).jobs(1, parent).jobs(random.between(1, 3) as usize, parts);
    let other = troubled(random, other);
    let world = world.jobs(random.between(1, 2) as usize, other);
    if random.one_in(4) { world.resize(Space::HOST, Bytes(random.between(2, 8))) } else { world }
}

/// Jobs of two kinds that may be served in two ways, each of which needs keys of its own on the host and on a device, or none.
fn keyed(random: &mut Random) -> World {
    const KEYS: Class = Class::new("keys", Space::HOST);
    const KEYS_THERE: Class = Class::new("keys there", Space::device(0));
    let limits = [random.between(3, 5), random.between(2, 3), 1];
    let budget = Budget::new().space(Space::HOST, Bytes(limits[0])).space(Space::device(0), Bytes(limits[1]));
    let budget = budget.slots(LANE, limits[2]).bypass(random.between(0, 2) as u32);
    let mut world = World::new(budget);
    for (name, class, at) in [("here", KEYS, 0), ("there", KEYS_THERE, 1)] {
        let key = ResidencyKind::new(name, class, Bytes(random.between(1, limits[at] - 1)));
        world = world.residency(match random.between(0, 3) {
            0 => key.gives_up(1),
            1 => key.fails(1),
            _ => key,
        });
    }
    let share = [limits[0] - 1, limits[1] - 1, limits[2]];
    let needing = |random: &mut Random, job: JobKind| {
        ["here", "there"].iter().fold(job, |job, key| if random.one_in(2) { job.needing(key) } else { job })
    };
    for name in ["x", "y"] {
        let leaves = random.one_in(4);
        let (first, second) = (profile(random, share, leaves), profile(random, share, false));
        let is_alike = first.stages().len() == second.stages().len();
        let priority = i32::from(random.one_in(4));
        let mut job = needing(random, JobKind::new(name, first).priority(priority));
        if is_alike {
            job = needing(random, job.or(second));
        }
        job = match random.between(0, 6) {
            0 => job.cancels(),
            1 => job.fails(),
            2 => job.withdraws(1),
            3 => job.restarts(1),
            4 => job.retries_stages(1),
            5 => job.releases_early(),
            _ => job,
        };
        world = world.jobs(random.between(1, 2) as usize, job);
    }
    match random.between(0, 3) {
        0 => world.loses(Space::device(0)),
        1 => world.resize(Space::HOST, Bytes(random.between(1, 6))),
        _ => world,
    }
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")),
        Err(_) => default,
    }
}

/// Explores `PLIMSOLL_CHECK_WORLDS` worlds, or 60, or a fraction of that many where they are large; the floor is what 60 of
/// them have, and only asked for then.
fn explore_all(what: &str, fraction: u64, make: impl Fn(&mut Random) -> World, floor: usize) {
    let (all, seed) = (number("PLIMSOLL_CHECK_WORLDS", 60), number("PLIMSOLL_CHECK_SEED", 1));
    let worlds = all.div_ceil(fraction);
    let (mut states, mut too_large) = (0, 0);
    for number in seed..seed + worlds {
        let world = make(&mut Random(number)).states_max(200_000);
        match world.explore() {
            Ok(report) => states += report.states,
            Err(CheckError::TooLarge { .. }) => too_large += 1,
            Err(error) => panic!("{what} world {number}: {error}\nin {world:#?}"),
        }
    }
    println!("{what}: {worlds} worlds from {seed} on, {states} states; {too_large} too large");
    assert!(too_large * 20 <= worlds, "{what}: {too_large} of {worlds} worlds were too large to explore");
    if (all, seed) == (60, 1) {
        assert!(states >= floor, "{what}: {states} states, of {floor} at least");
    }
}

#[test]
fn random_worlds_of_jobs_that_wait_and_are_given_up() {
    explore_all("plain", 1, plain, 52_491);
}

#[test]
fn random_worlds_in_which_anything_may_happen() {
    explore_all("eventful", 1, eventful, 43_693);
}

#[test]
fn random_worlds_of_parts_and_alternatives() {
    explore_all("family", 10, family, 3_801);
}

#[test]
fn random_worlds_of_alternatives_with_keys_of_their_own() {
    explore_all("keyed", 12, keyed, 27_500);
}
