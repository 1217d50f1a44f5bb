//! What `with_rayon` promises, counted.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rayon::prelude::*;

use crate::pool::{Pool, PoolConfig, join, map_indices, with_rayon};
use crate::sync::{Mutex, lock};

fn pool(threads: usize) -> Pool {
    let name = "host".to_owned();
    Pool::new(PoolConfig { threads, name, ..PoolConfig::default() }).expect("threads")
}

/// How many are inside at once, and have been at most.
#[derive(Default)]
struct Gauge {
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    fn run(&self) {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        // Long enough that the others come.
        for _ in 0..100 {
            thread::yield_now();
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn never_do_more_threads_run_than_the_pool_has() {
    for threads in [1, 2, 3] {
        let pool = pool(threads);
        let gauge = Gauge::default();
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| pool.install(|| with_rayon(|| (0..64).into_par_iter().for_each(|_| gauge.run()))));
                s.spawn(|| pool.install(|| map_indices(16, |_| gauge.run())));
            }
        });
        assert!(gauge.most.load(Ordering::SeqCst) <= threads, "{} of {threads}", gauge.most.load(Ordering::SeqCst));
    }
}

#[test]
fn rayon_runs_on_the_workers_and_in_parallel() {
    let pool = pool(2);
    for _ in 0..20 {
        let meet = Barrier::new(2);
        let names = Mutex::new(HashSet::new());
        let side = || {
            meet.wait();
            lock(&names).insert(thread::current().name().map(str::to_owned));
        };
        pool.install(|| with_rayon(|| rayon::join(side, side)));
        let names: HashSet<_> = lock(&names).drain().flatten().collect();
        assert_eq!(names, ["host-0", "host-1"].map(str::to_owned).into());
    }
}

#[test]
fn forks_of_ours_inside_and_around_belong_to_the_same_job() {
    let pool = pool(2);
    for _ in 0..50 {
        let inside = || with_rayon(|| (0..8).into_par_iter().map(|i| join(|| i, || i * 10)).map(|(a, b)| a + b).sum());
        let (a, b): (usize, usize) = pool.install(|| join(inside, inside));
        assert_eq!((a, b), (308, 308));
        // Nested sections are one.
        assert_eq!(pool.install(|| with_rayon(|| rayon::join(inside, inside))), (308, 308));
    }
}

#[test]
fn what_was_spawned_has_run_and_panics_come_back() {
    let pool = pool(2);
    let ran: &AtomicUsize = Box::leak(Box::default());
    pool.install(|| with_rayon(|| (0..10).for_each(|_| rayon::spawn(|| _ = ran.fetch_add(1, Ordering::SeqCst)))));
    assert_eq!(ran.load(Ordering::SeqCst), 10);
    let panics: [fn(); 3] = [
        || with_rayon(|| panic!("body")),
        || with_rayon(|| (0..4).into_par_iter().for_each(|i| assert_ne!(i, 3, "item"))),
        || with_rayon(|| rayon::spawn(|| panic!("spawned"))),
    ];
    for panic in panics {
        assert!(catch_unwind(AssertUnwindSafe(|| pool.install(panic))).is_err());
        assert_eq!(pool.install(|| with_rayon(|| 7)), 7);
    }
}
