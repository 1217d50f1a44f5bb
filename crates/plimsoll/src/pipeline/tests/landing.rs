//! What is left of a pipeline when it was dropped: nothing, whoever was at its jobs.

use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Wake, Waker};

use super::*;
use crate::pool::Shutdown;
use crate::sync::{Mutex, lock, thread};

/// A thread of a user's.
fn spawn<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
    thread::Builder::new().spawn(run).expect("a thread")
}

/// A waker that says that it was called, and then stands until it may go on.
struct Gate {
    entered: mpsc::Sender<()>,
    may_go_on: Mutex<mpsc::Receiver<()>>,
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        let _ = self.entered.send(());
        let _ = lock(&self.may_go_on).recv();
    }
}

/// A runtime that polls its futures once, where they are spawned, and keeps them.
fn standing_runtime(waker: &Waker) -> Runtime {
    let (waker, kept) = (waker.clone(), Mutex::new(Vec::new()));
    Runtime::new(move |mut task: Task| {
        assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        lock(&kept).push(task);
    })
}

/// One stage that waits for ever, and owns `owned`.
fn endless(ledger: &Ledger, pool: &Pool, runtime: &Runtime, owned: Arc<()>) -> Pipeline<(), (), Failed> {
    Pipeline::builder(ledger, pool, |()| Profile::new().stage("wait", Demand::new(), Demand::new()))
        .async_stage("wait", runtime, move |_, ()| {
            let _ = &owned;
            std::future::pending::<Result<(), Failed>>()
        })
        .build()
        .expect("a pipeline")
}

#[test]
fn dropping_waits_for_who_is_inside_of_a_job_that_has_ended() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let (entered, has_entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let gate = Arc::new(Gate { entered, may_go_on: Mutex::new(may_go_on) });
    let runtime = standing_runtime(&Waker::from(gate));
    let owned = Arc::new(());
    let stages = Arc::downgrade(&owned);
    let pipeline = endless(&ledger, &pool, &runtime, owned);
    let ticket = pipeline.submit("job", ()).expect("taken on");
    // It ends the job, and is then held up by the runtime's waker, with the job's trip in hand.
    let canceller = spawn(move || {
        ticket.cancel();
        ticket
    });
    has_entered.recv().expect("the job's future is told");
    assert_eq!(pipeline.in_flight(), 0);
    let (landing, has_returned) = (pipeline.line.landing.clone(), Arc::new(AtomicBool::new(false)));
    let dropper = spawn({
        let has_returned = has_returned.clone();
        move || {
            drop(pipeline);
            has_returned.store(true, Ordering::SeqCst);
        }
    });
    while landing.waiting() == 0 {
        assert!(!has_returned.load(Ordering::SeqCst), "the drop returned while a thread was inside of a job");
        thread::yield_now();
    }
    go_on.send(()).expect("it stands");
    dropper.join().expect("no panic");
    assert!(stages.upgrade().is_none(), "the stages are gone when the drop returns");
    let ticket = canceller.join().expect("no panic");
    assert!(matches!(ticket.wait(), Err(JobError::Cancelled { .. })));
}

#[test]
fn tickets_errands_and_futures_that_others_keep_keep_nothing_of_the_pipeline() {
    struct Keeps(Mutex<Vec<Errand>>);
    impl Carrier for Keeps {
        fn carry(&self, errand: Errand) {
            lock(&self.0).push(errand);
        }
    }
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let keeps = Arc::new(Keeps(Mutex::new(Vec::new())));
    let carrier: Arc<dyn Carrier> = keeps.clone();
    let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage_on("s", &carrier, |_, ()| Ok::<_, Failed>(()))
        .build()
        .expect("a pipeline");
    let carried = pipeline.submit("carried", ()).expect("taken on");
    drop((pipeline, carrier));
    assert_eq!(Arc::strong_count(&keeps), 1);
    // What comes too late does nothing.
    std::mem::take(&mut *lock(&keeps.0)).into_iter().for_each(Errand::run);
    assert!(matches!(carried.wait(), Err(JobError::ShutDown { .. })));

    let owned = Arc::new(());
    let stages = Arc::downgrade(&owned);
    let runtime = standing_runtime(Waker::noop());
    let pipeline = endless(&ledger, &pool, &runtime, owned);
    let sailing = pipeline.submit("sailing", ()).expect("taken on");
    drop(pipeline);
    assert!(stages.upgrade().is_none(), "the runtime still has the future");
    assert!(matches!(sailing.wait(), Err(JobError::ShutDown { .. })));
    assert!(ledger.snapshot().is_empty());
}

