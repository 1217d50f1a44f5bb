//! Every reachable state of small worlds: each rule of the ledger holds in all of them. A floor under the number of states
//! keeps the search from shrinking without anybody noticing.

use plimsoll::{Budget, Bytes, Class, Demand, Profile, Slots, Space};
use plimsoll_check::{JobKind, ReservationKind, World};

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::device(0));
const P: Class = Class::new("p", Space::PINNED);
const LANE: Slots = Slots::new("lane");

/// So many bytes of host memory, of the device's, and lanes.
fn demand(a: u64, b: u64, lanes: u64) -> Demand {
    Demand::new().bytes(A, Bytes(a)).bytes(B, Bytes(b)).slots(LANE, lanes)
}

fn budget(a: u64, b: u64, lanes: u64) -> Budget {
    Budget::new().space(Space::HOST, Bytes(a)).space(Space::device(0), Bytes(b)).slots(LANE, lanes)
}

/// Stages with what each needs and keeps.
fn profile<const N: usize>(stages: [([u64; 3], [u64; 3]); N]) -> Profile {
    const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];
    stages.into_iter().zip(NAMES).fold(Profile::new(), |profile, ((peak, keep), name)| {
        let [peak, keep] = [peak, keep].map(|[a, b, lanes]| demand(a, b, lanes));
        profile.stage(name, peak, keep)
    })
}

