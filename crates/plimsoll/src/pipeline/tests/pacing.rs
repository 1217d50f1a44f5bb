//! Pacing as a pipeline does it. What the pacer decides is tested in virtual time.

use super::*;
use crate::pipeline::Pacing;

#[test]
fn no_more_jobs_are_under_way_than_threads_however_tight_or_wide_the_budget() {
    for fit in [1, 2, 3, 50] {
        let (ledger, pool) = (ledger(CLAIM.times(fit)), pool(2));
        let pipeline = build(&ledger, &pool, quiet());
        assert_eq!(pipeline.pace(), None, "no job has shown where bytes multiply");
        let tickets: Vec<_> = (0..40).map(|_| pipeline.submit("job", Order::Nothing).expect("taken on")).collect();
        tickets.into_iter().for_each(|ticket| assert_eq!(ticket.wait().expect("a result"), 64));
        let pace = pipeline.pace().expect("jobs have run");
        assert_eq!((pace.drum, pace.ropes.len(), pace.ropes[0].tokens), (Some("pool"), 1, 2), "{pace:?}");
        let rope = ledger.snapshot().slots.into_iter().find(|slots| slots.place.child.is_some()).expect("tied");
        assert!(rope.peak <= 2 && rope.held == 0, "{rope:?}");
        assert_usable(&ledger, &pipeline);
    }
}

#[test]
fn tokens_come_back_however_jobs_end() {
    let (ledger, pool) = (ledger(CLAIM.times(9)), pool(2));
    let pipeline = build(&ledger, &pool, quiet());
    for round in 0..30 {
        let order = [Order::Fail(round % 4), Order::Panic(round % 4), Order::Nothing][round % 3];
        let tickets: Vec<_> = (0..3).map(|_| pipeline.submit("job", order).expect("taken on")).collect();
        tickets[2].cancel();
        tickets.into_iter().for_each(|ticket| drop(ticket.wait()));
    }
    assert_usable(&ledger, &pipeline);
}

#[test]
fn one_pipelines_ropes_hold_up_nobody_else() {
    let (ledger, pool) = (ledger(CLAIM.times(50)), pool(3));
    let (begun, has_begun) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let gate = std::sync::Arc::new(crate::sync::Mutex::new(gate));
    let hook = move |_: &StageCx<'_>, stage| {
        if stage == 0 {
            begun.send(()).expect("heard");
            let _ = crate::sync::lock(&gate).recv();
        }
    };
    let held_up = paced(&ledger, &pool, Arc::new(hook), Pacing::Fixed(1));
    let waiting: Vec<_> = (0..20).map(|_| held_up.submit("waits", Order::Nothing).expect("taken on")).collect();
    has_begun.recv().expect("the first has its token");
    // Many more than may pass a waiting request.
    let other = paced(&ledger, &pool, quiet(), Pacing::Auto);
    for _ in 0..40 {
        assert_eq!(other.submit("goes", Order::Nothing).expect("taken on").wait().expect("a result"), 64);
    }
    assert!(has_begun.try_recv().is_err(), "one token, one job");
    drop(open);
    waiting.into_iter().for_each(|ticket| assert_eq!(ticket.wait().expect("a result"), 64));
}

fn paced(ledger: &Ledger, pool: &Pool, hook: Arc<Hook>, pacing: Pacing) -> Pipeline<Order, usize, Failed> {
    Pipeline::builder(ledger, pool, |_: &Order| profile())
        .stage(STAGES[0], move |cx, _| {
            hook(cx, 0);
            Ok(cx.grant().vec::<u8>(BUFFER, BUFFER_BYTES.0 as usize).expect("granted"))
        })
        .stage(STAGES[1], |_, buffer| Ok(buffer))
        .stage(STAGES[2], |_, buffer| Ok(buffer))
        .stage(STAGES[3], |_, buffer: Buffer| Ok(buffer.bytes().0 as usize))
        .pacing(pacing)
        .build()
        .expect("a pipeline")
}