/// Sends its errands to the test, which runs them.
struct Hands(Mutex<mpsc::Sender<Errand>>);

impl Carrier for Hands {
    fn carry(&self, errand: Errand) {
        lock(&self.0).send(errand).expect("the test listens");
    }
}

fn hands() -> (Arc<dyn Carrier>, mpsc::Receiver<Errand>) {
    let (errands, errand) = mpsc::channel();
    (Arc::new(Hands(Mutex::new(errands))), errand)
}

/// A waker that drops what it has, and says so.
struct Drops<T>(Mutex<Option<T>>, mpsc::Sender<()>);

impl<T: Send + 'static> Drops<T> {
    fn waker(what: T) -> (Waker, mpsc::Receiver<()>) {
        let (dropped, is_dropped) = mpsc::channel();
        (Waker::from(Arc::new(Drops(Mutex::new(Some(what)), dropped))), is_dropped)
    }
}

impl<T: Send + 'static> Wake for Drops<T> {
    fn wake(self: Arc<Self>) {
        drop(lock(&self.0).take());
        let _ = self.1.send(());
    }
}

#[test]
fn a_pipeline_dropped_by_a_waker_that_it_calls_does_not_wait_for_itself() {
    // The ticket's waker is called by whoever ends the job: here the test, which runs the errand. Once the pipeline has the last
    // handle to its pool, whose worker waits for the end of this job.
    for has_the_pool in [false, true] {
        let (ledger, pool) = (ledger(CLAIM), pool(1));
        let (carrier, errand) = hands();
        let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
            .stage_on("s", &carrier, |_, ()| Ok::<_, Failed>(()))
            .build()
            .expect("a pipeline");
        let pool = (!has_the_pool).then_some(pool);
        let mut ticket = std::pin::pin!(pipeline.submit("job", ()).expect("taken on"));
        let (waker, is_dropped) = Drops::waker(pipeline);
        assert!(ticket.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        errand.recv().expect("sent on").run();
        is_dropped.recv().expect("the waker was called, and came back");
        assert!(matches!(ticket.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(()))));
        drop(pool);
    }
}

#[test]
fn the_last_handle_to_a_pool_goes_in_a_carried_stage_or_the_pool_is_ended_there() {
    for end in [None, Some(Shutdown::Drain), Some(Shutdown::Abort)] {
        let (ledger, pool) = (ledger(CLAIM), pool(1));
        let (carrier, errand) = hands();
        let slot = Arc::new(Mutex::new(None));
        let here = slot.clone();
        let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
            .stage_on("s", &carrier, move |_, ()| {
                let (pipeline, pool): (Option<Pipeline<(), (), Failed>>, Pool) = lock(&here).take().expect("placed");
                match end {
                    Some(how) => pool.shutdown(how),
                    None => drop((pipeline, pool)),
                }
                Ok(())
            })
            .build()
            .expect("a pipeline");
        let ticket = pipeline.submit("job", ()).expect("taken on");
        let kept = end.is_some();
        let (placed, kept) = if kept { (None, Some(pipeline)) } else { (Some(pipeline), None) };
        *lock(&slot) = Some((placed, pool));
        errand.recv().expect("sent on").run();
        ticket.wait().expect("it was its last stage");
        drop(kept);
        assert!(ledger.snapshot().is_empty());
    }
}

