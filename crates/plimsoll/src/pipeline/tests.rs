//! The rules of the pipeline, with faults injected at every stage. Nothing sleeps: tests meet at gates.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::ledger::Grant;
use crate::pool::PoolConfig;
use crate::{Budget, Bytes, Charged, Class, Demand, Reservation, Slots, Space};

mod again;
mod certificate;
mod drift;
mod fan;
mod intake;
pub(crate) mod kinds;
mod landing;
mod needs;
mod outliving;
mod outside;
mod pacing;
mod panics;
mod submission;
mod urgency;
mod word;

const BUFFER: Class = Class::new("buffer", Space::HOST);
const SCRATCH: Class = Class::new("scratch", Space::HOST);
const GATE: Class = Class::new("gate", Space::device(0));
const PERMIT: Slots = Slots::new("permits");

/// Each job holds one buffer from its first stage to its end, and scratch in each stage.
const STAGES: [&str; 4] = ["first", "second", "third", "last"];
const BUFFER_BYTES: Bytes = Bytes(64);
const SCRATCH_BYTES: Bytes = Bytes(16);
const CLAIM: Bytes = Bytes(80);

type Buffer = Charged<Vec<u8>>;

/// What a stage of the test pipeline is told to do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Nothing,
    Fail(usize),
    Panic(usize),
}

#[derive(Debug, PartialEq, Eq)]
struct Failed(usize);

fn pool(threads: usize) -> Pool {
    Pool::new(PoolConfig { threads, ..PoolConfig::default() }).expect("threads")
}

fn ledger(bytes: Bytes) -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, bytes).space(Space::device(0), Bytes(1)).slots(PERMIT, 2))
}

fn profile() -> Profile {
    let keep = Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let peak = || keep.clone().bytes(SCRATCH, SCRATCH_BYTES);
    let profile = STAGES[..3].iter().fold(Profile::new(), |profile, stage| profile.stage(stage, peak(), keep.clone()));
    profile.stage(STAGES[3], peak(), Demand::new())
}