#[test]
fn an_urgent_job_waits_for_no_token() {
    let (ledger, pool) = (ledger(CLAIM.times(9)), pool(2));
    let (begun, has_begun) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let gate = crate::sync::Mutex::new(gate);
    let hook = move |cx: &StageCx<'_>, _| {
        if cx.job_name() == "first" {
            begun.send(()).expect("heard");
            let _ = crate::sync::lock(&gate).recv();
        }
    };
    let pipeline = paced(&ledger, &pool, Arc::new(hook), Pacing::Fixed(1));
    // Dropped before the pipeline, also when the test fails.
    let open = open;
    let first = pipeline.submit("first", Order::Nothing).expect("taken on");
    has_begun.recv().expect("it has the only token");
    let patient = pipeline.submit("patient", Order::Nothing).expect("taken on");
    let options = JobOptions::new("urgent").deadline(std::time::Instant::now());
    let urgent = pipeline.submit(options, Order::Nothing).expect("taken on");
    loop {
        // In this order: what has run was not idle before.
        let is_idle = !pool.has_queued_task() && pool.sleeping() == 1;
        if urgent.has_ended() {
            break;
        }
        assert!(!is_idle, "it waits for a token");
        std::thread::yield_now();
    }
    assert!(!patient.has_ended(), "one token, one job that is not urgent");
    drop(open);
    for ticket in [first, patient, urgent] {
        assert_eq!(ticket.wait().expect("a result"), 64);
    }
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn where_nothing_could_be_busy_memory_alone_says_how_many_are_under_way() {
    const JOBS: usize = 12;
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let (wakers, waker) = mpsc::channel();
    let wakers = crate::sync::Mutex::new(wakers);
    let open = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_open = open.clone();
    let hand = super::kinds::Hand::new();
    let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("ask", Demand::new(), Demand::new()))
        .async_stage("ask", &hand.runtime(), move |_, ()| {
            let (is_open, mut told) = (is_open.clone(), Some(crate::sync::lock(&wakers).clone()));
            std::future::poll_fn(move |cx| {
                if is_open.load(Ordering::SeqCst) {
                    return std::task::Poll::Ready(Ok::<_, Failed>(()));
                }
                if let Some(told) = told.take() {
                    told.send(cx.waker().clone()).expect("the test listens");
                }
                std::task::Poll::Pending
            })
        })
        .build()
        .expect("a pipeline");
    for _ in 0..2 {
        open.store(false, Ordering::SeqCst);
        let tickets: Vec<_> = (0..JOBS).map(|_| pipeline.submit("job", ()).expect("taken on")).collect();
        // All of them ask at once, before any has its answer, and once some times are known as well.
        let asking: Vec<std::task::Waker> = waker.iter().take(JOBS).collect();
        open.store(true, Ordering::SeqCst);
        asking.into_iter().for_each(std::task::Waker::wake);
        tickets.into_iter().for_each(|ticket| ticket.wait().expect("a result"));
    }
    assert_eq!(pipeline.begun_peak(), JOBS);
}

#[test]
fn a_stage_whose_parts_run_on_the_pool_is_served_by_its_threads() {
    for threads in [1, 4] {
        let (ledger, pool) = (ledger(CLAIM), pool(threads));
        let part = || Profile::new().stage("part", Demand::new(), Demand::new());
        let pipeline = Pipeline::builder(&ledger, &pool, move |_: &usize| {
            Profile::new().stage("fan", Demand::new(), Demand::new()).parts(2, &part())
        })
        .fan_out(
            "fan",
            |_, parts: usize| Ok::<_, Failed>(((), 0..parts)),
            move |_| part(),
            |parts| parts.stage("part", |_, number: usize| Ok(number)),
            FanIn::InOrder,
            |_, (), made: Vec<(usize, usize)>| Ok(made.len()),
        )
        .build()
        .expect("a pipeline");
        for _ in 0..20 {
            assert_eq!(pipeline.submit("job", 2).expect("taken on").wait().expect("a result"), 2);
        }
        let pace = pipeline.pace().expect("jobs have run");
        assert_eq!((pace.drum, pace.ropes[0].tokens), (Some("pool"), threads as u64), "{pace:?}");
    }
}
