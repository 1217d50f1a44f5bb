//! Panics in the user's code where one does not expect any: while a job is submitted, and in what panics are thrown with.

use super::word::hands;
use super::*;
use crate::contain::contain;

/// Thrown, and panics once more when it is dropped, with one of its kind that does so as well.
struct Thrown(u8);

impl Drop for Thrown {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Thrown(self.0 - 1));
        }
    }
}

fn throw() -> ! {
    std::panic::panic_any(Thrown(2))
}

#[test]
fn a_submission_that_panics_leaves_its_id_to_the_next() {
    const UNLUCKY: u8 = 13;
    type Told = (&'static str, u8);
    struct Input(Told);
    impl Clone for Input {
        fn clone(&self) -> Self {
            assert_ne!(self.0, ("clone", UNLUCKY), "told to");
            Self(self.0)
        }
    }
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let key = ledger.residency::<()>("key", BUFFER, Bytes(1), Duration::ZERO).expect("fits");
    let one = || Profile::new().stage("s", Demand::new(), Demand::new());
    let asked = |what: &'static str, input: &Input| assert_ne!(input.0, (what, UNLUCKY), "told to");
    let pipeline = Pipeline::builder(&ledger, &pool, move |input: &Input| {
        asked("profile", input);
        // Told apart by what it needs: the rule about the key sees no more than that.
        match input.0.0 {
            "needs" => Profile::new().stage("s", Demand::new().bytes(SCRATCH, Bytes(input.0.1.into())), Demand::new()),
            _ => one(),
        }
    })
    .stage("s", |_, input: Input| Ok::<_, Failed>(input.0.1))
    .from_start(Retry::times(1))
    .charge_input(BUFFER, move |input| {
        asked("charge", input);
        Bytes::ZERO
    })
    .alternatives(move |input| {
        asked("alternatives", input);
        vec![one()]
    })
    .needs_by(
        &key,
        |profile| {
            assert_ne!(profile.stages()[0].peak.of(SCRATCH), UNLUCKY.into(), "told to");
            false
        },
        |_| Ok::<_, std::fmt::Error>(()),
    )
    .build()
    .expect("a pipeline");
    for what in ["profile", "clone", "charge", "alternatives", "needs"] {
        let submit = |number| pipeline.submit(JobOptions::new(what).id(what), Input((what, number)));
        contain(|| drop(submit(UNLUCKY))).expect_err("a panic");
        let again = submit(7).map_err(|rejected| rejected.reason).expect("nobody has the id");
        assert_eq!(again.wait().expect("a result"), 7);
    }
}

#[test]
fn alternatives_of_other_stages_are_refused() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage("s", |_, ()| Ok::<_, Failed>(()))
        .alternatives(|()| vec![Profile::new()])
        .build()
        .expect("a pipeline");
    let rejected = pipeline.submit("job", ()).expect_err("the alternative has no stage");
    assert!(matches!(rejected.reason, Rejection::OtherStages { .. }));
}

#[test]
fn what_a_panic_is_thrown_with_may_panic_when_it_is_dropped() {
    /// An input whose second clone throws.
    struct Input(Arc<AtomicUsize>);
    impl Clone for Input {
        fn clone(&self) -> Self {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => Self(self.0.clone()),
                _ => throw(),
            }
        }
    }
    let empty = |name| Profile::new().stage(name, Demand::new(), Demand::new());
    for told in ["stage", "clone", "next", "profile", "observer", "dropped", "judge"] {
        let (ledger, pool) = (ledger(CLAIM), pool(1));
        let pipeline = Pipeline::builder(&ledger, &pool, move |_: &Input| {
            empty("first").stage("fan", Demand::new(), Demand::new()).parts(2, &empty("part"))
        })
        .stage("first", move |_, input: Input| {
            match told {
                "stage" => throw(),
                "clone" | "judge" => return Err(Failed(0)),
                _ => {}
            }
            Ok((input, (told == "dropped").then(|| Throws)))
        })
        .from_start(Retry::times(1))
        .fan_out(
            "fan",
            move |_, (_, throws)| {
                drop(throws);
                Ok((
                    (),
                    (0..2).inspect(move |_| {
                        if told == "next" {
                            throw()
                        }
                    }),
                ))
            },
            move |_| if told == "profile" { throw() } else { empty("part") },
            |parts| parts.stage("part", |_, number: usize| Ok(number)),
            FanIn::InOrder,
            |_, (), made: Vec<(usize, usize)>| Ok(made.len()),
        )
        .failures(move |_| if told == "judge" { throw() } else { Failure::Transient })
        .observe(move |_| {
            if told == "observer" {
                throw()
            }
        })
        .build()
        .expect("a pipeline");
        let ticket = pipeline.submit("job", Input(Arc::default())).expect("taken on");
        let answer = ticket.wait();
        match (told, &answer) {
            ("observer", Ok(2)) | ("clone" | "judge", Err(JobError::Stage { stage: "first", .. })) => {}
            ("stage" | "dropped", Err(JobError::Panicked { .. })) => {}
            ("next" | "profile", Err(JobError::Part { stage: "fan", part: 0, .. })) => {}
            _ => panic!("{told}: {answer:?}"),
        }
        // Nothing waits for a job that nobody drives.
        drop(pipeline);
        assert!(ledger.snapshot().is_empty());
    }
}

