//! Random traces: whatever happens, the state machine grants what the oracle grants, in the same order.

use proptest::prelude::*;

use crate::oracle::Oracle;
use crate::world::random_world;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_state_machine_grants_what_the_oracle_grants(
        seed in any::<u64>(),
        jobs in 2usize..8,
        choices in proptest::collection::vec(any::<u16>(), 1..120),
    ) {
        let world = random_world(seed, jobs);
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
