//! The pool's idle protocol, as shipped: push against sleep, latch against sleep, end against sleep.
#![cfg(plimsoll_loom)]

use loom_tests::{check, check_at_most};
use plimsoll::pool::{Pool, PoolConfig, join, scope};

fn pool(threads: usize) -> Pool {
    Pool::new(PoolConfig { threads, spares: 0, ..PoolConfig::default() }).expect("threads")
}

/// Three threads: explored with at most two preemptions, or they would take minutes.
fn check_bounded(model: impl Fn() + Sync + Send + 'static) {
    check_at_most(2, model);
}

/// Push against sleep: a lost wake-up leaves the caller waiting for ever, which loom reports as a deadlock.
#[test]
fn a_published_task_finds_a_worker() {
    check(|| {
        let pool = pool(1);
        assert_eq!(pool.install(|| 7), 7);
    });
}

/// End against sleep: closing finds a worker wherever it stands.
#[test]
fn an_idle_worker_ends_with_its_pool() {
    check(|| drop(pool(1)));
}

/// Two workers, so that the wrong one may be woken, or one that is just leaving.
#[test]
fn the_end_of_a_pool_reaches_all_workers() {
    check_bounded(|| drop(pool(2)));
}

/// Steal against pop, and the thief's latch against the owner's sleep.
#[test]
fn a_fork_runs_once_whoever_takes_it() {
    check_bounded(|| {
        let pool = pool(2);
        assert_eq!(pool.install(|| join(|| 1, || 2)), (1, 2));
    });
}

/// The same for the counting latch of a scope.
#[test]
fn a_scope_ends_after_its_spawn() {
    check_bounded(|| {
        let pool = pool(2);
        let mut done = false;
        pool.install(|| scope(|s| s.spawn(|| done = true)));
        assert!(done);
    });
}
