//! What the proof at the head of `job.rs` claims, small enough for miri.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pool::{Pool, PoolConfig, join, map_indices, scope};

fn pool(threads: usize) -> Pool {
    Pool::new(PoolConfig { threads, ..PoolConfig::default() }).expect("threads")
}

/// Counts how many are alive.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(alive: &'a AtomicUsize) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(alive)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_stolen_half_borrows_from_the_frame_and_writes_back() {
    let mut right = String::from("from");
    let meet = Barrier::new(2);
    let left = pool(2).install(|| {
        let a = || {
            meet.wait();
            String::from("left")
        };
        let b = || {
            meet.wait();
            right.push_str(" the frame");
        };
        join(a, b).0
    });
    assert_eq!((left.as_str(), right.as_str()), ("left", "from the frame"));
}

#[test]
fn a_half_that_is_not_stolen_runs_in_place() {
    let mut sum = vec![1];
    pool(1).install(|| join(|| (), || sum.push(2)));
    assert_eq!(sum, [1, 2]);
}

#[test]
fn spawns_borrow_from_outside_the_scope() {
    for threads in [1, 2] {
        let mut cells = vec![0; 4];
        pool(threads).install(|| {
            scope(|s| {
                for (i, cell) in cells.iter_mut().enumerate() {
                    s.spawn(move || *cell = i);
                }
            });
        });
        assert_eq!(cells, [0, 1, 2, 3]);
    }
}

#[test]
fn everything_captured_and_returned_is_dropped_once() {
    let alive = AtomicUsize::new(0);
    for threads in [1, 2] {
        for panic_in in [None, Some("a"), Some("b"), Some("scope")] {
            let pool = pool(threads);
            let run = || {
                pool.install(|| {
                    let (a, b, c) = (Counted::new(&alive), Counted::new(&alive), Counted::new(&alive));
                    let pair = join(
                        || {
                            assert_ne!(panic_in, Some("a"));
                            a
                        },
                        || {
                            assert_ne!(panic_in, Some("b"));
                            b
                        },
                    );
                    scope(|s| {
                        s.spawn(|| {
                            assert_ne!(panic_in, Some("scope"));
                            drop(c);
                        });
                    });
                    pair
                })
            };
            let result = catch_unwind(AssertUnwindSafe(run));
            assert_eq!(result.is_err(), panic_in.is_some());
            drop(result);
            assert_eq!(alive.load(Ordering::Relaxed), 0, "{threads} threads, panic in {panic_in:?}");
        }
    }
}

#[test]
fn what_is_left_beside_a_panic_may_panic_when_it_is_dropped() {
    struct Thorn;
    impl Drop for Thorn {
        fn drop(&mut self) {
            panic!("the thorn's");
        }
    }
    let pool = pool(2);
    let first = |run: &(dyn Fn() + Sync)| {
        let payload = catch_unwind(AssertUnwindSafe(|| pool.install(run))).expect_err("a panic");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the first"));
    };
    for stolen in [false, true] {
        let meet = || {
            let meet = Barrier::new(2);
            move || _ = stolen.then(|| meet.wait())
        };
        // A result, made before or after, and a closure that is not run.
        first(&|| {
            let meet = meet();
            let a = || {
                meet();
                Thorn
            };
            let b = || -> () {
                meet();
                panic!("the first")
            };
            std::mem::forget(join(a, b));
        });
        first(&|| {
            let (meet, thorn) = (meet(), Thorn);
            let a = || -> () {
                meet();
                panic!("the first")
            };
            let meets = &meet;
            let b = move || {
                // Of this one the destructor has nothing to say where it is run.
                std::mem::forget(thorn);
                meets();
                Thorn
            };
            std::mem::forget(join(a, b));
        });
    }
    // Several results at once, and outside of a pool.
    first(&|| {
        let some = |index| {
            assert!(index < 3, "the first");
            Thorn
        };
        std::mem::forget(map_indices(4, some));
    });
    let inline = |run: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the first"));
    };
    inline(&|| std::mem::forget(join(|| Thorn, || -> () { panic!("the first") })));
    inline(&|| {
        let thorn = Thorn;
        std::mem::forget(join(|| -> () { panic!("the first") }, move || thorn));
    });
    first(&|| {
        std::mem::forget(scope(|s| {
            s.spawn(|| panic!("the first"));
            Thorn
        }));
    });
    assert_eq!(pool.install(|| 7), 7);
}