/// The shape of a partition: made on the host, grows, computed on a device.
fn partition() -> Profile {
    profile([([1, 0, 0], [1, 0, 0]), ([3, 0, 0], [3, 0, 0]), ([3, 1, 1], [0, 0, 0])])
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

#[test]
fn jobs_of_one_kind() {
    for (bypass, floor) in [(0, 357), (1, 439), (2, 459)] {
        let world = World::new(budget(7, 1, 1).bypass(bypass)).jobs(6, JobKind::new("partition", partition()));
        holds(&format!("six partitions, K={bypass}"), floor, world);
    }
}

#[test]
fn jobs_that_are_given_up_and_fail() {
    let world = || World::new(budget(6, 1, 1).bypass(1));
    let kind = || JobKind::new("partition", partition());
    holds("cancel and fail at each point", 277, world().jobs(4, kind().cancels().fails()));
    holds("retry and cancel", 590, world().jobs(3, kind().cancels().retries(1)));
    holds("retry, withdraw, pause", 3300, world().jobs(3, kind().retries(1).withdraws(1).pauses()));
    let greedy = kind().releases_early().tries_to_grow(A, Bytes(1)).cancels();
    holds("early release, growth beyond the claim", 2860, world().jobs(3, greedy));
}

#[test]
fn jobs_of_different_kinds() {
    for (bypass, floor) in [(0, 435), (1, 506), (2, 522)] {
        let world = World::new(budget(4, 2, 1).bypass(bypass))
            .jobs(2, JobKind::new("partition", partition()).cancels())
            .jobs(1, JobKind::new("large", profile([([4, 1, 0], [2, 0, 0]), ([4, 2, 1], [0, 0, 0])])).priority(1))
            .jobs(1, JobKind::new("small", profile([([1, 1, 0], [0, 0, 0])])));
        holds(&format!("partitions, a large and a small one, K={bypass}"), floor, world);
    }
}

#[test]
fn results_that_live_on() {
    let leaves = profile([([2, 0, 1], [1, 0, 0]), ([2, 1, 0], [1, 0, 0])]);
    let world = || World::new(budget(5, 1, 1).bypass(1)).jobs(2, JobKind::new("partition", partition()));
    let kind = JobKind::new("part", leaves.clone()).cancels().fails();
    holds("results dropped at any moment", 2093, world().jobs(3, kind));
    let kind = JobKind::new("part", leaves).cancels().holds_results_together();
    holds("results of a fan-out, with room for all", 593, world().jobs(2, kind));
    let parent = Profile::new()
        .stage("first part", demand(2, 0, 1), demand(1, 0, 0))
        .stage("second part", demand(3, 1, 0), demand(2, 0, 0))
        .stage("third part", demand(4, 0, 1), demand(3, 0, 0));
    holds("a parent that claims for its parts", 284, world().jobs(2, JobKind::new("parent", parent).cancels().fails()));
}

#[test]
fn free_standing_reservations() {
    let world = World::new(budget(5, 1, 1).bypass(1))
        .jobs(2, JobKind::new("partition", partition()))
        .reservations(2, ReservationKind::new("cache", A, Bytes(1)).grows_to(Bytes(2)).grows_to(Bytes(3)).cancels());
    holds("reservations that grow, beside jobs", 348, world);
    let world = World::new(budget(5, 1, 1).bypass(1))
        .jobs(2, JobKind::new("partition", partition()).cancels())
        .reservations(1, ReservationKind::new("key", A, Bytes(1)).retained().tries_to_grow(Bytes(1)))
        .reservations(1, ReservationKind::new("other key", A, Bytes(2)).retained().priority(1).cancels());
    holds("retained reservations beside jobs", 586, world);
    let world = World::new(budget(5, 1, 1).space(Space::PINNED, Bytes(2)).bypass(1))
        .jobs(2, JobKind::new("partition", partition()))
        .reservations(2, ReservationKind::new("staging", P, Bytes(1)).grows_to(Bytes(2)).tries_to_grow(Bytes(1)));
    holds("pinned memory counts twice", 281, world);
}

#[test]
fn limits_that_change() {
    let world = World::new(budget(6, 1, 1).bypass(1))
        .jobs(3, JobKind::new("partition", partition()).cancels())
        .resize(Space::HOST, Bytes(3))
        .resize(Space::HOST, Bytes(5));
    holds("down and up again", 372, world);
    let world = World::new(budget(6, 1, 1).bypass(1))
        .jobs(2, JobKind::new("partition", partition()).fails())
        .jobs(1, JobKind::new("other", profile([([4, 0, 0], [4, 0, 0]), ([5, 0, 0], [1, 0, 0])])))
        .reservations(1, ReservationKind::new("cache", A, Bytes(1)).grows_to(Bytes(2)))
        .resize(Space::HOST, Bytes(2));
    holds("below what jobs claim", 768, world);
    let lanes = || profile([([1, 0, 1], [1, 0, 1]), ([2, 0, 2], [0, 0, 0])]);
    let world = World::new(budget(5, 1, 4).bypass(1))
        .jobs(3, JobKind::new("two lanes", lanes()).cancels())
        .jobs(1, JobKind::new("one lane", profile([([1, 0, 1], [0, 0, 0])])))
        .resize_slots(LANE, 2)
        .resize_slots(LANE, 1)
        .resize_slots(LANE, 3);
    holds("fewer lanes, and more again", 1113, world);
}

#[test]
fn closing() {
    let world = World::new(budget(4, 1, 1).bypass(1))
        .jobs(3, JobKind::new("partition", partition()).cancels().withdraws(1))
        .reservations(1, ReservationKind::new("cache", A, Bytes(1)).grows_to(Bytes(2)))
        .closes();
    holds("closed at any moment", 4131, world);
}

#[test]
fn children() {
    for (bypass, floors) in [(0, [1049, 350]), (1, [1338, 394])] {
        let small = || profile([([1, 0, 0], [1, 0, 0]), ([2, 0, 1], [0, 0, 0])]);
        let world = World::new(budget(4, 1, 1).bypass(bypass))
            .child("tenant", Budget::new().space(Space::HOST, Bytes(2)))
            .jobs(2, JobKind::new("tenant's", small()).child("tenant").cancels())
            .jobs(2, JobKind::new("ours", small()))
            .jobs(1, JobKind::new("one", profile([([3, 0, 0], [0, 0, 0])])));
        holds(&format!("a child with a limit of its own, K={bypass}"), floors[0], world);
        let world = World::new(budget(4, 1, 1).bypass(bypass))
            .child("one", Budget::new().space(Space::HOST, Bytes(3)))
            .child("other", Budget::new().space(Space::HOST, Bytes(3)).slots(LANE, 1))
            .jobs(2, JobKind::new("one's", small()).child("one"))
            .jobs(2, JobKind::new("other's", small()).child("other"))
            .resize_child("one", Space::HOST, Bytes(2));
        holds(&format!("two children that share, K={bypass}"), floors[1], world);
    }
}

#[test]
fn the_urgent_reserve() {
    let small = || profile([([1, 0, 0], [1, 0, 0]), ([2, 0, 0], [0, 0, 0])]);
    for (bypass, floor) in [(0, 2913), (1, 3124)] {
        let world = World::new(budget(5, 1, 1).urgent_reserve(Space::HOST, Bytes(2)).bypass(bypass))
            .jobs(2, JobKind::new("urgent", small()).urgent().cancels())
            .jobs(2, JobKind::new("ordinary", small()))
            .jobs(1, JobKind::new("lane", profile([([1, 0, 1], [0, 0, 1]), ([2, 0, 1], [0, 0, 0])])).urgent());
        holds(&format!("a reserve, K={bypass}"), floor, world);
    }
}

#[test]
fn an_urgent_job_may_be_larger_than_what_others_share() {
    let world = World::new(budget(5, 1, 1).urgent_reserve(Space::HOST, Bytes(4)))
        .jobs(1, JobKind::new("urgent", profile([([3, 0, 0], [0, 0, 0])])).urgent())
        .jobs(1, JobKind::new("ordinary", profile([([1, 0, 0], [0, 0, 0])])));
    holds("urgent and large", 9, world);
}

#[test]
fn a_resized_space_keeps_its_reserve_within() {
    let world = World::new(budget(5, 1, 1).urgent_reserve(Space::HOST, Bytes(2)))
        .jobs(2, JobKind::new("urgent", profile([([2, 0, 0], [0, 0, 0])])).urgent())
        .jobs(2, JobKind::new("ordinary", profile([([2, 0, 0], [0, 0, 0])])))
        .resize(Space::HOST, Bytes(4))
        .resize(Space::HOST, Bytes(6));
    holds("resize with a reserve", 135, world);
}

#[test]
fn what_never_fits_is_refused_at_once() {
    let world = World::new(budget(4, 1, 1).bypass(1))
        .jobs(2, JobKind::new("partition", partition()).cancels())
        .jobs(1, JobKind::new("too large", profile([([1, 0, 0], [1, 0, 0]), ([5, 0, 0], [0, 0, 0])])))
        .jobs(1, JobKind::new("too many lanes", profile([([1, 0, 2], [0, 0, 0])])))
        .reservations(1, ReservationKind::new("too far", A, Bytes(1)).grows_to(Bytes(5)));
    holds("never fits", 240, world);
}

#[test]
fn everything_at_once() {
    let world = World::new(budget(6, 1, 2).urgent_reserve(Space::HOST, Bytes(1)).bypass(1))
        .child("tenant", Budget::new().space(Space::HOST, Bytes(3)))
        .jobs(1, JobKind::new("partition", partition()).cancels().retries(1).releases_early())
        .jobs(
            1,
            JobKind::new("tenant's", profile([([2, 0, 1], [1, 0, 0]), ([3, 0, 1], [1, 0, 0])])).child("tenant").fails(),
        )
        .jobs(
            1,
            JobKind::new("urgent", profile([([1, 0, 0], [1, 0, 0]), ([1, 1, 1], [0, 0, 0])])).urgent().withdraws(1),
        )
        .reservations(1, ReservationKind::new("cache", A, Bytes(1)).grows_to(Bytes(2)).child("tenant").cancels())
        .resize(Space::HOST, Bytes(4))
        .closes();
    holds("everything at once", 30_302, world);
}

/// The worlds in which rules that look right deadlock: safety checked for growth only, the head of the queue owed the next
/// bytes, only the most downstream job's need kept free, tokens beside the vector.
#[test]
fn worlds_in_which_other_rules_deadlock() {
    let a = |stages: &[(u64, u64)]| {
        stages.iter().fold(Profile::new(), |profile, (peak, keep)| {
            profile.stage("stage", demand(*peak, 0, 0), demand(*keep, 0, 0))
        })
    };
    let kind = |name: &str, stages: &[(u64, u64)]| JobKind::new(name, a(stages)).cancels();
    let host = |limit: u64, bypass: u32| World::new(Budget::new().space(Space::HOST, Bytes(limit)).bypass(bypass));
    let two = [(2, 2), (3, 0)];

    holds("two equal jobs", 15, host(4, 0).jobs(2, kind("job", &[(2, 2), (4, 0)])));
    let urgent = || kind("one of priority", &[(3, 0)]).priority(1);
    holds("one of priority at the head", 22, host(4, 0).jobs(1, kind("job", &two)).jobs(1, urgent()));
    let world = host(4, 2).jobs(1, kind("job", &two)).jobs(1, urgent()).jobs(2, kind("small", &[(1, 0)]));
    holds("passed by small ones", 320, world);
    let long = kind("long", &[(1, 1), (1, 1), (4, 0)]);
    holds("two pipelines", 190, host(5, 0).jobs(1, kind("job", &two)).jobs(1, long).jobs(1, kind("small", &[(1, 0)])));
    let porep = kind("partition", &[(4, 4), (15, 4), (4, 0)]);
    holds("PoRep's shape", 156, host(16, 8).jobs(5, porep));

    let token = |stages: &[([u64; 3], [u64; 3])]| {
        stages.iter().fold(Profile::new(), |profile, ([a, _, tokens], [keep, _, kept])| {
            profile.stage("stage", demand(*a, 0, *tokens), demand(*keep, 0, *kept))
        })
    };
    let one = token(&[([1, 0, 0], [1, 0, 0]), ([2, 0, 1], [2, 0, 1]), ([5, 0, 1], [0, 0, 0])]);
    let other = token(&[([2, 0, 0], [2, 0, 0]), ([3, 0, 1], [2, 0, 1]), ([3, 0, 1], [0, 0, 0])]);
    let world = World::new(budget(6, 0, 1).bypass(8));
    let world = world.jobs(2, JobKind::new("one", one).cancels()).jobs(2, JobKind::new("other", other).cancels());
    holds("a rope as a component of the vector", 931, world);
}
