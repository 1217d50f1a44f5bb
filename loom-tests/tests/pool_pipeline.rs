//! The pipeline's trips, as shipped: waking against parking, cancelling against driving, hand-over against shutdown.
#![cfg(plimsoll_loom)]

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use plimsoll::pipeline::{FanIn, JobError, Pipeline, Runtime};
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

/// Polls a future on a thread of its own.
fn runtime() -> Runtime {
    struct Bell(loom::sync::Notify);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }
    Runtime::new(|mut task| {
        loom::thread::spawn(move || {
            let bell = Arc::new(Bell(loom::sync::Notify::new()));
            let waker = Waker::from(bell.clone());
            while task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                bell.0.wait();
            }
        });
    })
}

/// A future that waits once meets its cancellation: the ticket is answered once, and the bytes are back, whoever wins.
#[test]
fn a_future_is_polled_or_dropped_but_not_lost() {
    loom::model(|| {
        let (ledger, pool) = (ledger(), pool());
        let all = || Demand::new().bytes(BUFFER, Bytes(1));
        let profile = move |_: &()| Profile::new().stage("only", all(), Demand::new());
        let pipeline = Pipeline::builder(&ledger, &pool, profile)
            .async_stage("only", &runtime(), |cx, ()| async move {
                let held = cx.take(BUFFER, Bytes(1));
                let mut polled = false;
                std::future::poll_fn(|cx| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    cx.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
                drop(held);
                Ok::<_, ()>(())
            })
            .build()
            .expect("a pipeline");
        let ticket = pipeline.submit("job", ()).expect("taken on");
        ticket.cancel();
        assert!(matches!(ticket.wait(), Ok(()) | Err(JobError::Cancelled { .. })));
        assert!(ledger.snapshot().is_empty());
    });
}

/// The parent is parked while its part runs; the part's end is what it waits for.
#[test]
fn the_last_part_wakes_its_parent() {
    loom::model(|| {
        let (ledger, pool) = (ledger(), pool());
        // Two stages, so that the parent looks, and parks, between the beginning of its part and the end.
        let byte = || Demand::new().bytes(BUFFER, Bytes(1));
        let part = move || Profile::new().stage("first", byte(), byte()).stage("second", byte(), Demand::new());
        let profile = move |_: &()| Profile::new().stage("fan", Demand::new(), Demand::new()).parts(1, &part());
        let pipeline = Pipeline::builder(&ledger, &pool, profile)
            .fan_out(
                "fan",
                |_, ()| Ok::<_, ()>(((), [()])),
                move |_| part(),
                |parts| parts.stage("first", |_, ()| Ok(())).stage("second", |_, ()| Ok(())),
                FanIn::InOrder,
                |_, (), made| Ok(made.len()),
            )
            .build()
            .expect("a pipeline");
        assert_eq!(pipeline.submit("job", ()).expect("taken on").wait().expect("a result"), 1);
        assert!(ledger.snapshot().is_empty());
    });
}
