//! The pipeline's trips, as shipped: waking against parking, cancelling against driving, hand-over against shutdown.
#![cfg(plimsoll_loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use loom_tests::{check, check_at_most};
use plimsoll::pipeline::{Carrier, Errand, FanIn, JobError, Pipeline, Runtime};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Slots, Space};

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
    check(|| {
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
    check(|| {
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
    check(|| {
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
    check(|| {
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

/// A job is cancelled while the last word of its part is on its way: what the part made is gone before the job has ended, whoever
/// has the word in hand.
#[test]
fn what_parts_made_is_gone_before_their_job_has_ended() {
    check(|| {
        let (ledger, pool) = (ledger(), pool());
        let byte = || Demand::new().bytes(BUFFER, Bytes(1));
        let part = move || Profile::new().stage("part", byte(), byte());
        let profile = move |_: &()| Profile::new().stage("fan", Demand::new(), Demand::new()).parts(1, &part());
        let pipeline = Pipeline::builder(&ledger, &pool, profile)
            .fan_out(
                "fan",
                |_, ()| Ok::<_, ()>(((), [()])),
                move |_| part(),
                |parts| parts.stage("part", |cx, ()| Ok(cx.grant().take_all(BUFFER))),
                FanIn::InOrder,
                |_, (), made| Ok(made.len()),
            )
            .build()
            .expect("a pipeline");
        let ticket = pipeline.submit("job", ()).expect("taken on");
        ticket.cancel();
        assert!(matches!(ticket.wait(), Ok(1) | Err(JobError::Cancelled { .. })));
        let snapshot = ledger.snapshot();
        assert!(snapshot.is_empty() && snapshot.outlived == 0, "{snapshot:?}");
    });
}

/// The parent is parked while its part runs; the part's end is what it waits for.
#[test]
fn the_last_part_wakes_its_parent() {
    check(|| {
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

/// What one stage has produced and the next one has not consumed is bounded by what the jobs keep, in the shipped pipeline: a
/// permit that a job keeps from stage to stage, while the consumer is held up by something else.
#[test]
fn what_is_produced_and_not_consumed_is_bounded() {
    const GATE: Class = Class::new("gate", Space::device(0));
    const PERMIT: Slots = Slots::new("permits");
    check_at_most(2, || {
        let budget = Budget::new().space(Space::device(0), Bytes(1)).slots(PERMIT, 1);
        let (ledger, pool) = (Ledger::new(budget), pool());
        let permit = || Demand::new().slots(PERMIT, 1);
        let profile = move |_: &()| {
            let consume = permit().bytes(GATE, Bytes(1));
            Profile::new().stage("produce", permit(), permit()).stage("consume", consume, Demand::new())
        };
        // Statistics are part of no protocol.
        let backlog = Arc::new(AtomicUsize::new(0));
        let (produced, consumed) = (backlog.clone(), backlog);
        let pipeline = Pipeline::builder(&ledger, &pool, profile)
            .stage("produce", move |_, ()| {
                assert_eq!(produced.fetch_add(1, Ordering::Relaxed), 0, "two are produced and not consumed");
                Ok::<_, ()>(())
            })
            .stage("consume", move |_, ()| {
                consumed.fetch_sub(1, Ordering::Relaxed);
                Ok(())
            })
            .build()
            .expect("a pipeline");
        let held_up = ledger.reserve(GATE, Bytes(1)).try_now().expect("free");
        let tickets = [(); 2].map(|()| pipeline.submit("job", ()).expect("taken on"));
        drop(held_up);
        for ticket in tickets {
            // A panic of a stage is its job's end.
            ticket.wait().expect("both get through");
        }
        assert!(ledger.snapshot().is_empty());
    });
}

/// A pipeline is dropped while the thread that ends its job is still at it: when the drop returns, what the stages own is gone.
#[test]
fn a_dropped_pipeline_leaves_nothing_with_whoever_ends_its_jobs() {
    check_at_most(2, || {
        let (ledger, pool) = (ledger(), pool());
        let owned = Arc::new(());
        let stages = Arc::downgrade(&owned);
        let pipeline =
            Pipeline::builder(&ledger, &pool, |_: &()| Profile::new().stage("only", Demand::new(), Demand::new()))
                .stage("only", move |_, ()| {
                    let _ = &owned;
                    Ok::<_, ()>(())
                })
                .build()
                .expect("a pipeline");
        pipeline.submit("job", ()).expect("taken on").wait().expect("a result");
        drop(pipeline);
        assert!(stages.upgrade().is_none());
    });
}

/// A carrier that gives each errand a thread.
struct Threads;

impl Carrier for Threads {
    fn carry(&self, errand: Errand) {
        loom::thread::spawn(move || errand.run());
    }
}

/// A job parked in front of a carried stage: whoever returns what it waits for takes its grant and sends it on, while its
/// submitter still drives it, or cancels it.
#[test]
fn a_carried_job_is_woken_wherever_it_is() {
    check_at_most(2, || {
        let (ledger, pool) = (ledger(), pool());
        let carrier: Arc<dyn Carrier> = Arc::new(Threads);
        let all = || Demand::new().bytes(BUFFER, Bytes(1));
        let profile = move |_: &()| Profile::new().stage("only", all(), Demand::new());
        let pipeline = Pipeline::builder(&ledger, &pool, profile)
            .stage_on("only", &carrier, |_, ()| Ok::<_, ()>(()))
            .build()
            .expect("a pipeline");
        let held = ledger.reserve(BUFFER, Bytes(1)).try_now().expect("free");
        let returner = loom::thread::spawn(move || drop(held));
        let ticket = pipeline.submit("job", ()).expect("taken on");
        ticket.wait().expect("a result");
        returner.join().expect("no panic");
        drop(pipeline);
        assert!(ledger.snapshot().is_empty());
    });
}