#[test]
fn a_scope_raises_the_first_panic_and_drops_the_others_whatever_they_do() {
    for threads in [1, 2] {
        let pool = pool(threads);
        let raised = contain(|| {
            pool.install(|| {
                crate::pool::scope(|s| {
                    for _ in 0..3 {
                        s.spawn(|| throw());
                    }
                });
            });
        });
        drop(raised.expect_err("the first"));
        let raised = contain(|| pool.install(|| crate::pool::join(|| throw(), || throw())));
        drop(raised.expect_err("one of both"));
        assert_eq!(pool.install(|| 7), 7);
    }
}

#[test]
fn a_carrier_that_panics_ends_the_job_that_it_was_to_carry() {
    struct Picky(crate::sync::Mutex<mpsc::Sender<Errand>>);
    impl Carrier for Picky {
        fn carry(&self, errand: Errand) {
            crate::sync::lock(&self.0).send(errand).expect("the test listens");
        }
        fn suits(&self, _: &Grant) -> bool {
            throw()
        }
    }
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let (errands, errand) = mpsc::channel();
    let carrier: Arc<dyn Carrier> = Arc::new(Picky(crate::sync::Mutex::new(errands)));
    let bytes = Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let pipeline = Pipeline::builder(&ledger, &pool, move |()| Profile::new().stage("s", bytes.clone(), Demand::new()))
        .stage_on("s", &carrier, |_, ()| Ok::<_, Failed>(()))
        .build()
        .expect("a pipeline");
    let ticket = pipeline.submit(JobOptions::new("job").id("id"), ()).expect("taken on");
    errand.recv().expect("sent on").run();
    assert!(ticket.has_ended(), "nobody has it any more");
    assert!(matches!(ticket.wait(), Err(JobError::Panicked { stage: "s", .. })));
    assert!(ledger.snapshot().is_empty());
    assert_eq!(pipeline.in_flight(), 0);
    drop(pipeline);
}

#[test]
fn a_part_whose_input_cannot_be_cloned_fails_as_a_part() {
    struct Input(usize);
    impl Clone for Input {
        fn clone(&self) -> Self {
            if self.0 == 1 {
                throw()
            }
            Self(self.0)
        }
    }
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let part = || Profile::new().stage("part", Demand::new(), Demand::new());
    let whole = move |()| Profile::new().stage("fan", Demand::new(), Demand::new()).parts(3, &part());
    let pipeline = Pipeline::builder(&ledger, &pool, move |&()| whole(()))
        .fan_out(
            "fan",
            |_, ()| Ok::<_, Failed>(((), (0..3).map(Input))),
            move |_| part(),
            |parts| parts.stage("part", |_, Input(number)| Ok(number)).from_start(Retry::times(1)),
            FanIn::InOrder,
            |_, (), made: Vec<(usize, usize)>| Ok(made.len()),
        )
        .build()
        .expect("a pipeline");
    let error = pipeline.submit("job", ()).expect("taken on").wait().expect_err("one of three");
    assert!(
        matches!(&error, JobError::Part { part: 1, source, .. } if matches!(*source.0, JobError::Panicked { .. })),
        "{error:?}"
    );
    drop(pipeline);
    assert!(ledger.snapshot().is_empty());
}

/// Its destructor throws.
struct Throws;

impl Drop for Throws {
    fn drop(&mut self) {
        throw();
    }
}

