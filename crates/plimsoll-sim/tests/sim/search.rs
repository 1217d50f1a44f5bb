//! The search for trouble finds none in what is shipped.

use plimsoll_sim::search;

#[test]
fn random_worlds_break_nothing() {
    let findings = search::search(1, 100, |_| ());
    assert_eq!(findings.broken, [], "seeds, and what broke");
    assert_eq!(findings.worlds, 100);
    // The worlds are worth looking at: there are queues, waits and passing.
    assert!(
        findings.worst_backlog.0 >= 5 && findings.longest_wait.0.seconds() > 100.0 && findings.most_passed.0 >= 2,
        "{findings:?}"
    );
}

/// After the last seed comes the first: as many worlds are searched as were asked for.
#[test]
fn seeds_have_no_end() {
    let findings = search::search(u64::MAX, 3, |_| ());
    assert_eq!((findings.worlds, findings.broken.len()), (3, 0), "{findings:?}");
}

/// A seed is all that it takes to see a world again.
#[test]
fn a_seed_is_a_world() {
    for seed in [3, 77] {
        assert_eq!(search::run(seed), search::run(seed));
    }
}

/// The count from outside once found a bound broken here that was not: by a load that came after the grant, and by one for which another
/// residency had gone in the same call.
#[test]
fn what_cannot_be_told_apart_is_in_the_ledgers_favour() {
    for seed in [555_924, 556_599] {
        let (_, _, broken) = search::run(seed);
        assert_eq!(broken, None, "seed {seed}");
    }
}
