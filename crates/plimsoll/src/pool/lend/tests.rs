//! Lending a core, with real threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::pool::worker::{Hiring, Shared};
use crate::pool::{Pool, PoolConfig, Run, Task, Turn, block_on_external};

fn pool(threads: usize, spares: usize) -> Pool {
    Pool::new(PoolConfig { threads, spares, ..PoolConfig::default() }).expect("threads")
}

fn spin_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

fn is(flag: &AtomicBool) -> bool {
    flag.load(Ordering::SeqCst)
}

/// Cores lent, spares on duty, spares at rest.
fn count(pool: &Pool) -> (usize, usize, usize) {
    pool.shared().lending.count()
}

#[test]
fn a_lent_core_runs_other_work() {
    let pool = pool(1, 1);
    for _ in 0..50 {
        let meet = Barrier::new(2);
        // With one thread, each waits for the other for ever unless the first lends its core.
        thread::scope(|s| {
            s.spawn(|| pool.install(|| block_on_external(|| meet.wait())));
            s.spawn(|| pool.install(|| block_on_external(|| meet.wait())));
        });
    }
    assert_eq!(count(&pool).0, 0);
}

#[test]
fn a_spare_helps_the_job_of_the_lender() {
    let pool = pool(1, 1);
    let meet = Barrier::new(2);
    pool.install(|| crate::pool::join(|| block_on_external(|| meet.wait()), || meet.wait()));
}

/// A lends and comes back while a spare runs B. From then on the one core is A's: C waits until A has ended.
#[test]
fn a_core_that_is_taken_back_is_given_up_after_the_task() {
    let pool = pool(1, 1);
    let (back, a_ends, b_began, b_ends, c_ran) = Default::default();
    let [back, a_ends, b_began, b_ends, c_ran]: [&AtomicBool; 5] = [&back, &a_ends, &b_began, &b_ends, &c_ran];
    thread::scope(|s| {
        s.spawn(|| {
            pool.install(|| {
                block_on_external(|| spin_until(|| is(b_began)));
                back.store(true, Ordering::SeqCst);
                spin_until(|| is(a_ends));
                assert!(!is(c_ran), "the spare ran on a core that was not lent any more");
            });
        });
        spin_until(|| count(&pool).0 == 1);
        s.spawn(|| {
            pool.install(|| {
                b_began.store(true, Ordering::SeqCst);
                spin_until(|| is(b_ends));
            });
        });
        spin_until(|| is(back));
        s.spawn(|| pool.install(|| c_ran.store(true, Ordering::SeqCst)));
        spin_until(|| pool.has_queued_task());
        b_ends.store(true, Ordering::SeqCst);
        spin_until(|| count(&pool) == (0, 0, 1) || is(c_ran));
        a_ends.store(true, Ordering::SeqCst);
    });
    assert!(is(c_ran));
}

#[test]
fn there_are_no_more_threads_than_were_allowed() {
    let pool = pool(1, 2);
    let (go, ran) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                pool.install(|| {
                    block_on_external(|| spin_until(|| is(&go)));
                    ran.fetch_add(1, Ordering::SeqCst);
                });
            });
        }
        spin_until(|| count(&pool).0 == 3 && pool.has_queued_task());
        assert_eq!(count(&pool), (3, 2, 0));
        go.store(true, Ordering::SeqCst);
    });
    assert_eq!(ran.load(Ordering::SeqCst), 4);
    assert_eq!(pool.install(|| 7), 7);
}

#[test]
fn without_spares_the_core_lies_idle() {
    let pool = pool(1, 0);
    pool.install(|| block_on_external(|| assert_eq!(count(&pool), (1, 0, 0))));
    assert_eq!(count(&pool), (0, 0, 0));
}

#[test]
fn a_core_is_lent_once_and_comes_back_after_a_panic() {
    let pool = pool(2, 2);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        pool.install(|| {
            block_on_external(|| {
                block_on_external(|| assert_eq!(count(&pool).0, 1));
                panic!("outside");
            })
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(count(&pool).0, 0);
}

/// Each call blocks a worker of the one pool and lends its core, so that the other pool may call back.
#[test]
fn pools_may_call_each_other() {
    fn call(pools: [&Pool; 2], depth: usize) -> usize {
        let [a, b] = pools;
        if depth == 0 { 0 } else { 1 + a.install(|| call([b, a], depth - 1)) }
    }
    let (a, b) = (pool(1, 4), pool(1, 4));
    assert_eq!(call([&a, &b], 8), 8);
    thread::scope(|s| {
        for depth in 0..4 {
            let (a, b) = (&a, &b);
            s.spawn(move || assert_eq!(call([a, b], depth % 2 + 1), depth % 2 + 1));
        }
    });
}

#[test]
fn outside_of_a_pool_there_is_no_core_to_lend() {
    assert_eq!(block_on_external(|| 7), 7);
}

/// A pool that drains waits for nobody but the spare, which has the last task in hand, and goes to rest with it: the core is taken
/// back meanwhile.
#[test]
fn a_spare_that_took_the_last_task_says_so_before_it_rests() {
    let hiring = Hiring { name: "spare".to_owned(), stack_bytes: 1 << 20, pins: None };
    let (shared, workers) = Shared::new(1, 1, hiring);
    let (began, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = std::sync::Arc::new(crate::sync::Mutex::new(may_go_on));
    let submit = || {
        let (began, may_go_on) = (began.clone(), may_go_on.clone());
        let run = Box::new(move || {
            began.send(()).expect("the test listens");
            crate::sync::lock(&may_go_on).recv().expect("the test tells");
        });
        let tag = crate::pool::JobTag::fresh();
        let task = Task { tag, turn: Turn::UnderWay, stages_left: 0, priority: 0, run: Run::Stage(run) };
        assert!(shared.submit(task).is_ok());
    };
    // The pool's own worker has no thread: it sleeps for as long as nobody tells it of the end.
    workers[0].lend_core(|| {
        submit();
        has_begun.recv().expect("the spare is called");
        submit();
        shared.drain();
        go_on.send(()).expect("it waits");
        has_begun.recv().expect("it goes on with the last one");
        assert!(shared.injector.is_finished());
    });
    go_on.send(()).expect("it waits");
    let spares = shared.lending.threads();
    spin_until(|| spares[0].is_finished() || shared.lending.count().2 == 1);
    assert_eq!(shared.lending.count().2, 0, "it rests, and nobody was told");
    assert!(!shared.injector.is_to_be_told());
    spares.into_iter().for_each(|spare| spare.join().expect("no panic"));
}
