//! Binding threads to the cores of the machine at hand.

use super::{Affinity, AffinityError, parse};
use crate::pool::{Pool, PoolConfig, PoolError};

fn pool(threads: usize, affinity: Affinity) -> Result<Pool, PoolError> {
    Pool::new(PoolConfig { threads, affinity, ..PoolConfig::default() })
}

#[test]
fn lists_of_cores_are_read_as_the_kernel_writes_them() {
    assert_eq!(parse("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
    assert_eq!(parse("0"), Some(vec![0]));
    assert_eq!(parse(""), Some(vec![]));
    assert_eq!(parse("0-x"), None);
}

#[cfg(not(all(feature = "affinity", target_os = "linux")))]
#[test]
fn without_the_feature_it_is_refused() {
    let refused = pool(1, Affinity::Cores(vec![0])).expect_err("refused");
    assert!(matches!(refused, PoolError::Affinity(AffinityError::Unsupported)));
}

#[cfg(all(feature = "affinity", target_os = "linux"))]
mod bound {
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    use super::super::{cores_of, imp};
    use super::*;
    use crate::pool::{block_on_external, join};

    /// What each worker of a pool of two may use.
    fn of_both(pool: &Pool) -> BTreeSet<Vec<usize>> {
        let meet = Barrier::new(2);
        let look = || {
            meet.wait();
            imp::allowed().expect("asked of the system")
        };
        let (a, b) = pool.install(|| join(look, look));
        [a, b].into()
    }

    #[test]
    fn workers_are_bound_to_the_cores_in_turn() {
        let allowed = imp::allowed().expect("asked of the system");
        let pool = pool(2, Affinity::Cores(allowed.clone())).expect("these cores may be used");
        let expected: BTreeSet<_> = (0..2).map(|i| vec![allowed[i % allowed.len()]]).collect();
        assert_eq!(of_both(&pool), expected);
        assert_eq!(imp::allowed().expect("asked of the system"), allowed, "the caller stays as it was");
    }

    #[test]
    fn workers_are_bound_to_the_cores_of_a_node() {
        let allowed = imp::allowed().expect("asked of the system");
        // A machine that has no /sys has no nodes either: then the refusal is what there is to see.
        let cores: Vec<_> = cores_of(0).into_iter().filter(|core| allowed.contains(core)).collect();
        match pool(2, Affinity::Nodes(vec![0])) {
            Ok(pool) => assert_eq!(of_both(&pool), [cores].into()),
            Err(error) => {
                assert!(cores.is_empty());
                assert!(matches!(error, PoolError::Affinity(AffinityError::NoNode { node: 0 })));
            }
        }
    }

    #[test]
    fn a_spare_may_use_all_cores_of_the_pool() {
        let allowed = imp::allowed().expect("asked of the system");
        let pool = pool(1, Affinity::Cores(allowed.clone())).expect("these cores may be used");
        let meet = Barrier::new(2);
        let spare = || {
            meet.wait();
            imp::allowed().expect("asked of the system")
        };
        let (_, of_spare) = pool.install(|| join(|| block_on_external(|| meet.wait()), spare));
        assert_eq!(of_spare, allowed);
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        let refused = |affinity| match pool(1, affinity).expect_err("refused") {
            PoolError::Affinity(error) => error,
            other => panic!("{other}"),
        };
        assert!(matches!(refused(Affinity::Cores(vec![])), AffinityError::Empty));
        assert!(matches!(refused(Affinity::Cores(vec![9999])), AffinityError::NotAllowed { core: 9999, .. }));
        assert!(matches!(refused(Affinity::Nodes(vec![9999])), AffinityError::NoNode { node: 9999 }));
    }
}
