//! Word that comes late, or not at all: from places that the job has left, from clocks that do not run, from pools that end.

use std::task::{Context, Poll, Waker};

use super::*;
use crate::pool::Shutdown;
use crate::sync::{Mutex, lock};

/// Sends its errands to the test.
struct Hands(Mutex<mpsc::Sender<Errand>>);

impl Carrier for Hands {
    fn carry(&self, errand: Errand) {
        let _ = lock(&self.0).send(errand);
    }
}

pub(super) fn hands() -> (Arc<dyn Carrier>, mpsc::Receiver<Errand>) {
    let (errands, errand) = mpsc::channel();
    (Arc::new(Hands(Mutex::new(errands))), errand)
}

fn runtime() -> (Runtime, mpsc::Receiver<Task>) {
    let (tasks, task) = mpsc::channel();
    let tasks = Mutex::new(tasks);
    (Runtime::new(move |task| _ = lock(&tasks).send(task)), task)
}

fn empty(stages: &[&'static str]) -> Profile {
    stages.iter().fold(Profile::new(), |profile, stage| profile.stage(stage, Demand::new(), Demand::new()))
}

#[test]
fn an_errand_that_is_dropped_late_ends_no_job_that_has_gone_on() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let ((one, first), (other, second)) = (hands(), hands());
    let pipeline = Pipeline::builder(&ledger, &pool, |()| empty(&["one", "other"]))
        .stage_on("one", &one, |_, ()| Ok::<_, Failed>(()))
        .stage_on("other", &other, |_, ()| Ok(()))
        .build()
        .expect("a pipeline");
    let ticket = pipeline.submit("job", ()).expect("taken on");
    let early = first.recv().expect("sent on");
    // As the alarm of a deadline does: the job is granted its stage, and is sent on once more.
    pipeline.line.landing.named("job").deadline_is_near();
    first.recv().expect("sent on again").run();
    let next = second.recv().expect("the second stage is next");
    drop(early);
    assert!(!ticket.has_ended(), "it has left that place");
    next.run();
    ticket.wait().expect("a result");

    // What is dropped in time ends it.
    let ticket = pipeline.submit("job", ()).expect("taken on");
    drop(first.recv().expect("sent on"));
    assert!(matches!(ticket.wait(), Err(JobError::Forsaken { stage: "one", .. })));
}

#[test]
fn a_future_that_is_dropped_late_ends_no_job_that_has_gone_on() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let ((one, first), (other, second)) = (runtime(), runtime());
    let poll = |mut task: Task| task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let pipeline = Pipeline::builder(&ledger, &pool, |()| empty(&["one", "other"]))
        .async_stage("one", &one, |_, ()| std::future::ready(Ok::<_, Failed>(())))
        .async_stage("other", &other, |_, ()| std::future::ready(Ok(())))
        .build()
        .expect("a pipeline");
    let ticket = pipeline.submit("job", ()).expect("taken on");
    let early = first.recv().expect("sent on");
    pipeline.line.landing.named("job").deadline_is_near();
    assert!(poll(first.recv().expect("sent on again")).is_ready());
    let next = second.recv().expect("the second stage is next");
    drop(early);
    assert!(!ticket.has_ended(), "it has left that place");
    assert_eq!(poll(next), Poll::Ready(()));
    ticket.wait().expect("a result");

    let ticket = pipeline.submit("job", ()).expect("taken on");
    drop(first.recv().expect("sent on"));
    assert!(matches!(ticket.wait(), Err(JobError::Forsaken { stage: "one", .. })));
}

#[test]
fn a_future_that_is_dropped_while_it_waits_ends_its_job_also_when_others_were_sent_after_it() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let (runtime, tasks) = runtime();
    let pipeline = Pipeline::builder(&ledger, &pool, |()| empty(&["wait"]))
        .async_stage("wait", &runtime, |_, ()| std::future::pending::<Result<(), Failed>>())
        .build()
        .expect("a pipeline");
    let poll = |task: &mut Task| task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let ticket = pipeline.submit("job", ()).expect("taken on");
    let mut aboard = tasks.recv().expect("spawned");
    assert!(poll(&mut aboard).is_pending());
    // A wake-up that was for nothing: another future looks, finds the first one there, and goes.
    pipeline.line.landing.named("job").send_on();
    assert!(poll(&mut tasks.recv().expect("spawned")).is_ready());
    drop(aboard);
    assert!(matches!(ticket.wait(), Err(JobError::Forsaken { stage: "wait", .. })));
}

