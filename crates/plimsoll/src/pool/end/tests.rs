//! The end of a pool, with real threads and jobs.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::pipeline::{JobError, Pipeline, Rejection};
use crate::pool::{Closed, Pool, PoolConfig, Run, Shutdown, Task, Turn};
use crate::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};

const BUFFER: Class = Class::new("buffer", Space::HOST);

fn pool(threads: usize) -> Pool {
    Pool::new(PoolConfig { threads, ..PoolConfig::default() }).expect("threads")
}

fn spin_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// One byte for all, that a job holds over both its stages; `first` is run in the first.
fn two_stages(pool: &Pool, first: impl Fn() + Send + Sync + 'static) -> (Ledger, Pipeline<(), (), ()>) {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(1)));
    let byte = || Demand::new().bytes(BUFFER, Bytes(1));
    let profile = move |_: &()| Profile::new().stage("one", byte(), byte()).stage("two", byte(), Demand::new());
    let pipeline = Pipeline::builder(&ledger, pool, profile)
        .stage("one", move |cx, ()| {
            first();
            Ok::<_, ()>(cx.grant().take_all(BUFFER))
        })
        .stage("two", |_, _held| Ok(()))
        .build()
        .expect("a pipeline");
    (ledger, pipeline)
}

#[test]
fn a_draining_pool_takes_nothing_new_and_ends_what_is_under_way() {
    for threads in [1, 3] {
        let pool = pool(threads);
        let meet: &Barrier = Box::leak(Box::new(Barrier::new(2)));
        let (ledger, pipeline) = two_stages(&pool, || _ = meet.wait());
        let running = pipeline.submit("running", ()).expect("taken on");
        let waiting = pipeline.submit("waiting for memory", ()).expect("taken on");
        thread::scope(|s| {
            let end = s.spawn(|| pool.shutdown(Shutdown::Drain));
            spin_until(|| !pool.is_open());
            assert!(matches!(pipeline.submit("late", ()).expect_err("refused").reason, Rejection::Closed));
            let Err(Closed(late)) = pool.try_install(|| 7) else { panic!("a closed pool runs nothing new") };
            assert_eq!(late(), 7);
            meet.wait();
            meet.wait();
            end.join().expect("no panic");
        });
        assert!(running.has_ended() && waiting.has_ended());
        assert_eq!((running.wait().ok(), waiting.wait().ok()), (Some(()), Some(())));
        assert!(ledger.snapshot().is_empty());
    }
}

#[test]
fn an_aborted_pool_ends_every_job_and_returns_what_it_held() {
    let pool = pool(1);
    let meet: &Barrier = Box::leak(Box::new(Barrier::new(2)));
    let (ledger, pipeline) = two_stages(&pool, || {
        meet.wait();
        meet.wait();
    });
    let jobs = ["running", "waiting for memory"].map(|name| pipeline.submit(name, ()).expect("taken on"));
    meet.wait();
    thread::scope(|s| {
        let end = s.spawn(|| pool.shutdown(Shutdown::Abort));
        // The one that waits is given up at once; the one that runs ends with its stage.
        spin_until(|| jobs[1].has_ended());
        assert!(!jobs[0].has_ended());
        meet.wait();
        end.join().expect("no panic");
    });
    for job in jobs {
        assert!(job.has_ended());
        assert!(matches!(job.wait(), Err(JobError::ShutDown { stage: "one" | "two", .. })));
    }
    assert!(ledger.snapshot().is_empty());
    assert!(pipeline.submit("late", ()).is_err());
    let (_, late) = two_stages(&pool, || {});
    assert!(late.submit("later", ()).is_err(), "a pipeline on a pool that has ended is closed");
}

#[test]
fn a_queued_call_is_given_back_by_an_abort() {
    let pool = pool(1);
    let meet = Barrier::new(2);
    thread::scope(|s| {
        let running = s.spawn(|| {
            pool.try_install(|| {
                meet.wait();
                meet.wait();
                1
            })
        });
        meet.wait();
        let queued = s.spawn(|| pool.try_install(|| 2));
        spin_until(|| pool.has_queued_task());
        let end = s.spawn(|| pool.shutdown(Shutdown::Abort));
        let Err(Closed(queued)) = queued.join().expect("no panic") else { panic!("it was never begun") };
        assert_eq!(queued(), 2);
        meet.wait();
        assert_eq!(running.join().expect("no panic").ok(), Some(1), "what runs goes on to its end");
        end.join().expect("no panic");
    });
}

#[test]
fn a_worker_that_ends_its_own_pool_goes_on() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        let pool = pool(2);
        pool.install(|| pool.shutdown(how));
        assert!(!pool.is_open());
        pool.shutdown(Shutdown::Drain);
    }
}

#[test]
fn a_drain_that_takes_too_long_is_aborted_by_a_second_call() {
    let pool = pool(1);
    let (ledger, pipeline) = two_stages(&pool, || {});
    let held = ledger.reserve(BUFFER, Bytes(1)).try_now().expect("free");
    let waiting = pipeline.submit("waiting for memory", ()).expect("taken on");
    let drained = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            pool.shutdown(Shutdown::Drain);
            drained.store(true, Ordering::SeqCst);
        });
        spin_until(|| !pool.is_open());
        assert!(!drained.load(Ordering::SeqCst) && !waiting.has_ended());
        pool.shutdown(Shutdown::Abort);
    });
    assert!(matches!(waiting.wait(), Err(JobError::ShutDown { stage: "one", .. })));
    drop(held);
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn another_pools_worker_may_wait_for_the_end() {
    let (one, other) = (pool(1), pool(1));
    let meet = Barrier::new(2);
    thread::scope(|s| {
        s.spawn(|| {
            other.install(|| {
                meet.wait();
                meet.wait();
                // Needs the worker that waits for the end: it has lent its core.
                assert_eq!(one.install(|| 7), 7);
            });
        });
        meet.wait();
        s.spawn(|| one.install(|| other.shutdown(Shutdown::Drain)));
        spin_until(|| !other.is_open());
        meet.wait();
    });
}

#[test]
fn a_worker_that_drops_the_last_handle_of_another_pool_lends_its_core() {
    let (one, other) = (pool(1), pool(1));
    let needs = one.clone();
    one.install(move || {
        let ending = other.shared().clone();
        let run = Box::new(move || {
            spin_until(|| !ending.injector.is_open());
            // Needs the worker that waits for the end of this.
            assert_eq!(needs.install(|| 7), 7);
        });
        let tag = crate::pool::JobTag::fresh();
        let task = Task { tag, turn: Turn::UnderWay, stages_left: 0, priority: 0, run: Run::Stage(run) };
        assert!(other.shared().submit(task).is_ok());
        drop(other);
    });
}

#[test]
fn a_worker_that_drops_a_pipeline_of_another_pool_lends_its_core() {
    let (one, other) = (pool(1), pool(1));
    let (began, has_begun) = std::sync::mpsc::channel();
    let needs = one.clone();
    let (_ledger, pipeline) = two_stages(&other, move || {
        began.send(()).expect("the test listens");
        // Needs the worker that waits for the end of this.
        assert_eq!(needs.install(|| 7), 7);
    });
    let ticket = pipeline.submit("job", ()).expect("taken on");
    one.install(move || {
        has_begun.recv().expect("it begins");
        drop(pipeline);
    });
    assert!(ticket.wait().is_err(), "it was given up after that stage");
}
