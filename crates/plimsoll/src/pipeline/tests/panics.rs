//! Panics in the user's code where one does not expect any: while a job is submitted, and in what panics are thrown with.

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
    /// Its destructor throws.
    struct Throws;
    impl Drop for Throws {
        fn drop(&mut self) {
            throw();
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
