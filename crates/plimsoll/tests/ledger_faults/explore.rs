//! The worlds, breadth first. The number of states has a floor, so that the search cannot quietly shrink.

use std::collections::HashSet;

use plimsoll::{Bytes, Demand, Profile};

use crate::world::{A, CORE, D, Kind, World};

/// So many bytes of host memory, of the device's, and cores.
fn demand([a, d, cores]: [u64; 3]) -> Demand {
    Demand::new().bytes(A, Bytes(a)).bytes(D, Bytes(d)).slots(CORE, cores)
}

fn kind<const N: usize>(stages: [([u64; 3], [u64; 3]); N]) -> Kind {
    let names = ["s0", "s1", "s2"];
    let stages = stages.into_iter().zip(names);
    let profile =
        stages.fold(Profile::new(), |profile, ((peak, keep), name)| profile.stage(name, demand(peak), demand(keep)));
    Kind { profile, priority: 0, alone: false, keeps: false, retries: 0, restarts: 0 }
}

/// Made on the host, grows, computed on the device; keeps its input until that is done.
fn partition() -> Kind {
    kind([([1, 0, 0], [1, 0, 0]), ([3, 0, 1], [3, 0, 0]), ([3, 1, 1], [0, 0, 0])])
}

/// Needs no device.
fn plain() -> Kind {
    kind([([2, 0, 0], [1, 0, 0]), ([3, 0, 1], [0, 0, 0])])
}

fn world(limits: [u64; 3], bypass: u32, jobs: Vec<Kind>) -> World {
    World { limits, bypass, jobs, resizes: Vec::new(), loses: false, cancels: false }
}

fn check(name: &str, floor: usize, world: &World) {
    let start = world.start();
    let mut seen = HashSet::from([world.key(&start)]);
    let mut queue = vec![(start, Vec::new())];
    let mut at = 0;
    while at < queue.len() {
        let (run, trace) = queue[at].clone();
        for event in world.events(&run) {
            let mut trace: Vec<_> = trace.clone();
            trace.push(event);
            let mut next = run.clone();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                world.step(&mut next, event);
                world.check(&next);
            }));
            if let Err(panic) = result {
                eprintln!("{name}, after {trace:?}");
                std::panic::resume_unwind(panic);
            }
            if seen.insert(world.key(&next)) {
                queue.push((next, trace));
            }
        }
        at += 1;
    }
    println!("{name}: {} states", queue.len());
    assert!(queue.len() >= floor, "{name}: {} states, of {floor} at least", queue.len());
}

#[test]
fn stages_are_run_again() {
    let again = |kind: Kind| Kind { retries: 1, ..kind };
    for (bypass, floors) in [(0, [1160, 1434]), (1, [1312, 1546])] {
        let jobs = vec![again(partition()), again(partition()), plain()];
        check("retry", floors[0], &world([6, 1, 1], bypass, jobs.clone()));
        let world = World { cancels: true, ..world([5, 1, 2], bypass, jobs) };
        check("retry and cancel", floors[1], &world);
    }
}

#[test]
fn jobs_begin_again() {
    let again = |kind: Kind| Kind { restarts: 1, ..kind };
    for (bypass, floor) in [(0, 880), (1, 904)] {
        let jobs = vec![again(partition()), again(plain()), plain()];
        check("from the start, holding nothing", floor, &world([5, 1, 1], bypass, jobs));
        let keeps = |kind: Kind| Kind { keeps: true, retries: 1, ..again(kind) };
        let jobs = vec![keeps(partition()), keeps(plain())];
        let world = World { cancels: true, ..world([5, 1, 1], bypass, jobs) };
        check("from the start, with the input", 821, &world);
    }
}

#[test]
fn limits_change_while_things_go_wrong() {
    let again = |kind: Kind| Kind { restarts: 1, retries: 1, ..kind };
    let jobs = vec![again(partition()), plain()];
    let resizes = vec![(0, 3), (2, 0), (0, 7), (2, 2)];
    check("spaces and slots", 919, &World { resizes, ..world([6, 1, 1], 1, jobs) });
}

#[test]
fn a_device_is_lost_at_each_point() {
    let again = |kind: Kind| Kind { retries: 1, restarts: 1, ..kind };
    for (bypass, floor) in [(0, 3544), (1, 3967)] {
        let jobs = vec![again(partition()), partition(), plain()];
        let world = World { loses: true, cancels: true, ..world([6, 1, 1], bypass, jobs) };
        check("lost", floor, &world);
    }
    let leaves = kind([([1, 2, 0], [1, 1, 0]), ([2, 2, 1], [0, 0, 0])]);
    let jobs = vec![leaves.clone(), leaves, partition()];
    let world = World { loses: true, resizes: vec![(0, 4)], ..world([6, 3, 2], 1, jobs) };
    check("lost, with bytes kept on it", 1425, &world);
}

#[test]
fn jobs_larger_than_a_limit_run_alone() {
    let large = Kind { alone: true, retries: 1, ..kind([([2, 0, 1], [2, 0, 0]), ([7, 1, 1], [1, 0, 0])]) };
    for bypass in [0, 1] {
        let jobs = vec![large.clone(), Kind { restarts: 1, ..large.clone() }, plain()];
        check("alone", 873, &World { cancels: true, ..world([5, 1, 1], bypass, jobs) });
    }
    let jobs = vec![large, plain(), partition()];
    let resizes = vec![(0, 8), (0, 4)];
    check("alone, or not", 3711, &World { resizes, loses: true, ..world([5, 1, 1], 1, jobs) });
}