#[test]
fn without_a_clock_jobs_with_alarms_are_refused_and_others_do_not_pause() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let tries = AtomicUsize::new(0);
    let pipeline = Pipeline::builder(&ledger, &pool, |_: &u8| empty(&["s"]))
        .stage_again("s", Retry::times(2).pause(Duration::from_secs(1)), move |_, _| {
            if tries.fetch_add(1, Ordering::Relaxed) == 0 { Err(Failed(0)) } else { Ok(()) }
        })
        .build()
        .expect("a pipeline");
    let refused = |refused| pipeline.line.clock.refused.store(refused, Ordering::Relaxed);
    refused(true);
    for options in
        [JobOptions::new("job").timeout(Duration::MAX), JobOptions::new("job").deadline(std::time::Instant::now())]
    {
        let rejected = pipeline.submit(options.clone().id("id"), 7).expect_err("nobody would tell the time");
        assert!(matches!(rejected.reason, Rejection::NoClock { .. }) && rejected.input == 7);
    }
    // A pause that nobody would end is none.
    pipeline.submit("paused", 7).expect("taken on").wait().expect("a result");
    refused(false);
    let options = JobOptions::new("job").timeout(Duration::MAX).id("id");
    pipeline.submit(options, 7).expect("taken on").wait().expect("a result");
}

#[test]
fn a_load_that_no_worker_takes_ends_its_job_as_the_abort_that_it_is() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let key = ledger.residency::<()>("key", BUFFER, Bytes(1), Duration::ZERO).expect("fits");
    let (carrier, _errands) = hands();
    let pipeline = Pipeline::builder(&ledger, &pool, |()| empty(&["s"]))
        .stage_on("s", &carrier, |_, ()| Ok::<_, Failed>(()))
        .needs(&key, |_| Ok::<_, std::fmt::Error>(()))
        .build()
        .expect("a pipeline");
    let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("room");
    let ticket = pipeline.submit("job", ()).expect("taken on");
    // The queue is closed before the pipeline hears of the abort.
    pool.close_the_queue();
    drop(held);
    match ticket.wait() {
        Err(JobError::ShutDown { .. }) => {}
        other => panic!("{other:?}"),
    }
    pool.shutdown(Shutdown::Abort);
}

#[test]
fn jobs_that_have_nowhere_to_go_end_one_after_the_other_however_many_there_are() {
    struct Gone;
    impl Carrier for Gone {
        fn carry(&self, errand: Errand) {
            drop(errand);
        }
    }
    for place in ["worker", "carrier", "runtime"] {
        let (ledger, pool) = (ledger(CLAIM), pool(1));
        let carrier: Arc<dyn Carrier> = Arc::new(Gone);
        let all = Demand::new().bytes(BUFFER, CLAIM);
        let builder =
            Pipeline::builder(&ledger, &pool, move |()| Profile::new().stage("s", all.clone(), Demand::new()));
        let builder = match place {
            "worker" => builder.stage("s", |_, ()| Ok::<_, Failed>(())),
            "carrier" => builder.stage_on("s", &carrier, |_, ()| Ok(())),
            _ => builder.async_stage("s", &Runtime::new(drop), |_, ()| std::future::ready(Ok(()))),
        };
        let pipeline = builder.pacing(Pacing::Unpaced).build().expect("a pipeline");
        let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("room");
        let tickets: Vec<_> = (0..600).map(|_| pipeline.submit("job", ()).expect("taken on")).collect();
        if place == "worker" {
            pool.close_the_queue();
        }
        // Each of them is granted what the one before returns. Were they ended inside of each other, this stack would not do.
        let returns = crate::sync::thread::Builder::new().stack_size(512 << 10).spawn(move || drop(held));
        returns.expect("a thread").join().expect("no panic");
        for ticket in tickets {
            assert!(matches!(ticket.wait(), Err(JobError::Forsaken { .. } | JobError::ShutDown { .. })), "{place}");
        }
        assert!(ledger.snapshot().is_empty());
    }
}
