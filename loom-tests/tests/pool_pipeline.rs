//! The pipeline's trips, as shipped: waking against parking, cancelling against driving, hand-over against shutdown.
#![cfg(plimsoll_loom)]

use plimsoll::pipeline::{JobError, Pipeline};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};

const BUFFER: Class = Class::new("buffer", Space::HOST);

fn pool() -> Pool {
    Pool::new(PoolConfig { threads: 1, spares: 0, ..PoolConfig::default() }).expect("a thread")
}

fn ledger() -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(1)))
}

fn one_stage(ledger: &Ledger, pool: &Pool) -> Pipeline<(), (), ()> {
    let all = || Demand::new().bytes(BUFFER, Bytes(1));
    Pipeline::builder(ledger, pool, move |_| Profile::new().stage("only", all(), Demand::new()))
        .stage("only", |_, ()| Ok(()))
        .build()
        .expect("a pipeline")
}

/// The job asks for a byte that another thread returns at the same time.
#[test]
fn a_wake_up_during_parking_is_not_lost() {
    loom::model(|| {
        let (ledger, pool) = (ledger(), pool());
        let pipeline = one_stage(&ledger, &pool);
        let held = ledger.reserve(BUFFER, Bytes(1)).try_now().expect("free");
        let returner = loom::thread::spawn(move || drop(held));
        pipeline.submit("job", ()).expect("taken on").wait().expect("a result");
        returner.join().expect("no panic");
    });
}

/// The ticket is answered once, and the bytes are back, whoever wins.
#[test]
fn a_cancellation_meets_the_job_wherever_it_is() {
    loom::model(|| {
        let (ledger, pool) = (ledger(), pool());
        let pipeline = one_stage(&ledger, &pool);
        let ticket = pipeline.submit("job", ()).expect("taken on");
        ticket.cancel();
        assert!(matches!(ticket.wait(), Ok(()) | Err(JobError::Cancelled { .. })));
        assert!(ledger.snapshot().is_empty());
    });
}

/// The pipeline is dropped while its job is handed from one stage to the next.
#[test]
fn a_hand_over_during_shutdown_returns_everything() {
    loom::model(|| {
        let (ledger, pool) = (ledger(), pool());
        let all = || Demand::new().bytes(BUFFER, Bytes(1));
        let profile = move |_: &()| Profile::new().stage("one", all(), all()).stage("two", all(), Demand::new());
        let pipeline = Pipeline::builder(&ledger, &pool, profile)
            .stage("one", |cx, ()| Ok::<_, ()>(cx.grant().take_all(BUFFER)))
            .stage("two", |_, _held| Ok(()))
            .build()
            .expect("a pipeline");
        let ticket = pipeline.submit("job", ()).expect("taken on");
        drop(pipeline);
        assert!(ticket.has_ended());
        assert!(ledger.snapshot().is_empty());
        assert!(matches!(ticket.wait(), Ok(()) | Err(JobError::ShutDown { .. })));
    });
}