type Hook = dyn Fn(&StageCx<'_>, usize) + Send + Sync;

/// Four stages that pass the buffer on; `hook` is called at the beginning of each, and `order` says what goes wrong.
fn build(ledger: &Ledger, pool: &Pool, hook: Arc<Hook>) -> Pipeline<Order, usize, Failed> {
    fn obey(order: Order, stage: usize) -> Result<(), Failed> {
        match order {
            Order::Fail(at) if at == stage => Err(Failed(stage)),
            Order::Panic(at) if at == stage => panic!("told to"),
            _ => Ok(()),
        }
    }
    let (first, second, third, last) = (hook.clone(), hook.clone(), hook.clone(), hook);
    Pipeline::builder(ledger, pool, |_: &Order| profile())
        .stage(STAGES[0], move |cx, order: Order| {
            first(cx, 0);
            let scratch = cx.grant().take(SCRATCH, SCRATCH_BYTES).expect("granted");
            let buffer: Buffer = cx.grant().vec(BUFFER, BUFFER_BYTES.0 as usize).expect("granted");
            obey(order, 0)?;
            drop(scratch);
            Ok((order, buffer))
        })
        .stage(STAGES[1], move |cx, (order, buffer)| {
            second(cx, 1);
            obey(order, 1).map(|()| (order, buffer))
        })
        .stage(STAGES[2], move |cx, (order, buffer)| {
            third(cx, 2);
            obey(order, 2).map(|()| (order, buffer))
        })
        .stage(STAGES[3], move |cx, (order, buffer)| {
            last(cx, 3);
            obey(order, 3).map(|()| buffer.bytes().0 as usize)
        })
        .build()
        .expect("a pipeline")
}

fn quiet() -> Arc<Hook> {
    Arc::new(|_, _| {})
}

/// The ledger is back at zero, and both ledger and pipeline still do their work.
fn assert_usable(ledger: &Ledger, pipeline: &Pipeline<Order, usize, Failed>) {
    ledger.quiesce(Duration::from_secs(10)).expect("quiet");
    assert!(ledger.snapshot().is_empty(), "{:?}", ledger.snapshot());
    assert_eq!(ledger.snapshot().outlived, 0);
    assert_eq!(pipeline.submit("after", Order::Nothing).expect("taken on").wait().expect("a result"), 64);
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn jobs_more_than_fit_all_get_through_and_return_everything() {
    for (threads, fit) in [(1, 1), (2, 1), (2, 3), (4, 2)] {
        let (ledger, pool) = (ledger(CLAIM.times(fit)), pool(threads));
        let pipeline = build(&ledger, &pool, quiet());
        let tickets: Vec<_> =
            (0..50).map(|i| pipeline.submit(format!("job {i}"), Order::Nothing).expect("taken on")).collect();
        for ticket in tickets {
            assert_eq!(ticket.wait().expect("a result"), 64);
        }
        assert!(ledger.snapshot().space(Space::HOST).expect("named").peak <= CLAIM.times(fit));
        assert_usable(&ledger, &pipeline);
        let stats = pipeline.stats();
        assert!(stats.iter().map(|stage| (stage.stage, stage.count)).eq(STAGES.map(|stage| (stage, 51))));
    }
}

#[test]
fn an_error_in_any_stage_is_typed_and_returns_everything() {
    for (at, name) in STAGES.into_iter().enumerate() {
        let (ledger, pool) = (ledger(CLAIM), pool(2));
        let pipeline = build(&ledger, &pool, quiet());
        let error = pipeline.submit("bad", Order::Fail(at)).expect("taken on").wait().expect_err("an error");
        assert!(matches!(&error, JobError::Stage { job, stage, source: Failed(k) }
            if &**job == "bad" && *stage == name && *k == at));
        assert_usable(&ledger, &pipeline);
    }
}

#[test]
fn a_panic_in_any_stage_is_contained_and_returns_everything() {
    for (at, name) in STAGES.into_iter().enumerate() {
        let (ledger, pool) = (ledger(CLAIM), pool(2));
        let pipeline = build(&ledger, &pool, quiet());
        let error = pipeline.submit("bad", Order::Panic(at)).expect("taken on").wait().expect_err("an error");
        assert!(matches!(&error, JobError::Panicked { job, stage, message }
            if &**job == "bad" && *stage == name && message == "told to"));
        assert_usable(&ledger, &pipeline);
    }
}

#[test]
fn a_job_cancelled_in_any_stage_ends_there_and_the_last_may_succeed() {
    for at in 0..STAGES.len() {
        let (ledger, pool) = (ledger(CLAIM), pool(2));
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = crate::sync::Mutex::new(may_go_on);
        let hook = move |cx: &StageCx<'_>, stage| {
            if stage == at && cx.job_name() == "victim" {
                begun.send(()).expect("the test listens");
                crate::sync::lock(&may_go_on).recv().expect("the test tells");
                assert!(cx.is_cancelled());
            }
        };
        let pipeline = build(&ledger, &pool, Arc::new(hook));
        let ticket = pipeline.submit("victim", Order::Nothing).expect("taken on");
        has_begun.recv().expect("the stage begins");
        ticket.cancel();
        go_on.send(()).expect("the stage waits");
        match ticket.wait() {
            Err(JobError::Cancelled { stage, .. }) => assert_eq!(stage, STAGES[at + 1]),
            Ok(_) => assert_eq!(at, 3, "only the last stage can still succeed"),
            Err(other) => panic!("{other:?}"),
        }
        assert_usable(&ledger, &pipeline);
    }
}

#[test]
fn a_job_that_waits_for_admission_is_cancelled_at_once() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = build(&ledger, &pool, quiet());
    let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("room");
    let ticket = pipeline.submit("waits", Order::Nothing).expect("taken on");
    assert!(!ticket.has_ended());
    ticket.cancel();
    assert!(ticket.has_ended());
    assert!(matches!(ticket.wait(), Err(JobError::Cancelled { stage: "first", .. })));
    drop(held);
    assert_usable(&ledger, &pipeline);
}

#[test]
fn a_job_parked_between_stages_is_woken_by_what_it_waits_for_and_blocks_no_worker() {
    let (ledger, pool) = (ledger(CLAIM.times(4)), pool(1));
    let gated = gated_pipeline(&ledger, &pool, Arc::new(AtomicUsize::new(0)), Demand::new());
    let closed = ledger.reserve(GATE, Bytes(1)).wait().expect("free");
    let ticket = gated.submit("parked", ()).expect("taken on");
    until_idle(&pool);
    assert!(!ticket.has_ended());
    // The only worker is free meanwhile.
    assert_eq!(pool.install(|| 7), 7);
    drop(closed);
    ticket.wait().expect("a result");
}

