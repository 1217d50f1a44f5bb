//! Random traces: whatever happens, the state machine grants what the oracle grants, in the same order.

use proptest::prelude::*;

use crate::oracle::Oracle;
use crate::world::{Dice, World};

/// A world of `jobs` jobs, everything switched on.
fn world(seed: u64, jobs: usize) -> World {
    let mut dice = Dice(seed);
    let limits = [dice.roll(3, 12), dice.roll(1, 4), dice.roll(1, 3)];
    // Some profiles are made for larger limits, and never fit.
    let wide = [limits[0] + 2, limits[1] + 1, limits[2]];
    let profiles: Vec<_> = (0..4)
        .map(|kind| {
            let (stages, result) = (dice.roll(1, 3) as usize, dice.roll(0, 3) == 0);
            dice.profile(if kind == 3 { wide } else { limits }, stages, result)
        })
        .collect();
    let jobs = (0..jobs).map(|_| (profiles[dice.roll(0, 3) as usize].clone(), dice.roll(0, 2) as i32 - 1)).collect();
    let at = dice.roll(0, 2) as usize;
    let resize = Some((at, if dice.roll(0, 3) == 0 { limits[at] + 3 } else { dice.roll(0, limits[at]) }));
    World { limits, bypass: dice.roll(0, 3) as u32, jobs, trouble: true, resize, early: true }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_state_machine_grants_what_the_oracle_grants(
        seed in any::<u64>(),
        jobs in 2usize..8,
        choices in proptest::collection::vec(any::<u16>(), 1..120),
    ) {
        let world = world(seed, jobs);
        let mut run = world.start();
        let mut oracle = Oracle::new(&world);
        let mut trace = Vec::new();
        for choice in choices {
            let events = world.events(&run);
            if events.is_empty() {
                break;
            }
            let event = events[usize::from(choice) % events.len()];
            trace.push(event);
            world.step(&mut run, event);
            world.check(&run);
            let expected = oracle.step(event);
            prop_assert_eq!((run.granted.clone(), run.refused.clone()), expected, "{:?} after {:?}", world, trace);
        }
    }
}
