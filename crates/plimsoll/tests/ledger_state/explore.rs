//! Every reachable state of small worlds, breadth first. Each world is small; together they are many, and the number of
//! states has a floor so that the search cannot quietly shrink.

use std::collections::HashMap;

use plimsoll::{Bytes, Demand, Profile};

use crate::world::{A, CORE, D, Dice, Event, Key, Run, World};

/// Visits every reachable state and checks it. Returns their number.
fn explore(world: &World) -> usize {
    let start = world.start();
    let mut seen: HashMap<Key, usize> = HashMap::new();
    let mut queue: Vec<(Run, Option<(usize, Event)>)> = vec![(start.clone(), None)];
    seen.insert(world.key(&start), 0);
    let mut at = 0;
    while at < queue.len() {
        let run = queue[at].0.clone();
        for event in world.events(&run) {
            let mut next = run.clone();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                world.step(&mut next, event);
                world.check(&next);
            }));
            if let Err(panic) = result {
                eprintln!("{world:?}\nafter {:?}, {event:?}:\nbefore\n{run:?}after\n{next:?}", trace(&queue, at));
                std::panic::resume_unwind(panic);
            }
            if let std::collections::hash_map::Entry::Vacant(entry) = seen.entry(world.key(&next)) {
                entry.insert(queue.len());
                queue.push((next, Some((at, event))));
            }
        }
        at += 1;
    }
    queue.len()
}

/// The events that led to a state, oldest first.
fn trace(queue: &[(Run, Option<(usize, Event)>)], mut at: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some((before, event)) = queue[at].1 {
        events.push(event);
        at = before;
    }
    events.reverse();
    events
}

fn check(name: &str, worlds: impl Iterator<Item = World>, floor: usize) {
    let (mut count, mut states, mut largest) = (0, 0, 0);
    for world in worlds {
        let reached = explore(&world);
        count += 1;
        states += reached;
        largest = largest.max(reached);
    }
    println!("{name}: {states} states in {count} worlds, {largest} in the largest");
    assert!(states >= floor, "{name}: {states} states; the search has shrunk below {floor}");
}

/// Random worlds: limits, profiles, priorities and K all come from the seed.
fn random_world(seed: u64, jobs: usize, stages: u64, results: bool) -> World {
    let mut dice = Dice(seed);
    let limits = [dice.roll(3, 6), dice.roll(1, 3), dice.roll(1, 2)];
    let profiles: Vec<Profile> = (0..3)
        .map(|_| {
            let stages = dice.roll(2, stages) as usize;
            let result = results && dice.roll(0, 2) == 0;
            dice.profile(limits, stages, result)
        })
        .collect();
    let jobs =
        (0..jobs).map(|_| (profiles[dice.roll(0, 2) as usize].clone(), i32::from(dice.roll(0, 2) == 0))).collect();
    let bypass = dice.roll(0, 2) as u32;
    World { limits, bypass, jobs, trouble: false, resize: None, early: false }
}

#[test]
fn every_state_of_random_worlds_of_three_jobs() {
    check("three jobs", (0..60).map(|seed| random_world(seed, 3, 3, false)), 10_000);
}

#[test]
fn every_state_of_random_worlds_of_four_jobs() {
    check("four jobs", (100..120).map(|seed| random_world(seed, 4, 2, false)), 12_000);
}

#[test]
fn every_state_with_cancellation_and_failure_at_each_point() {
    let worlds = (200..230).map(|seed| World { trouble: true, ..random_world(seed, 3, 3, false) });
    check("trouble", worlds, 9_000);
}

#[test]
fn every_state_with_results_that_outlive_their_jobs() {
    let worlds = (300..340).map(|seed| World { trouble: seed % 2 == 0, ..random_world(seed, 3, 3, true) });
    check("results", worlds, 9_000);
}

#[test]
fn every_state_with_bytes_returned_before_the_stage_ends() {
    let worlds = (400..430).map(|seed| World { early: true, ..random_world(seed, 3, 3, false) });
    check("early release", worlds, 18_000);
}

#[test]
fn every_state_with_a_limit_lowered_or_raised_at_each_point() {
    let worlds = (500..540).map(|seed| {
        let world = random_world(seed, 3, 3, seed % 3 == 0);
        let at = [0, 0, 1, 2][(seed / 4 % 4) as usize];
        let other = if seed % 4 == 0 { world.limits[at] + 2 } else { world.limits[at].saturating_sub(1 + seed % 2) };
        World { resize: Some((at, other)), trouble: seed % 5 == 0, ..world }
    });
    check("resize", worlds, 15_400);
}

/// The shapes that made plausible rules deadlock: safety for growth only, the head of the queue owed the next bytes, a
/// token that bounds the jobs between two stages.
#[test]
fn every_state_of_the_worlds_that_break_plausible_rules() {
    let host = |bytes: u64| Demand::new().bytes(A, Bytes(bytes));
    let two = |peak, keep| Profile::new().stage("s0", host(peak), host(keep));
    let grows = two(2, 2).stage("s1", host(4), host(0));
    let porep = two(4, 4).stage("s1", host(15), host(4)).stage("s2", host(4), host(0));
    let token = |bytes, tokens| host(bytes).slots(CORE, tokens);
    let roped = Profile::new().stage("s0", token(1, 0), token(1, 0)).stage("s1", token(2, 1), token(2, 1)).stage(
        "s2",
        token(5, 1),
        host(0),
    );
    let unroped = two(2, 2).stage("s1", host(3), host(2)).stage("s2", host(3), host(0));
    let device = |bytes, device| host(bytes).bytes(D, Bytes(device));
    let crossing =
        |first: Demand, then: Demand| Profile::new().stage("s0", first.clone(), first).stage("s1", then, host(0));
    let plain = |limits, bypass, jobs| World { limits, bypass, jobs, trouble: true, resize: None, early: false };
    let worlds = [
        plain([4, 0, 0], 0, vec![(grows.clone(), 0); 2]),
        plain([4, 0, 0], 2, vec![(grows, 0), (two(3, 0), 1), (two(1, 0), 0), (two(1, 0), 0)]),
        plain([16, 0, 0], 8, vec![(porep, 0); 4]),
        plain([6, 0, 1], 8, vec![(roped, 0), (unroped, 0)]),
        plain(
            [3, 3, 0],
            1,
            vec![(crossing(device(2, 0), device(2, 2)), 0), (crossing(device(0, 2), device(2, 2)), 0), (two(1, 0), 0)],
        ),
    ];
    check("plausible rules", worlds.into_iter(), 1_200);
}