#[test]
fn what_several_parts_made_may_panic_when_it_is_dropped() {
    for fails in [false, true] {
        let (ledger, pool, (carrier, errand)) = (ledger(CLAIM), pool(1), hands());
        let part =
            || ["make", "hold"].into_iter().fold(Profile::new(), |p, s| p.stage(s, Demand::new(), Demand::new()));
        let whole = move |()| Profile::new().stage("fan", Demand::new(), Demand::new()).parts(3, &part());
        let pipeline = Pipeline::builder(&ledger, &pool, move |&()| whole(()))
            .fan_out(
                "fan",
                |_, ()| Ok((Throws, 0..3)),
                move |_| part(),
                |parts| {
                    parts.stage("make", |_, number: usize| Ok((number, Throws))).stage_on(
                        "hold",
                        &carrier,
                        move |_, (number, throws)| {
                            if fails && number == 2 {
                                std::mem::forget(throws);
                                return Err(Failed(2));
                            }
                            Ok(throws)
                        },
                    )
                },
                FanIn::InOrder,
                |_, _, _| Ok(()),
            )
            .build()
            .expect("a pipeline");
        let ticket = pipeline.submit("job", ()).expect("taken on");
        errand.recv().expect("the first part").run();
        errand.recv().expect("the second part").run();
        let third = errand.recv().expect("the third part");
        match fails {
            true => third.run(),
            false => ticket.cancel(),
        }
        match ticket.wait() {
            Err(JobError::Part { part: 2, .. }) if fails => {}
            Err(JobError::Cancelled { stage: "fan", .. }) if !fails => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(pool.install(|| 7), 7);
        drop(pipeline);
        assert!(ledger.snapshot().is_empty());
    }
}

#[test]
fn a_future_and_its_input_may_both_panic_when_they_are_dropped() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let (tasks, task) = mpsc::channel();
    let tasks = crate::sync::Mutex::new(tasks);
    let runtime = Runtime::new(move |task| _ = crate::sync::lock(&tasks).send(task));
    let pipeline =
        Pipeline::builder(&ledger, &pool, |_: &Throws| Profile::new().stage("s", Demand::new(), Demand::new()))
            .async_stage_again("s", &runtime, Retry::times(1), |_, _| {
                let throws = Throws;
                async move {
                    let _throws = throws;
                    std::future::pending::<Result<(), Failed>>().await
                }
            })
            .build()
            .expect("a pipeline");
    let ticket = pipeline.submit("job", Throws).map_err(|rejected| rejected.reason).expect("taken on");
    let mut sailing: Task = task.recv().expect("spawned");
    assert!(sailing.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
    ticket.cancel();
    assert!(matches!(ticket.wait(), Err(JobError::Cancelled { .. })));
    drop(sailing);
    drop(pipeline);
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_result_that_nobody_wants_may_panic_when_it_is_dropped() {
    let (ledger, pool, (carrier, errand)) = (ledger(CLAIM), pool(1), hands());
    let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage_on("s", &carrier, |_, ()| Ok::<_, Failed>(Throws))
        .build()
        .expect("a pipeline");
    drop(pipeline.submit("job", ()).expect("taken on"));
    // On this thread, which goes on.
    errand.recv().expect("sent on").run();
    assert_eq!(pipeline.in_flight(), 0);
}

/// A waker that throws whenever it is called.
#[cfg(feature = "stream")]
struct Throwing;

#[cfg(feature = "stream")]
impl std::task::Wake for Throwing {
    fn wake(self: Arc<Self>) {
        throw()
    }
}

#[cfg(feature = "stream")]
#[test]
fn a_waker_that_panics_loses_no_job() {
    use futures_core::Stream;
    use std::task::{Context, Poll, Waker};

    struct Each<I>(I);
    impl<I: Iterator + Unpin> Stream for Each<I> {
        type Item = I::Item;
        fn poll_next(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
            Poll::Ready(self.0.next())
        }
    }
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = build(&ledger, &pool, quiet());
    let held = ledger.reserve(SCRATCH, CLAIM).wait().expect("room");
    let waker = Waker::from(Arc::new(Throwing));
    // Told when the first job begins, and one that is awaited when it has ended.
    let mut results = pipeline.run_stream(Each([("one", Order::Nothing), ("two", Order::Nothing)].into_iter()));
    let mut poll = |waker: &Waker| std::pin::Pin::new(&mut results).poll_next(&mut Context::from_waker(waker));
    assert!(poll(&waker).is_pending());
    let mut ticket = std::pin::pin!(pipeline.submit("three", Order::Nothing).expect("taken on"));
    assert!(ticket.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(held);
    while !ticket.has_ended() {
        std::thread::yield_now();
    }
    assert!(matches!(ticket.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(64))));
    let mut made = 0;
    while made < 2 {
        match poll(Waker::noop()) {
            Poll::Ready(Some((_, result))) => {
                assert_eq!(result.expect("a result"), 64);
                made += 1;
            }
            Poll::Ready(None) => panic!("there are two"),
            Poll::Pending => std::thread::yield_now(),
        }
    }
    drop(results);
    assert_usable(&ledger, &pipeline);
}
