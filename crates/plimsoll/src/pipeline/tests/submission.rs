//! How jobs are submitted: priorities, deadlines, time-outs, identities.

use std::time::Instant;

use super::*;
use crate::sync::{Mutex, lock};

type Names = Arc<Mutex<Vec<String>>>;

/// One stage that needs everything there is, and says whose job it is.
fn narrow(ledger: &Ledger, pool: &Pool, began: &Names) -> Builder<(), (), Failed> {
    let all = Demand::new().bytes(SCRATCH, CLAIM);
    let began = began.clone();
    Pipeline::builder(ledger, pool, move |()| Profile::new().stage("only", all.clone(), Demand::new())).stage(
        "only",
        move |cx, ()| {
            lock(&began).push(cx.job_name().to_owned());
            Ok(())
        },
    )
}

/// In which order jobs that all wait are served.
fn order_of(jobs: &[JobOptions]) -> Vec<String> {
    let (ledger, pool, began) = (ledger(CLAIM), pool(1), Names::default());
    let pipeline = narrow(&ledger, &pool, &began).build().expect("a pipeline");
    let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("free");
    let tickets: Vec<_> = jobs.iter().map(|job| pipeline.submit(job.clone(), ()).expect("taken on")).collect();
    until_idle(&pool);
    assert!(lock(&began).is_empty());
    drop(held);
    for ticket in tickets {
        ticket.wait().expect("a result");
    }
    assert!(ledger.snapshot().is_empty());
    std::mem::take(&mut *lock(&began))
}

#[test]
fn higher_priority_and_near_deadlines_go_first() {
    let job = JobOptions::new;
    assert_eq!(order_of(&[job("a"), job("b")]), ["a", "b"]);
    assert_eq!(order_of(&[job("a").priority(-1), job("b"), job("c").priority(1)]), ["c", "b", "a"]);
    let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1 << 20));
    assert_eq!(order_of(&[job("a").priority(9), job("b").deadline(later), job("c").deadline(now)]), ["c", "a", "b"]);
}

#[test]
fn workers_take_the_higher_priority_first_among_jobs_that_are_as_far() {
    let (ledger, pool, began) = (ledger(CLAIM.times(9)), pool(1), Names::default());
    let pipeline = narrow(&ledger, &pool, &began).pacing(Pacing::Unpaced).build().expect("a pipeline");
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let tickets = std::thread::scope(|scope| {
        // The only worker is busy until all have been let in.
        let (pool, begun) = (&pool, begun);
        scope.spawn(move || pool.install(move || (begun.send(()), may_go_on.recv()).0.expect("the test listens")));
        has_begun.recv().expect("it begins");
        let jobs = [("a", 0), ("b", 5), ("c", 1), ("d", 5)];
        let tickets = jobs.map(|(name, n)| pipeline.submit(JobOptions::new(name).priority(n), ()).expect("taken on"));
        drop(go_on);
        tickets
    });
    for ticket in tickets {
        ticket.wait().expect("a result");
    }
    assert_eq!(*lock(&began), ["b", "d", "c", "a"]);
}

#[test]
fn a_deadline_that_comes_near_lets_a_waiting_job_pass() {
    let (ledger, pool, began) = (ledger(CLAIM), pool(1), Names::default());
    let pipeline = narrow(&ledger, &pool, &began).build().expect("a pipeline");
    let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("free");
    let tickets = [
        pipeline.submit("first", ()).expect("taken on"),
        // Nothing is known of how long jobs take, so it becomes urgent when half of the time is over.
        pipeline
            .submit(JobOptions::new("urgent").deadline(Instant::now() + Duration::from_millis(40)), ())
            .expect("taken on"),
    ];
    while pipeline.deadlines_missed() == 0 {
        std::thread::yield_now();
    }
    drop(held);
    for ticket in tickets {
        ticket.wait().expect("a result, though late");
    }
    assert_eq!(*lock(&began), ["urgent", "first"]);
}

#[test]
fn a_job_near_its_deadline_is_admitted_from_the_urgent_reserve() {
    let budget = Budget::new().space(Space::HOST, CLAIM.times(2)).urgent_reserve(Space::HOST, CLAIM);
    let (ledger, pool, began) = (Ledger::new(budget), pool(1), Names::default());
    let pipeline = narrow(&ledger, &pool, &began).build().expect("a pipeline");
    let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("free");
    let waits = pipeline.submit("ordinary", ()).expect("taken on");
    let urgent = JobOptions::new("urgent").deadline(Instant::now());
    pipeline.submit(urgent, ()).expect("taken on").wait().expect("a result");
    assert!(!waits.has_ended());
    drop(held);
    waits.wait().expect("a result");
    assert_eq!(*lock(&began), ["urgent", "ordinary"]);
}

