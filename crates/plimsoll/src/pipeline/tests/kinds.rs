//! Every kind of stage at every place of a pipeline, with a fault of every kind injected there.

use std::task::{Context, Wake, Waker};

use super::*;
use crate::sync::{Mutex, lock, thread};

/// Where a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Worker,
    Carried,
    Task,
}

pub(super) const KINDS: [Kind; 3] = [Kind::Worker, Kind::Carried, Kind::Task];

/// One thread that runs whatever comes: errands and futures. It ends with its last handle.
#[derive(Clone)]
pub(crate) struct Hand {
    work: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl Hand {
    pub(crate) fn new() -> Self {
        let (work, to_do) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        thread::Builder::new().spawn(move || to_do.into_iter().for_each(|work| work())).expect("a thread");
        Self { work }
    }

    pub(crate) fn carrier(&self) -> Arc<dyn Carrier> {
        Arc::new(self.clone())
    }

    pub(crate) fn runtime(&self) -> Runtime {
        let hand = self.clone();
        Runtime::new(move |task| Arc::new(Polled { hand: hand.clone(), task: Mutex::new(Some(task)) }).wake())
    }
}

impl Carrier for Hand {
    fn carry(&self, errand: Errand) {
        let _ = self.work.send(Box::new(move || errand.run()));
    }
}

/// A future that a [`Hand`] polls.
struct Polled {
    hand: Hand,
    task: Mutex<Option<Task>>,
}

impl Wake for Polled {
    fn wake(self: Arc<Self>) {
        let work = self.hand.work.clone();
        let _ = work.send(Box::new(move || {
            let waker = Waker::from(self.clone());
            let mut task = lock(&self.task);
            if let Some(future) = &mut *task
                && future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            {
                *task = None;
            }
        }));
    }
}

pub(super) use self::around::once_around;

#[path = "../../../tests/soak_pipeline/once_around.rs"]
mod around;

/// What travels from stage to stage: what the job is told, and its buffer once it has one.
type Between = (Order, Option<Buffer>);
type Built = Pipeline<Between, Between, Failed>;

/// Is called in the middle of each stage, with what is left of its grant.
type Middle = dyn Fn(usize, &mut Grant) + Send + Sync;

fn nothing() -> Arc<Middle> {
    Arc::new(|_, _| {})
}

/// The four stages of [`STAGES`], each of its kind. The first makes the buffer.
fn build_of(kinds: [Kind; 4], ledger: &Ledger, pool: &Pool, hand: &Hand, middle: &Arc<Middle>) -> Built {
    let (carrier, runtime) = (hand.carrier(), hand.runtime());
    let mut builder = Pipeline::builder(ledger, pool, |_: &Between| profile());
    for (at, kind) in kinds.into_iter().enumerate() {
        let middle = middle.clone();
        let work = move |grant: &mut Grant, (order, buffer): Between| {
            let make = || grant.vec(BUFFER, BUFFER_BYTES.0 as usize).expect("granted");
            let buffer = buffer.unwrap_or_else(make);
            middle(at, grant);
            match order {
                Order::Fail(stage) if at == stage => Err(Failed(stage)),
                Order::Panic(stage) if at == stage => panic!("told to"),
                _ => Ok((order, Some(buffer))),
            }
        };
        builder = match kind {
            Kind::Worker => builder.stage(STAGES[at], move |cx, between| work(cx.grant(), between)),
            Kind::Carried => builder.stage_on(STAGES[at], &carrier, move |cx, between| work(cx.grant(), between)),
            Kind::Task => {
                let work = Arc::new(work);
                builder.async_stage(STAGES[at], &runtime, move |cx, between| {
                    let work = work.clone();
                    async move {
                        once_around().await;
                        let done = cx.with_grant(|grant| work(grant, between)).expect("the stage has not ended");
                        once_around().await;
                        done
                    }
                })
            }
        };
    }
    builder.build().expect("a pipeline")
}

/// Each kind of stage at each place.
fn for_each_place(check: impl Fn([Kind; 4], usize)) {
    for turn in 0..KINDS.len() {
        let kinds = std::array::from_fn(|at| KINDS[(at + turn) % KINDS.len()]);
        for at in 0..STAGES.len() {
            check(kinds, at);
        }
    }
}

fn send(pipeline: &Built, order: Order) -> Ticket<Between, Failed> {
    pipeline.submit("job", (order, None)).expect("taken on")
}

/// Nothing is held, and a job gets through.
fn assert_usable(ledger: &Ledger, pipeline: &Built) {
    ledger.quiesce(Duration::from_secs(10)).expect("quiet");
    assert!(ledger.snapshot().is_empty(), "{:?}", ledger.snapshot());
    let (_, buffer) = send(pipeline, Order::Nothing).wait().expect("a result");
    assert_eq!(buffer.expect("made").bytes(), BUFFER_BYTES);
}

#[test]
fn jobs_pass_through_stages_of_every_kind() {
    for turn in 0..KINDS.len() {
        let kinds = std::array::from_fn(|at| KINDS[(at + turn) % KINDS.len()]);
        for fit in [1, 3] {
            let (ledger, pool, hand) = (ledger(CLAIM.times(fit)), pool(2), Hand::new());
            let pipeline = build_of(kinds, &ledger, &pool, &hand, &nothing());
            let tickets: Vec<_> = (0..20).map(|_| send(&pipeline, Order::Nothing)).collect();
            for ticket in tickets {
                drop(ticket.wait().expect("a result"));
            }
            assert!(ledger.snapshot().space(Space::HOST).expect("named").peak <= CLAIM.times(fit));
            assert_usable(&ledger, &pipeline);
        }
    }
}

#[test]
fn an_error_or_a_panic_in_a_stage_of_any_kind_loses_nothing() {
    for_each_place(|kinds, at| {
        let (ledger, pool, hand) = (ledger(CLAIM), pool(1), Hand::new());
        let pipeline = build_of(kinds, &ledger, &pool, &hand, &nothing());
        for order in [Order::Fail(at), Order::Panic(at)] {
            let stage_of = match send(&pipeline, order).wait().expect_err("told to") {
                JobError::Stage { stage, source, .. } if order == Order::Fail(at) => {
                    assert_eq!(source, Failed(at));
                    stage
                }
                JobError::Panicked { stage, message, .. } if order == Order::Panic(at) => {
                    assert_eq!(message, "told to");
                    stage
                }
                other => panic!("{kinds:?} {at}: {other:?}"),
            };
            assert_eq!(stage_of, STAGES[at]);
            assert_usable(&ledger, &pipeline);
        }
    });
}

#[test]
fn a_cancellation_in_a_stage_of_any_kind_loses_nothing() {
    for_each_place(|kinds, at| {
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let middle = move |stage, _: &mut Grant| {
            if stage == at {
                // Nobody listens any more when the pipeline's other jobs come by.
                let _ = begun.send(());
                let _ = lock(&may_go_on).recv();
            }
        };
        let (ledger, pool, hand) = (ledger(CLAIM), pool(1), Hand::new());
        let pipeline = build_of(kinds, &ledger, &pool, &hand, &(Arc::new(middle) as Arc<Middle>));
        let ticket = send(&pipeline, Order::Nothing);
        has_begun.recv().expect("the stage begins");
        ticket.cancel();
        drop((go_on, has_begun));
        match ticket.wait() {
            // A future is dropped where it is; a stage on a thread ends first.
            Err(JobError::Cancelled { stage, .. }) => {
                assert_eq!(stage, STAGES[if kinds[at] == Kind::Task { at } else { at + 1 }]);
            }
            Ok(_) => assert!(at == 3 && kinds[at] != Kind::Task, "only the last stage can still succeed"),
            Err(other) => panic!("{other:?}"),
        }
        assert_usable(&ledger, &pipeline);
    });
}

#[test]
fn a_pipeline_dropped_in_a_stage_of_any_kind_answers_and_loses_nothing() {
    for_each_place(|kinds, at| {
        let (begun, has_begun) = mpsc::channel();
        let middle = move |stage, _: &mut Grant| {
            if stage == at {
                let _ = begun.send(());
            }
        };
        let (ledger, pool, hand) = (ledger(CLAIM.times(2)), pool(1), Hand::new());
        let pipeline = build_of(kinds, &ledger, &pool, &hand, &(Arc::new(middle) as Arc<Middle>));
        let tickets: Vec<_> = (0..4).map(|_| send(&pipeline, Order::Nothing)).collect();
        has_begun.recv().expect("a stage begins");
        drop(pipeline);
        for ticket in tickets {
            assert!(ticket.has_ended());
            assert!(matches!(ticket.wait(), Ok(_) | Err(JobError::ShutDown { .. })));
        }
        ledger.quiesce(Duration::from_secs(10)).expect("quiet");
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn a_stage_of_any_kind_that_keeps_too_much_is_refused_the_next_and_loses_nothing() {
    for_each_place(|kinds, at| {
        let pocket = Arc::new(Mutex::new(None));
        let kept = pocket.clone();
        let middle = move |stage, grant: &mut Grant| {
            if stage == at && lock(&kept).is_none() {
                // As another class it leaves no room for the next stage's scratch.
                let scratch = grant.take(SCRATCH, SCRATCH_BYTES).expect("granted");
                *lock(&kept) = Some(scratch.into_class(BUFFER).expect("it fits"));
            }
        };
        let (ledger, pool, hand) = (ledger(CLAIM.times(2)), pool(1), Hand::new());
        let pipeline = build_of(kinds, &ledger, &pool, &hand, &(Arc::new(middle) as Arc<Middle>));
        match send(&pipeline, Order::Nothing).wait() {
            Err(JobError::NotEntered { stage, .. }) => assert_eq!(stage, STAGES[at + 1]),
            Ok(_) => assert_eq!(at, 3, "nothing comes after the last stage"),
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(ledger.snapshot().class(BUFFER).expect("used").totals.held, SCRATCH_BYTES.0);
        // Emptied, and never filled again.
        *lock(&pocket) = None;
        ledger.quiesce(Duration::from_secs(10)).expect("quiet");
        assert!(ledger.snapshot().is_empty());
    });
}

/// Says when it is dropped.
struct Bell(mpsc::Sender<&'static str>);

impl Drop for Bell {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

/// A pipeline of one stage that waits for ever, with a buffer in its hands.
fn endless(
    ledger: &Ledger,
    pool: &Pool,
    runtime: &Runtime,
) -> (Pipeline<(), (), Failed>, mpsc::Receiver<&'static str>) {
    let (say, said) = mpsc::channel();
    let peak = Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let pipeline = Pipeline::builder(ledger, pool, move |()| Profile::new().stage("wait", peak.clone(), Demand::new()))
        .async_stage("wait", runtime, move |cx, ()| {
            let say = say.clone();
            async move {
                let bell = Bell(say.clone());
                let _buffer = cx.vec::<u8>(BUFFER, BUFFER_BYTES.0 as usize).expect("granted");
                say.send("begun").expect("the test listens");
                std::future::pending::<()>().await;
                drop(bell);
                Ok(())
            }
        })
        .build()
        .expect("a pipeline");
    (pipeline, said)
}

#[test]
fn cancelling_drops_a_parked_future_at_once_even_when_its_runtime_stands_still() {
    let (ledger, pool, hand) = (ledger(BUFFER_BYTES), pool(1), Hand::new());
    let (pipeline, said) = endless(&ledger, &pool, &hand.runtime());
    let ticket = pipeline.submit("job", ()).expect("taken on");
    assert_eq!(said.recv(), Ok("begun"));
    // From here on the runtime does nothing, until the test is over.
    let (_keep, kept) = mpsc::channel::<()>();
    let (standing, stands) = mpsc::channel();
    let block = move || {
        standing.send(()).expect("the test listens");
        let _ = kept.recv();
    };
    hand.work.send(Box::new(block)).expect("the hand works");
    stands.recv().expect("it stands");
    ticket.cancel();
    assert_eq!(said.try_recv(), Ok("dropped"));
    assert!(ledger.snapshot().is_empty());
    assert!(matches!(ticket.wait(), Err(JobError::Cancelled { stage: "wait", .. })));
}

#[test]
fn a_runtime_or_carrier_that_is_gone_ends_the_job_and_gives_everything_back() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let gone = Runtime::new(drop);
    let refuses = Runtime::new(|_| panic!("no more"));
    for runtime in [gone, refuses] {
        let (pipeline, _said) = endless(&ledger, &pool, &runtime);
        let ticket = pipeline.submit("job", ()).expect("taken on");
        assert!(matches!(ticket.wait(), Err(JobError::Forsaken { stage: "wait", .. })));
        assert!(ledger.snapshot().is_empty());
    }
    struct Nobody;
    impl Carrier for Nobody {
        fn carry(&self, errand: Errand) {
            assert_eq!((errand.job_name(), errand.stages_left()), ("job", 0));
        }
    }
    let nobody: Arc<dyn Carrier> = Arc::new(Nobody);
    let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage_on("s", &nobody, |_, ()| Ok::<_, Failed>(()))
        .build()
        .expect("a pipeline");
    assert!(matches!(pipeline.submit("job", ()).expect("taken on").wait(), Err(JobError::Forsaken { stage: "s", .. })));
}

#[test]
fn a_runtime_that_shuts_down_in_the_middle_of_a_stage_ends_the_job() {
    let (ledger, pool) = (ledger(BUFFER_BYTES), pool(1));
    let tasks = Arc::new(Mutex::new(Vec::<Task>::new()));
    let spawned = tasks.clone();
    let runtime = Runtime::new(move |task| lock(&spawned).push(task));
    let (pipeline, said) = endless(&ledger, &pool, &runtime);
    let ticket = pipeline.submit("job", ()).expect("taken on");
    let mut task = lock(&tasks).pop().expect("spawned");
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(said.try_recv(), Ok("begun"));
    drop(task);
    assert_eq!(said.try_recv(), Ok("dropped"));
    assert!(matches!(ticket.wait(), Err(JobError::Forsaken { stage: "wait", .. })));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_context_that_outlives_its_stage_has_nothing_to_give() {
    let (ledger, pool, hand) = (ledger(CLAIM), pool(1), Hand::new());
    let peak = Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let pipeline = Pipeline::builder(&ledger, &pool, move |()| Profile::new().stage("s", peak.clone(), Demand::new()))
        .async_stage("s", &hand.runtime(), |cx, ()| async move { Ok::<_, Failed>(cx) })
        .build()
        .expect("a pipeline");
    let cx = pipeline.submit("job", ()).expect("taken on").wait().expect("a result");
    assert!(ledger.snapshot().is_empty());
    let error = cx.take(BUFFER, Bytes(1)).expect_err("too late");
    assert_eq!((error.requested, error.left), (Bytes(1), Bytes::ZERO));
    assert!(cx.vec::<u8>(BUFFER, 1).is_err());
}

#[test]
fn no_more_jobs_are_in_a_stage_at_once_than_it_allows() {
    for (at_most, kind) in [(1, Kind::Worker), (2, Kind::Worker), (2, Kind::Task)] {
        let (ledger, pool, hand) = (ledger(CLAIM.times(8)), pool(4), Hand::new());
        let inside = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let entered = {
            let inside = inside.clone();
            move || {
                let now = inside.0.fetch_add(1, Ordering::Relaxed) + 1;
                inside.1.fetch_max(now, Ordering::Relaxed);
            }
        };
        let left = {
            let inside = inside.clone();
            move || {
                inside.0.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let keep = Demand::new().bytes(BUFFER, BUFFER_BYTES);
        let builder = Pipeline::builder(&ledger, &pool, move |()| {
            Profile::new().stage("before", keep.clone(), keep.clone()).stage("narrow", keep.clone(), Demand::new())
        })
        .stage("before", |cx, ()| Ok::<_, Failed>(cx.grant().take_all(BUFFER)));
        let builder = match kind {
            Kind::Task => builder.async_stage("narrow", &hand.runtime(), move |_, held| {
                let (entered, left) = (entered.clone(), left.clone());
                async move {
                    entered();
                    once_around().await;
                    left();
                    drop(held);
                    Ok(())
                }
            }),
            _ => builder.stage("narrow", move |_, held| {
                entered();
                std::thread::yield_now();
                left();
                drop(held);
                Ok(())
            }),
        };
        let pipeline = builder.at_most(at_most).build().expect("a pipeline");
        let tickets: Vec<_> = (0..40).map(|_| pipeline.submit("job", ()).expect("taken on")).collect();
        for ticket in tickets {
            ticket.wait().expect("a result");
        }
        assert!(inside.1.load(Ordering::Relaxed) <= at_most);
        ledger.quiesce(Duration::from_secs(10)).expect("quiet");
        assert!(ledger.snapshot().is_empty());
    }
}

#[test]
fn stages_of_the_same_name_have_limits_of_their_own() {
    let (ledger, pool, (carrier, errand)) = (ledger(CLAIM), pool(1), super::word::hands());
    let twice = || Profile::new().stage("s", Demand::new(), Demand::new()).stage("s", Demand::new(), Demand::new());
    let pipeline = Pipeline::builder(&ledger, &pool, move |()| twice())
        .stage_on("s", &carrier, |_, ()| Ok::<_, Failed>(()))
        .at_most(2)
        .stage_on("s", &carrier, |_, ()| Ok(()))
        .at_most(1)
        .pacing(Pacing::Unpaced)
        .build()
        .expect("a pipeline");
    let tickets: Vec<_> = (0..4).map(|_| pipeline.submit("job", ()).expect("taken on")).collect();
    let mut let_in: std::collections::VecDeque<_> = errand.try_iter().collect();
    assert_eq!(let_in.len(), 2, "whatever the other one's limit is");
    while let Some(errand_of_one) = let_in.pop_front() {
        errand_of_one.run();
        let_in.extend(errand.try_iter());
        assert!(let_in.iter().filter(|errand| errand.stages_left() == 0).count() <= 1);
    }
    for ticket in tickets {
        ticket.wait().expect("a result");
    }
}

#[test]
fn a_stage_that_was_granted_no_lane_runs_on_a_worker_also_behind_a_carried_one() {
    let (ledger, pool, (carrier, errand)) = (ledger(CLAIM), pool(2), super::word::hands());
    let two = || Profile::new().stage("one", Demand::new(), Demand::new()).stage("two", Demand::new(), Demand::new());
    let pipeline = Pipeline::builder(&ledger, &pool, move |()| two())
        .stage_on("one", &carrier, |_, ()| Ok::<_, Failed>(()))
        .stage_on_either("two", &carrier, |_, ()| Err(Failed(1)), |_, ()| Ok(crate::pool::current_threads()))
        .build()
        .expect("a pipeline");
    let ticket = pipeline.submit("job", ()).expect("taken on");
    errand.recv().expect("sent on").run();
    assert_eq!(ticket.wait().expect("a result"), 2, "on a worker, which the other one helps");
}