#[test]
fn the_last_handle_to_a_pool_goes_in_a_future_that_is_polled() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let (futures, future) = mpsc::channel();
    let futures = Mutex::new(futures);
    let runtime = Runtime::new(move |task| lock(&futures).send(task).expect("the test listens"));
    let slot = Arc::new(Mutex::new(None));
    let here = slot.clone();
    let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .async_stage("s", &runtime, move |_, ()| {
            let pipeline: Pipeline<(), (), Failed> = lock(&here).take().expect("placed");
            async move {
                drop(pipeline);
                Ok::<_, Failed>(())
            }
        })
        .build()
        .expect("a pipeline");
    drop(pool);
    let ticket = pipeline.submit("job", ()).expect("taken on");
    *lock(&slot) = Some(pipeline);
    let mut task: Task = future.recv().expect("spawned");
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    ticket.wait().expect("it was its last stage");
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn the_last_handle_to_a_pool_goes_with_a_canceller_and_with_the_clock() {
    for by_the_clock in [false, true] {
        let (ledger, pool) = (ledger(CLAIM), pool(1));
        let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("room");
        let pipeline = build(&ledger, &pool, quiet());
        drop(pool);
        // Set after the waker: not before the test may be told.
        let timeout = if by_the_clock { Duration::from_millis(20) } else { Duration::from_secs(1000) };
        let ticket = pipeline.submit(JobOptions::new("job").timeout(timeout), Order::Nothing).expect("taken on");
        let mut ticket = std::pin::pin!(ticket);
        let (waker, is_dropped) = Drops::waker(pipeline);
        if ticket.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            if !by_the_clock {
                ticket.cancel();
            }
            is_dropped.recv().expect("the waker was called, and came back");
            let Poll::Ready(answer) = ticket.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("it has ended")
            };
            answer.expect_err("it never began");
        }
        drop(held);
    }
}

#[test]
fn pipelines_that_come_and_go_leave_no_accounts_behind() {
    let (ledger, pool) = (ledger(CLAIM.times(2)), pool(1));
    let accounts = || ledger.snapshot().slots.len();
    let before = accounts();
    for round in 0..20 {
        let pipelines = [build(&ledger, &pool, quiet()), build(&ledger, &pool, quiet())];
        let tickets = pipelines.each_ref().map(|pipeline| pipeline.submit("job", Order::Nothing).expect("taken on"));
        for ticket in tickets {
            ticket.wait().expect("a result");
        }
        assert!(pipelines.iter().all(|pipeline| pipeline.pace().is_some()));
        drop(pipelines);
        assert_eq!(accounts(), before, "round {round}");
    }
    // Two at a time have left two, which nobody sees.
    assert!(ledger.components() <= before + 2 + 2 * 3, "{}", ledger.components());
}

#[test]
fn an_answer_comes_after_what_it_says() {
    // Nothing of a job is under way any more when its ticket is answered, also for those who watch.
    let (ledger, pool) = (ledger(CLAIM.times(2)), pool(2));
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage("s", |_, ()| Ok::<_, Failed>(()))
        .observe(move |event| {
            if matches!(event, Event::JobEnded { .. }) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
        .build()
        .expect("a pipeline");
    for job in 1..=200 {
        pipeline.submit("job", ()).expect("taken on").wait().expect("a result");
        assert_eq!((pipeline.in_flight(), told.load(Ordering::Relaxed)), (0, job));
        assert_eq!(pipeline.stats()[0].count, job as u64);
    }
}

#[test]
fn a_pool_whose_last_handle_is_dropped_by_its_own_worker_ends_all_the_same() {
    let ledger = ledger(CLAIM);
    let owned = Arc::new(());
    let stages = Arc::downgrade(&owned);
    let slot = Arc::new(Mutex::new(None));
    let (take, placed) = (slot.clone(), Arc::new(std::sync::Barrier::new(2)));
    let is_placed = placed.clone();
    let hook = move |_: &StageCx<'_>, _| {
        let _ = &owned;
        is_placed.wait();
        // The pipeline has the last handle to its pool, whose other worker waits for this job.
        let pipeline: Option<Pipeline<_, _, _>> = lock(&take).take();
        drop(pipeline.expect("the test placed it"));
    };
    let pipeline = build(&ledger, &pool(2), Arc::new(hook));
    let ticket = pipeline.submit("job", Order::Nothing).expect("taken on");
    *lock(&slot) = Some(pipeline);
    placed.wait();
    assert!(matches!(ticket.wait(), Err(JobError::ShutDown { stage: "second", .. })));
    while stages.upgrade().is_some() {
        thread::yield_now();
    }
    assert!(ledger.snapshot().is_empty());
}