#[test]
fn a_missed_deadline_is_reported_once_and_the_job_goes_on() {
    let (ledger, pool, began) = (ledger(CLAIM), pool(1), Names::default());
    let (send, missed) = mpsc::channel();
    let send = Mutex::new(send);
    let pipeline = narrow(&ledger, &pool, &began)
        .observe(move |event| {
            if let Event::DeadlineMissed { job, stage } = event {
                lock(&send).send((job.to_string(), *stage)).expect("the test listens");
            }
        })
        .build()
        .expect("a pipeline");
    let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("free");
    let in_time = Instant::now() + Duration::from_secs(1 << 20);
    let tickets = [Instant::now(), in_time]
        .map(|deadline| pipeline.submit(JobOptions::new("job").deadline(deadline), ()).expect("taken on"));
    assert_eq!(missed.recv().expect("reported"), ("job".to_owned(), "only"));
    drop(held);
    for ticket in tickets {
        ticket.wait().expect("a result, though late");
    }
    assert_eq!(pipeline.deadlines_missed(), 1);
    assert!(missed.try_recv().is_err());
}

#[test]
fn a_time_out_ends_a_job_that_waits_and_one_that_runs() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let hook = |cx: &StageCx<'_>, stage| {
        while stage == 2 && cx.job_name() == "runs" && !cx.is_cancelled() {
            std::thread::yield_now();
        }
    };
    let pipeline = build(&ledger, &pool, Arc::new(hook));
    let timeout = Duration::from_millis(1);
    let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("free");
    let waits = pipeline.submit(JobOptions::new("waits").timeout(timeout), Order::Nothing).expect("taken on");
    assert!(matches!(waits.wait(), Err(JobError::TimedOut { stage: "first", after, .. }) if after == timeout));
    drop(held);
    // So long that it is in its stage by then, which it leaves for nothing else.
    let patient = JobOptions::new("runs").timeout(Duration::from_millis(100));
    let runs = pipeline.submit(patient, Order::Nothing).expect("taken on");
    assert!(matches!(runs.wait(), Err(JobError::TimedOut { .. })));
    let long = JobOptions::new("long").timeout(Duration::from_secs(1 << 20));
    assert_eq!(pipeline.submit(long, Order::Nothing).expect("taken on").wait().expect("a result"), 64);
    assert_usable(&ledger, &pipeline);
}

#[test]
fn an_identity_is_taken_while_its_job_is_under_way_and_after_it_has_succeeded() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = build(&ledger, &pool, quiet());
    let named = |id: &str| JobOptions::new("job").id(id);
    let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("free");
    let known_of = |id: &str| match pipeline.submit(named(id), Order::Fail(7)) {
        Err(Rejected { reason: Rejection::Duplicate { known, .. }, input, .. }) => {
            assert_eq!(input, Order::Fail(7), "the input comes back");
            known
        }
        other => panic!("{other:?}"),
    };
    let ticket = pipeline.submit(named("x"), Order::Nothing).expect("the first");
    assert_eq!(known_of("x"), Known::UnderWay);
    drop(held);
    ticket.wait().expect("a result");
    assert_eq!(known_of("x"), Known::Succeeded);
    // One that failed may be repeated, and so may one that was never taken on.
    for order in [Order::Fail(1), Order::Panic(0), Order::Nothing] {
        let failed = pipeline.submit(named("y"), order).expect("not known").wait().is_err();
        assert_eq!(failed, order != Order::Nothing);
    }
    assert_eq!(known_of("y"), Known::Succeeded);
    pipeline.close();
    for _ in 0..2 {
        let refused = pipeline.submit(named("z"), Order::Nothing).expect_err("closed");
        assert_eq!(refused.reason, Rejection::Closed);
    }
}

#[test]
fn only_so_many_identities_are_remembered() {
    let (ledger, pool, began) = (ledger(CLAIM), pool(1), Names::default());
    let pipeline = narrow(&ledger, &pool, &began).remember(2).build().expect("a pipeline");
    let submit = |id: &str| pipeline.submit(JobOptions::new("job").id(id), ());
    for id in ["a", "b", "c"] {
        submit(id).expect("new").wait().expect("a result");
    }
    assert!(submit("b").is_err() && submit("c").is_err());
    submit("a").expect("forgotten").wait().expect("a result");
}

#[test]
fn a_ticket_whose_result_was_taken_has_ended_and_is_not_waited_for() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = build(&ledger, &pool, quiet());
    let mut ticket = pipeline.submit("job", Order::Nothing).expect("taken on");
    while !ticket.has_ended() {
        std::thread::yield_now();
    }
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut ticket).poll(&mut cx).is_ready());
    assert!(ticket.has_ended());
    // A wait would never end.
    let panic = crate::contain::contain(|| ticket.wait()).map(drop).expect_err("nothing is left to wait for");
    assert!(panic.message().contains("after it was ready"), "{}", panic.message());
}