/// Produces a buffer freely, and consumes it only while nobody holds the gate. Between the two it keeps `permit`.
fn gated_pipeline(
    ledger: &Ledger,
    pool: &Pool,
    produced: Arc<AtomicUsize>,
    permit: Demand,
) -> Pipeline<(), (), Failed> {
    let produce = permit.bytes(BUFFER, BUFFER_BYTES);
    let consume = produce.clone().bytes(GATE, Bytes(1));
    Pipeline::builder(ledger, pool, move |_| {
        Profile::new().stage("produce", produce.clone(), produce.clone()).stage(
            "consume",
            consume.clone(),
            Demand::new(),
        )
    })
    .stage("produce", move |cx, ()| {
        produced.fetch_add(1, Ordering::Relaxed);
        Ok(cx.grant().vec::<u8>(BUFFER, BUFFER_BYTES.0 as usize).expect("granted"))
    })
    .stage("consume", |_, buffer| {
        drop(buffer);
        Ok(())
    })
    // The bounds under test are those of memory and of permits.
    .pacing(Pacing::Unpaced)
    .build()
    .expect("a pipeline")
}

/// Until all workers sleep: then everything that could run has run.
fn until_idle(pool: &Pool) {
    // In this order: what was taken from the queue before the first look has a worker awake at the second.
    while pool.has_queued_task() || pool.sleeping() < pool.threads() {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_produced_and_not_consumed_never_exceeds_the_bound() {
    // Once bounded by a permit that the job keeps, once by the buffers' bytes.
    for (bytes, permit) in [(Bytes::MIB, Demand::new().slots(PERMIT, 1)), (BUFFER_BYTES.times(2), Demand::new())] {
        for threads in [1, 2] {
            let (ledger, pool) = (ledger(bytes), pool(threads));
            let produced = Arc::new(AtomicUsize::new(0));
            let pipeline = gated_pipeline(&ledger, &pool, produced.clone(), permit.clone());
            let closed = ledger.reserve(GATE, Bytes(1)).wait().expect("free");
            let tickets: Vec<_> = (0..6).map(|_| pipeline.submit("job", ()).expect("taken on")).collect();
            until_idle(&pool);
            assert_eq!(produced.load(Ordering::Relaxed), 2);
            drop(closed);
            for ticket in tickets {
                ticket.wait().expect("a result");
            }
            assert_eq!(ledger.snapshot().class(BUFFER).expect("used").totals.peak, 2 * BUFFER_BYTES.0);
            assert!(ledger.snapshot().is_empty());
        }
    }
}

#[test]
fn a_job_that_never_fits_is_refused_with_its_input() {
    let (ledger, pool) = (ledger(Bytes(79)), pool(1));
    let pipeline = build(&ledger, &pool, quiet());
    let rejected = pipeline.submit("big", Order::Fail(9)).expect_err("too big");
    assert_eq!(rejected.input, Order::Fail(9));
    assert!(matches!(rejected.reason, Rejection::Ledger(_)));
    assert_eq!(pipeline.in_flight(), 0);
}

#[test]
fn a_profile_of_other_stages_is_refused() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = Pipeline::builder(&ledger, &pool, |_: &()| profile())
        .stage("first", |_, ()| Ok::<_, Failed>(()))
        .build()
        .expect("a pipeline");
    let rejected = pipeline.submit("job", ()).expect_err("four stages");
    assert!(matches!(rejected.reason, Rejection::OtherStages { .. }));
}

#[test]
fn a_pipeline_that_cannot_progress_is_not_built() {
    let one_stage = |ledger: &Ledger, pool: &Pool| {
        Pipeline::builder(ledger, pool, |_: &()| Profile::new())
            .largest(Profile::new().stage("only", Demand::new().bytes(SCRATCH, CLAIM), Demand::new()))
            .stage("only", |_, ()| Ok::<_, Failed>(()))
            .build()
    };
    let pool = pool(1);
    let error = one_stage(&ledger(Bytes(79)), &pool).expect_err("one byte short");
    let text = error.to_string();
    assert!(text.contains("host memory") && text.contains("stage only") && text.contains("80 B"), "{text}");
    assert!(one_stage(&ledger(CLAIM), &pool).is_ok());
}

#[test]
fn a_closed_pipeline_refuses_jobs_and_finishes_those_under_way() {
    let (ledger, pool) = (ledger(CLAIM), pool(2));
    let pipeline = build(&ledger, &pool, quiet());
    let tickets: Vec<_> = (0..10).map(|_| pipeline.submit("job", Order::Nothing).expect("taken on")).collect();
    pipeline.close();
    let rejected = pipeline.submit("late", Order::Fail(7)).expect_err("closed");
    assert_eq!((rejected.input, rejected.reason), (Order::Fail(7), Rejection::Closed));
    pipeline.drain();
    assert!(tickets.into_iter().all(|ticket| ticket.wait().is_ok()));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_dropped_pipeline_answers_every_ticket_and_returns_everything() {
    for at in 0..STAGES.len() {
        let (ledger, pool) = (ledger(CLAIM.times(2)), pool(2));
        let (begun, has_begun) = mpsc::channel();
        let hook = move |cx: &StageCx<'_>, stage| {
            if stage == at {
                // The test may have stopped listening.
                let _ = begun.send(());
                while !cx.is_cancelled() {
                    std::thread::yield_now();
                }
            }
        };
        let pipeline = build(&ledger, &pool, Arc::new(hook));
        let tickets: Vec<_> = (0..5).map(|_| pipeline.submit("job", Order::Nothing).expect("taken on")).collect();
        has_begun.recv().expect("a stage begins");
        drop(pipeline);
        assert!(ledger.snapshot().is_empty(), "dropping waits for what runs");
        for ticket in tickets {
            assert!(ticket.has_ended());
            match ticket.wait() {
                Err(JobError::ShutDown { .. }) => {}
                Ok(_) => assert_eq!(at, 3),
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_pipeline_dropped_by_its_own_stage_does_not_wait_for_itself() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let slot = Arc::new(crate::sync::Mutex::new(None));
    let (take, taken) = (slot.clone(), Arc::new(std::sync::Barrier::new(2)));
    let placed = taken.clone();
    let hook = move |_: &StageCx<'_>, _| {
        placed.wait();
        let pipeline: Option<Pipeline<_, _, _>> = crate::sync::lock(&take).take();
        drop(pipeline.expect("the test placed it"));
    };
    let pipeline = build(&ledger, &pool, Arc::new(hook));
    let ticket = pipeline.submit("job", Order::Nothing).expect("taken on");
    *crate::sync::lock(&slot) = Some(pipeline);
    taken.wait();
    assert!(matches!(ticket.wait(), Err(JobError::ShutDown { stage: "second", .. })));
    ledger.quiesce(Duration::from_secs(10)).expect("quiet");
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_dropped_ticket_does_not_lose_the_results_bytes() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let keep = Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let pipeline =
        Pipeline::builder(&ledger, &pool, move |_: &()| Profile::new().stage("make", keep.clone(), keep.clone()))
            .stage("make", |cx, ()| Ok::<Reservation, Failed>(cx.grant().take_all(BUFFER)))
            .build()
            .expect("a pipeline");
    let kept = pipeline.submit("kept", ()).expect("taken on").wait().expect("a result");
    assert_eq!(ledger.snapshot().class(BUFFER).expect("used").totals.held, BUFFER_BYTES.0);
    drop(kept);
    drop(pipeline.submit("dropped", ()).expect("taken on"));
    pipeline.drain();
    ledger.quiesce(Duration::from_secs(10)).expect("quiet");
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_ticket_can_be_awaited_without_a_runtime() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = build(&ledger, &pool, quiet());
    let mut ticket = pipeline.submit("job", Order::Nothing).expect("taken on");
    let (woken, wakes) = mpsc::channel();
    struct Bell(crate::sync::Mutex<mpsc::Sender<()>>);
    impl std::task::Wake for Bell {
        fn wake(self: Arc<Self>) {
            crate::sync::lock(&self.0).send(()).expect("the test listens");
        }
    }
    let waker = Arc::new(Bell(crate::sync::Mutex::new(woken))).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let result = loop {
        match std::pin::Pin::new(&mut ticket).poll(&mut cx) {
            std::task::Poll::Ready(result) => break result,
            std::task::Poll::Pending => wakes.recv().expect("the waker lives"),
        }
    };
    assert_eq!(result.expect("a result"), 64);
}

#[test]
fn run_all_pulls_inputs_only_when_there_is_room() {
    for at_most in [1, 2, 100] {
        let (ledger, pool) = (ledger(CLAIM.times(3)), pool(2));
        let pipeline = build(&ledger, &pool, quiet());
        let (pulled, yielded) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let inputs = (0..40).map(|i| {
            let ahead = pulled.fetch_add(1, Ordering::Relaxed) + 1 - yielded.load(Ordering::Relaxed);
            assert!(ahead <= at_most, "{ahead} ahead");
            assert!(pipeline.in_flight() <= 4, "three fit, one waits");
            (i.to_string(), Order::Nothing)
        });
        let mut seen = Vec::new();
        for (index, result) in pipeline.run_all(inputs).at_most(at_most) {
            yielded.fetch_add(1, Ordering::Relaxed);
            assert_eq!(result.expect("a result"), 64);
            seen.push(index);
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..40));
        assert_usable(&ledger, &pipeline);
    }
}

#[test]
fn run_all_yields_in_order_of_inputs_errors_included() {
    let (ledger, pool) = (ledger(CLAIM.times(3)), pool(2));
    let pipeline = build(&ledger, &pool, quiet());
    let inputs = (0..20).map(|i| (i.to_string(), if i % 3 == 0 { Order::Fail(i % 4) } else { Order::Nothing }));
    let results: Vec<_> = pipeline.run_all(inputs).in_order().collect();
    assert!(results.iter().map(|(index, _)| *index).eq(0..20));
    assert!(results.iter().all(|(index, result)| result.is_err() == (index % 3 == 0)));
    assert_usable(&ledger, &pipeline);
}

#[test]
fn run_all_dropped_early_cancels_the_rest() {
    let (ledger, pool) = (ledger(CLAIM.times(3)), pool(2));
    let pipeline = build(&ledger, &pool, quiet());
    let pulled = AtomicUsize::new(0);
    let inputs = std::iter::from_fn(|| {
        pulled.fetch_add(1, Ordering::Relaxed);
        Some(("endless", Order::Nothing))
    });
    let mut results = pipeline.run_all(inputs);
    assert!(results.next().expect("endless").1.is_ok());
    drop(results);
    pipeline.drain();
    assert_usable(&ledger, &pipeline);
}

#[test]
fn run_all_reports_a_refused_job_in_its_place() {
    let (ledger, pool) = (ledger(Bytes(1)), pool(1));
    let pipeline = build(&ledger, &pool, quiet());
    let results: Vec<_> = pipeline.run_all([("a", Order::Nothing), ("b", Order::Nothing)]).collect();
    assert!(matches!(results[..], [(0, Err(JobError::Rejected { .. })), (1, Err(JobError::Rejected { .. }))]));
}

#[test]
fn the_observer_sees_each_stage_begin_and_end_and_its_panics_are_contained() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let (send, events) = mpsc::channel();
    let send = crate::sync::Mutex::new(send);
    let pipeline = Pipeline::builder(&ledger, &pool, |_: &()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage("s", |_, ()| Ok::<_, Failed>(()))
        .observe(move |event| {
            crate::sync::lock(&send).send(event.clone()).expect("the test listens");
            panic!("an observer's own problem");
        })
        .build()
        .expect("a pipeline");
    pipeline.submit("job", ()).expect("taken on").wait().expect("a result");
    pipeline.drain();
    let kinds: Vec<_> = events
        .try_iter()
        .map(|event| match event {
            Event::StageBegan { .. } => "began",
            Event::StageEnded { .. } => "ended",
            Event::DeadlineMissed { .. } | Event::Retried { .. } => "something else",
            Event::JobEnded { succeeded, .. } => {
                if succeeded {
                    "succeeded"
                } else {
                    "failed"
                }
            }
        })
        .collect();
    assert_eq!(kinds, ["began", "ended", "succeeded"]);
}
