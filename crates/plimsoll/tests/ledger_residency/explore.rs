//! Every reachable state, breadth first; and that no sequence of events goes on for ever.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::check::check;
use crate::dice::Dice;
use crate::world::{Event, Key, Kind, Run, Shared, World};

/// A state (until it is expanded), and the one before it with the event between them.
type Reached = (Option<Run>, Option<(usize, Event)>);

/// Of a world with more states, these many are visited, those that are nearest to the beginning.
const STATES_MAX: usize = 600;

/// Visits every reachable state and checks it. Returns their number, and whether those were all.
fn explore(world: &World) -> (usize, bool) {
    let start = world.start();
    let mut seen: HashMap<Key, usize> = HashMap::from([(world.key(&start), 0)]);
    let mut queue: Vec<Reached> = vec![(Some(start), None)];
    let mut steps: Vec<Vec<usize>> = Vec::new();
    let mut at = 0;
    while at < queue.len() {
        let run = queue[at].0.take().expect("each is visited once");
        let mut successors = Vec::new();
        for event in world.events(&run) {
            let mut next = run.clone();
            let result = catch_unwind(AssertUnwindSafe(|| {
                world.step(&mut next, event);
                check(world, &next);
            }));
            if let Err(panic) = result {
                eprintln!("{world:?}\nafter {:?}, {event:?}:\nbefore\n{run:?}after\n{next:?}", trace(&queue, at));
                resume_unwind(panic);
            }
            let new = queue.len();
            let reached = *seen.entry(world.key(&next)).or_insert(new);
            if new == STATES_MAX {
                return (new, false);
            }
            if reached == new {
                queue.push((Some(next), Some((at, event))));
            }
            successors.push(reached);
        }
        steps.push(successors);
        at += 1;
    }
    assert!(is_acyclic(&steps), "something can go on for ever: {world:?}");
    (queue.len(), true)
}

/// Whether there is no way from a state back to itself: no ping-pong of loads and evictions.
fn is_acyclic(steps: &[Vec<usize>]) -> bool {
    let mut into = vec![0; steps.len()];
    steps.iter().flatten().for_each(|&to| into[to] += 1);
    let mut free: Vec<usize> = (0..steps.len()).filter(|at| into[*at] == 0).collect();
    let mut visited = 0;
    while let Some(at) = free.pop() {
        visited += 1;
        for &to in &steps[at] {
            into[to] -= 1;
            if into[to] == 0 {
                free.push(to);
            }
        }
    }
    visited == steps.len()
}

/// The events that led to a state, oldest first.
fn trace(queue: &[Reached], mut at: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some((before, event)) = queue[at].1 {
        events.push(event);
        at = before;
    }
    events.reverse();
    events
}

fn check_all(name: &str, worlds: impl Iterator<Item = World>, floor: usize) {
    let (mut count, mut whole, mut states) = (0, 0, 0);
    for world in worlds {
        let (reached, all) = explore(&world);
        count += 1;
        whole += usize::from(all);
        states += reached;
    }
    println!("{name}: {states} states in {count} worlds, {whole} of them wholly explored");
    assert!(whole * 2 >= count, "{name}: most of the worlds are too large");
    assert!(states >= floor, "{name}: {states} states; the search has shrunk below {floor}");
}

/// Random worlds: limits, residencies, jobs, priorities and K all come from the seed. What is shared fits one by one, and
/// seldom all at once.
fn random_world(seed: u64, jobs: usize) -> World {
    let mut dice = Dice(seed);
    let limits = [dice.roll(3, 6), dice.roll(2, 4)];
    let shared: Vec<Shared> = (0..dice.roll(2, 3))
        .map(|_| {
            let on_device = dice.roll(0, 2) == 0;
            let bytes = dice.roll(1, limits[usize::from(on_device)] - 1);
            Shared { on_device, bytes, rebuild: dice.roll(1, 3) }
        })
        .collect();
    let jobs = (0..jobs).map(|_| random_job(&mut dice, limits, shared.len() as u64)).collect();
    let bypass = dice.roll(0, 2) as u32;
    World { limits, bypass, shared, jobs, trouble: false, give_ups: 0, failures: 0, resize: None, closes: false }
}

fn random_job(dice: &mut Dice, limits: [u64; 2], shared: u64) -> Kind {
    let stages = dice.roll(0, 2);
    let mut kept = [0, 0];
    let stage = |stage: u64| {
        let peak = [dice.roll(kept[0], (limits[0] - 1).max(kept[0])), dice.roll(kept[1], (limits[1] - 1).max(kept[1]))];
        kept = if stage + 1 == stages { [0, 0] } else { [dice.roll(0, peak[0]), dice.roll(0, peak[1])] };
        (peak, kept)
    };
    let stages: Vec<_> = (0..stages).map(stage).collect();
    let mut needs: Vec<usize> = (0..dice.roll(0, 2)).map(|_| dice.roll(0, shared - 1) as usize).collect();
    needs.sort();
    needs.dedup();
    Kind { stages, needs, priority: i32::from(dice.roll(0, 2) == 0) }
}

#[test]
fn every_state_of_jobs_that_share_and_evict() {
    check_all("share and evict", (0..30).map(|seed| random_world(seed, 3)), 5_000);
}

#[test]
fn every_state_of_four_jobs_that_share() {
    check_all("four jobs", (1000..1008).map(|seed| random_world(seed, 4)), 2_800);
}

#[test]
fn every_state_with_loads_given_up_and_jobs_cancelled() {
    let worlds = (2000..2012).map(|seed| World {
        trouble: seed % 3 != 0,
        give_ups: 1,
        ..random_world(seed, 2 + (seed % 3 == 0) as usize)
    });
    check_all("given up", worlds, 3_900);
}

#[test]
fn every_state_with_loads_that_fail_for_all_who_wait() {
    let worlds = (3000..3015).map(|seed| World { failures: 1, give_ups: (seed % 2) as u8, ..random_world(seed, 3) });
    check_all("failed loads", worlds, 4_100);
}

#[test]
fn every_state_with_a_limit_lowered_or_raised_at_each_point() {
    let worlds = (4000..4015).map(|seed| {
        let world = random_world(seed, 3);
        let other = if seed % 4 == 0 { world.limits[0] + 2 } else { world.limits[0] - 1 - seed % 2 };
        World { resize: Some(other), trouble: seed % 5 == 0, ..world }
    });
    check_all("resize", worlds, 5_200);
}

#[test]
fn every_state_with_the_ledger_closed_at_each_point() {
    let worlds = (5000..5012).map(|seed| World { closes: true, trouble: seed % 3 == 0, ..random_world(seed, 3) });
    check_all("closed", worlds, 4_000);
}
