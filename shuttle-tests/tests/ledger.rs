//! Dozens of tasks over the shipped shell, scheduled by shuttle: too many for loom to explore, so at random, half of the
//! schedules with few preemptions (PCT), which is where bugs of depth two and three are.
#![cfg(plimsoll_shuttle)]

use std::time::Duration;

use plimsoll::{Budget, Bytes, Class, Ledger, Space};
use plimsoll_soak::actor;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, future, thread};

const A: Class = Class::new("a", Space::HOST);

/// Runs a test under so many schedules, half of each kind.
fn check(test: impl Fn() + Send + Sync + Clone + 'static) {
    let schedules = std::env::var("SHUTTLE_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let config = || {
        let mut config = Config::new();
        config.stack_size = 1 << 18;
        config
    };
    Runner::new(RandomScheduler::new(schedules / 2), config()).run(test.clone());
    Runner::new(PctScheduler::new(3, schedules.div_ceil(2)), config()).run(test);
}

/// Everything that actors do, by `tasks` of them at once.
fn actors(tasks: u64) {
    use shuttle::rand::Rng;
    let seed: u64 = shuttle::rand::thread_rng().r#gen();
    let ledger = actor::ledger(seed);
    let run = |task| {
        let ledger = ledger.clone();
        thread::spawn(move || actor::act(&ledger, seed.wrapping_add(task), 4))
    };
    let all: Vec<_> = (0..tasks).map(run).collect();
    for task in all {
        task.join().unwrap();
    }
    actor::check(&ledger);
    ledger.quiesce(Duration::MAX).unwrap();
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn ten_actors_give_everything_back() {
    check(|| actors(10));
}

#[test]
fn fifty_actors_give_everything_back() {
    check(|| actors(50));
}

#[test]
fn every_future_of_thirty_is_woken() {
    check(|| {
        let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(4)));
        let wait = |bytes: u64| {
            let ledger = ledger.clone();
            future::spawn(async move {
                let held = ledger.reserve(A, Bytes(1 + bytes % 4)).await.unwrap();
                future::yield_now().await;
                drop(held);
            })
        };
        let all: Vec<_> = (0..30).map(wait).collect();
        future::block_on(async {
            for task in all {
                task.await.unwrap();
            }
        });
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn closing_ends_the_waits_of_twenty() {
    check(|| {
        let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(1)));
        let held = ledger.reserve(A, Bytes(1)).try_now().unwrap();
        let wait = |_| {
            let ledger = ledger.clone();
            thread::spawn(move || assert!(ledger.reserve(A, Bytes(1)).wait().is_err()))
        };
        let all: Vec<_> = (0..20).map(wait).collect();
        ledger.close();
        for task in all {
            task.join().unwrap();
        }
        drop(held);
        assert!(ledger.snapshot().is_empty());
    });
}
