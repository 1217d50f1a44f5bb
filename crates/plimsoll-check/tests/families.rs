//! Every reachable state of worlds with parts and alternatives.

use plimsoll::{Budget, Bytes, Class, Demand, Profile, Slots, Space};
use plimsoll_check::{JobKind, ReservationKind, World};

const A: Class = Class::new("a", Space::HOST);
const B: [Class; 2] = [Class::new("b", Space::device(0)), Class::new("b", Space::device(1))];
const LANE: Slots = Slots::new("lane");

fn a(bytes: u64) -> Demand {
    Demand::new().bytes(A, Bytes(bytes))
}

fn host(limit: u64, bypass: u32) -> World {
    World::new(Budget::new().space(Space::HOST, Bytes(limit)).slots(LANE, 1).bypass(bypass))
}

/// Needs 3 and leaves 1.
fn part() -> Profile {
    Profile::new().stage("half", a(1), a(1)).stage("prove", a(3).slots(LANE, 1), a(1))
}

/// Claims 1 + n + 2.
fn whole(n: u64) -> Profile {
    Profile::new().stage("parts", a(1), a(n)).parts(n, &part()).stage("join", a(n + 1), a(0))
}

#[track_caller]
fn holds(name: &str, floor: usize, world: World) {
    match world.explore() {
        Ok(report) => {
            println!("{name}: {report}");
            assert!(report.states >= floor, "{name}: {} states, of {floor} at least", report.states);
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

fn proofs(n: u64) -> JobKind {
    JobKind::new("proof", whole(n))
}

fn partitions() -> JobKind {
    JobKind::new("partition", part()).part_of("proof")
}

fn other(bytes: u64) -> JobKind {
    JobKind::new("other", Profile::new().stage("only", a(bytes), a(0)))
}

#[test]
fn parts_go_with_the_requests_of_jobs_in_flight() {
    for (bypass, floor) in [(0, 647), (1, 820)] {
        let world = host(6, bypass).jobs(2, proofs(2)).jobs(2, partitions()).jobs(1, other(5));
        holds(&format!("two proofs of two parts, K={bypass}"), floor, world);
    }
}

#[test]
fn parts_and_parents_that_are_given_up_and_fail_at_each_point() {
    let world = || host(6, 1).jobs(1, other(3).priority(1));
    let given_up = world().jobs(1, proofs(2).cancels()).jobs(2, partitions().cancels());
    holds("given up", 288, given_up);
    holds("failing", 272, world().jobs(1, proofs(2).fails()).jobs(2, partitions().retries(1)));
    let late = world().jobs(1, proofs(2).cancels().pauses()).jobs(2, partitions().withdraws(1).pauses());
    holds("withdrawn", 572, late);
    let two = host(7, 1).jobs(2, proofs(2).cancels()).jobs(2, partitions().fails());
    holds("two of them", 1701, two);
    let greedy =
        host(7, 1).jobs(1, proofs(2).tries_to_grow(A, Bytes(1))).jobs(2, partitions().tries_to_grow(A, Bytes(2)));
    holds("taking more than declared", 365, greedy.jobs(1, other(3)));
}

#[test]
fn more_parts_than_their_parent_has_room_for() {
    let world = host(9, 1).jobs(1, proofs(2).cancels()).jobs(4, partitions().fails()).jobs(1, other(2));
    holds("twice as many", 369, world);
    let small = Profile::new().stage("prove", a(2), a(0));
    let world = host(6, 1).jobs(2, proofs(1)).jobs(3, JobKind::new("small", small).part_of("proof").cancels());
    holds("smaller ones that leave nothing", 557, world);
}

#[test]
fn a_parent_that_goes_on_before_its_parts_have_ended() {
    // The parts may be submitted one stage before there is room for them, and the last stage has none.
    let early = Profile::new().stage("split", a(2), a(1)).stage("parts", a(1), a(2)).parts(2, &part()).stage(
        "join",
        a(6),
        a(2),
    );
    let world = host(7, 1).jobs(1, JobKind::new("proof", early).cancels().pauses()).jobs(2, partitions().cancels());
    holds("split, parts, join", 726, world.jobs(1, other(4)));
}

#[test]
fn parts_of_parts() {
    let leaf = Profile::new().stage("leaf", a(2), a(1));
    let middle = Profile::new().stage("leaves", a(0), a(2)).parts(2, &leaf).stage("join", a(3), a(1));
    let top = Profile::new().stage("middles", a(1), a(2)).parts(2, &middle).stage("join", a(2), a(0));
    let world = host(6, 1)
        .jobs(1, JobKind::new("top", top).cancels())
        .jobs(2, JobKind::new("middle", middle).part_of("top").cancels())
        .jobs(2, JobKind::new("leaf", leaf).part_of("middle"))
        .jobs(1, other(3));
    holds("three generations", 7464, world);
}

#[test]
fn parts_in_children_and_in_the_urgent_reserve() {
    let tenant = Budget::new().space(Space::HOST, Bytes(5));
    let world = host(6, 1).child("tenant", tenant).jobs(1, proofs(2).child("tenant").cancels()).jobs(2, partitions());
    holds("a child's", 331, world.jobs(2, other(2)));
    let budget = Budget::new().space(Space::HOST, Bytes(8)).urgent_reserve(Space::HOST, Bytes(4)).slots(LANE, 1);
    let urgent = World::new(budget.bypass(1)).jobs(2, JobKind::new("proof", whole(1)).urgent().withdraws(1));
    holds("an urgent proof", 1762, urgent.jobs(1, partitions().fails()).jobs(1, other(3)));
}

#[test]
fn parts_while_limits_change_and_the_ledger_is_closed() {
    let world =
        host(8, 1).jobs(2, proofs(2)).jobs(2, partitions()).resize(Space::HOST, Bytes(4)).resize(Space::HOST, Bytes(6));
    holds("limits", 925, world);
    let world = host(6, 1).jobs(2, proofs(2).withdraws(1)).jobs(2, partitions().withdraws(1)).closes();
    holds("closed", 7992, world);
}

#[test]
fn parts_beside_reservations_that_grow() {
    let cache = ReservationKind::new("cache", A, Bytes(1)).grows_to(Bytes(2)).grows_to(Bytes(3)).cancels();
    let world = host(7, 1).jobs(1, proofs(2).cancels()).jobs(2, partitions()).reservations(2, cache);
    holds("two caches", 931, world);
    let key = ReservationKind::new("key", A, Bytes(1)).retained().tries_to_grow(Bytes(1));
    let world = host(7, 1).jobs(1, proofs(2)).jobs(2, partitions().cancels()).reservations(1, key).jobs(1, other(2));
    holds("a key that stays", 534, world);
}

/// Made on the host, proved on a device: 2 bytes of it, or 1 and slower.
fn proved_on(device: usize, bytes: u64) -> Profile {
    let made = a(1);
    Profile::new().stage("make", made.clone(), made.clone()).stage("prove", made.bytes(B[device], Bytes(bytes)), a(0))
}

fn devices(host: u64, first: u64, second: u64) -> World {
    let budget = Budget::new().space(Space::HOST, Bytes(host)).space(Space::device(0), Bytes(first));
    World::new(budget.space(Space::device(1), Bytes(second)).slots(LANE, 1).bypass(1))
}

#[test]
fn jobs_that_may_go_to_either_device() {
    let either = || JobKind::new("either", proved_on(0, 2)).or(proved_on(1, 2));
    let first = || JobKind::new("first", proved_on(0, 2));
    holds("either", 374, devices(4, 2, 2).jobs(3, either().cancels()).jobs(1, first()));
    let bound = Profile::new().stage("make", a(1).bytes(B[0], Bytes(1)), a(1).bytes(B[0], Bytes(1)));
    let bound = bound.stage("prove", a(1).bytes(B[0], Bytes(2)), a(0));
    let world = devices(3, 3, 2).jobs(2, JobKind::new("bound", bound).or(proved_on(1, 2)).withdraws(1));
    holds("bound once it has begun", 827, world.jobs(1, either().retries(1).pauses()));
}

#[test]
fn elastic_plans() {
    let elastic = || JobKind::new("elastic", proved_on(0, 3)).or(proved_on(0, 1));
    let world = devices(4, 4, 1).jobs(3, elastic().cancels().pauses()).jobs(1, JobKind::new("other", proved_on(0, 2)));
    holds("fewer bytes", 549, world);
    // The second plan is larger in its last stage: to change to it in between is only safe while there is room.
    let plan = |last: u64, keep: u64| {
        Profile::new().stage("make", a(2), a(keep)).stage("prove", a(3), a(keep)).stage("end", a(last), a(0))
    };
    let world = host(7, 0).jobs(3, JobKind::new("growing", plan(3, 2)).or(plan(5, 2)));
    holds("larger later", 43, world);
    let leaves = |n: u64| Profile::new().stage("make", a(2), a(2)).stage("end", a(3), a(n));
    let world = host(6, 1).jobs(3, JobKind::new("leaving", leaves(2)).or(leaves(1)).cancels()).jobs(1, other(3));
    holds("leaving less", 222, world);
}

#[test]
fn alternatives_that_no_longer_fit() {
    let elastic = JobKind::new("elastic", proved_on(0, 3)).or(proved_on(1, 1)).or(proved_on(0, 1));
    let world =
        devices(3, 3, 1).jobs(2, elastic.cancels().withdraws(1)).jobs(1, JobKind::new("large", proved_on(0, 3)));
    holds("a device that shrinks", 4028, world.resize(Space::device(0), Bytes(2)).resize(Space::device(1), Bytes(0)));
}

#[test]
fn urgent_jobs_with_alternatives() {
    let budget = Budget::new().space(Space::HOST, Bytes(5)).urgent_reserve(Space::HOST, Bytes(2)).slots(LANE, 1);
    let small = |n| Profile::new().stage("make", a(n), a(1)).stage("prove", a(n), a(0));
    let world = World::new(budget.bypass(1)).jobs(2, JobKind::new("urgent", small(3)).or(small(2)).urgent().cancels());
    holds("urgent", 1720, world.jobs(2, JobKind::new("ordinary", small(2)).withdraws(1)));
}

#[test]
fn parts_that_may_go_to_either_device() {
    let on = |device: usize| Profile::new().stage("prove", a(2).bytes(B[device], Bytes(1)), a(1));
    let whole = Profile::new().stage("parts", a(1), a(3)).parts(3, &on(0)).stage("join", a(3), a(0));
    let world = devices(7, 1, 1)
        .jobs(1, JobKind::new("proof", whole).cancels())
        .jobs(3, JobKind::new("partition", on(0)).or(on(1)).part_of("proof").withdraws(1).fails())
        .jobs(1, JobKind::new("other", proved_on(0, 1)));
    holds("parts on two devices", 1016, world);
    // By its other profile a part leaves more than its parent has reckoned with.
    let slow = Profile::new().stage("prove", a(2), a(2));
    let fast = Profile::new().stage("prove", a(3), a(1));
    let whole = Profile::new().stage("parts", a(2), a(4)).parts(2, &fast).stage("join", a(4), a(0));
    let world = host(6, 0)
        .jobs(2, JobKind::new("proof", whole))
        .jobs(2, JobKind::new("partition", fast).or(slow).part_of("proof").cancels());
    holds("parts that leave more", 160, world);
}

#[test]
fn parents_that_change_their_plan() {
    let plan = |n: u64| {
        let part = Profile::new().stage("prove", a(2), a(1));
        Profile::new().stage("split", a(1), a(1)).stage("parts", a(n), a(n + 2)).parts(2, &part).stage(
            "join",
            a(n + 2),
            a(0),
        )
    };
    let part = Profile::new().stage("prove", a(2), a(1));
    let world = host(7, 1)
        .jobs(2, JobKind::new("proof", plan(3)).or(plan(1)).cancels())
        .jobs(2, JobKind::new("partition", part).part_of("proof"))
        .jobs(1, other(4));
    holds("a parent with alternatives", 13582, world);
}
