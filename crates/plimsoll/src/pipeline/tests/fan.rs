//! Jobs that split into parts: order, room, failures of parts, cancellation, shutdown.

use super::kinds::{Hand, KINDS, Kind, once_around};
use super::*;
use crate::sync::{Mutex, lock};

const OUTPUT: Class = Class::new("output", Space::HOST);
const OUTPUT_BYTES: Bytes = Bytes(8);

/// A job of so many parts, and what one of them is told.
#[derive(Clone, Copy, Debug)]
struct Whole {
    parts: usize,
    told: (usize, Order),
}

const fn whole(parts: usize) -> Whole {
    Whole { parts, told: (0, Order::Nothing) }
}

/// A part makes an output with a buffer's help, in two stages, of which the second has scratch.
fn part_profile() -> Profile {
    let output = Demand::new().bytes(OUTPUT, OUTPUT_BYTES);
    let buffer = output.clone().bytes(BUFFER, BUFFER_BYTES);
    Profile::new().stage("make", buffer.clone(), buffer.clone()).stage("turn", buffer, output)
}

/// What one part needs besides all outputs.
const ROOM: Bytes = BUFFER_BYTES;

fn claim(parts: u64) -> Bytes {
    Bytes(ROOM.0 + parts * OUTPUT_BYTES.0)
}

type Hooked = dyn Fn(usize, usize) + Send + Sync;
type Outputs = Vec<(usize, usize)>;

/// The number of a part, what it is told, and what it holds.
type Part = (usize, Order, Reservation, Reservation);

fn obey(order: Order, stage: usize) -> Result<(), Failed> {
    match order {
        Order::Fail(at) if at == stage => Err(Failed(stage)),
        Order::Panic(at) if at == stage => panic!("told to"),
        _ => Ok(()),
    }
}

/// Splits into parts whose second stage is of this kind, and joins their numbers. `hook` is called in each stage of a
/// part with the stage and the part.
fn fanning(
    (ledger, pool, hand): (&Ledger, &Pool, &Hand),
    kind: Kind,
    order: FanIn,
    at_most: usize,
    hook: Arc<Hooked>,
) -> Pipeline<Whole, Outputs, Failed> {
    let (made, turned) = (hook.clone(), hook);
    let turn = move |(number, order, buffer, output): Part| {
        turned(1, number);
        drop(buffer);
        obey(order, 1).map(|()| (number, output))
    };
    let hand = hand.clone();
    let parts = move |parts: Builder<(usize, Order), (usize, Order), Failed>| {
        let parts = parts.stage("make", move |cx, (number, order)| {
            made(0, number);
            obey(order, 0)?;
            Ok::<Part, _>((number, order, cx.grant().take_all(BUFFER), cx.grant().take_all(OUTPUT)))
        });
        let parts = match kind {
            Kind::Worker => parts.stage("turn", move |_, part| turn(part)),
            Kind::Carried => parts.stage_on("turn", &hand.carrier(), move |_, part| turn(part)),
            Kind::Task => {
                let turn = Arc::new(turn);
                parts.async_stage("turn", &hand.runtime(), move |_, part| {
                    let turn = turn.clone();
                    async move {
                        once_around().await;
                        turn(part)
                    }
                })
            }
        };
        parts.at_most(at_most)
    };
    let profile = |whole: &Whole| {
        let outputs = Demand::new().bytes(OUTPUT, OUTPUT_BYTES.times(whole.parts as u64));
        Profile::new().stage("fan", Demand::new(), outputs.clone()).parts(whole.parts as u64, &part_profile()).stage(
            "end",
            outputs,
            Demand::new(),
        )
    };
    Pipeline::builder(ledger, pool, profile)
        .fan_out(
            "fan",
            |_, Whole { parts, told }| {
                Ok(((), (0..parts).map(move |number| (number, if number == told.0 { told.1 } else { Order::Nothing }))))
            },
            |_| part_profile(),
            parts,
            order,
            |_, (), made: Vec<(usize, (usize, Reservation))>| Ok(made),
        )
        .stage("end", |_, made| {
            let bytes: Bytes = made.iter().map(|(_, (_, output))| output.bytes()).sum();
            assert_eq!(bytes, OUTPUT_BYTES.times(made.len() as u64));
            Ok(made.into_iter().map(|(index, (number, _))| (index, number)).collect())
        })
        .build()
        .expect("a pipeline")
}

fn silent() -> Arc<Hooked> {
    Arc::new(|_, _| {})
}

fn assert_zero(ledger: &Ledger) {
    ledger.quiesce(Duration::from_secs(10)).expect("quiet");
    assert!(ledger.snapshot().is_empty(), "{:?}", ledger.snapshot());
    assert_eq!(ledger.snapshot().outlived, 0);
}

#[test]
fn parts_are_joined_in_order_whatever_room_there_is() {
    for kind in KINDS {
        for (room, at_most) in [(1, 1), (1, 9), (3, 9), (9, 2)] {
            let (pool, hand) = (pool(3), Hand::new());
            let ledger = ledger(Bytes(claim(5).0 + (room - 1) * ROOM.0));
            let pipeline = fanning((&ledger, &pool, &hand), kind, FanIn::InOrder, at_most, silent());
            let tickets: Vec<_> = (0..4).map(|_| pipeline.submit("job", whole(5)).expect("taken on")).collect();
            for ticket in tickets {
                let numbers = ticket.wait().expect("a result");
                assert!(numbers.into_iter().eq((0..5).map(|n| (n, n))));
            }
            assert_zero(&ledger);
            let stats = pipeline.stats();
            let counts: Vec<_> = stats.iter().map(|stage| (stage.stage, stage.count)).collect();
            assert_eq!(counts, [("fan", 4), ("make", 20), ("turn", 20), ("end", 4)]);
        }
    }
}

#[test]
fn a_job_without_parts_is_joined_at_once() {
    let (ledger, pool, hand) = (ledger(claim(1)), pool(1), Hand::new());
    let pipeline = fanning((&ledger, &pool, &hand), Kind::Worker, FanIn::InOrder, 9, silent());
    assert_eq!(pipeline.submit("job", whole(0)).expect("taken on").wait().expect("a result"), []);
    assert_zero(&ledger);
}

#[test]
fn parts_are_joined_as_they_end_if_that_is_asked_for() {
    let (ledger, pool, hand) = (ledger(claim(9).times(3)), pool(2), Hand::new());
    // The first part waits until the second has been through its last stage.
    let (pass, may_pass) = mpsc::channel::<()>();
    let (pass, may_pass) = (Mutex::new(pass), Mutex::new(may_pass));
    let hook = move |stage, part| match (stage, part) {
        (1, 0) => lock(&may_pass).recv().expect("the second comes"),
        (0, 2) => lock(&pass).send(()).expect("the first waits"),
        _ => {}
    };
    let pipeline = fanning((&ledger, &pool, &hand), Kind::Worker, FanIn::AsTheyEnd, 9, Arc::new(hook));
    let made = pipeline.submit("job", whole(3)).expect("taken on").wait().expect("a result");
    assert_eq!(made[0], (1, 1), "the first to end");
    assert_zero(&ledger);
}

#[test]
fn the_next_part_is_made_when_the_one_before_has_begun() {
    let (ledger, pool) = (ledger(claim(20)), pool(2));
    let (made, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = made.clone();
    let profile = |_: &()| Profile::new().stage("fan", Demand::new(), Demand::new()).parts(20, &one_stage());
    fn one_stage() -> Profile {
        Profile::new().stage("part", Demand::new().bytes(SCRATCH, SCRATCH_BYTES), Demand::new())
    }
    let pipeline = Pipeline::builder(&ledger, &pool, profile)
        .fan_out(
            "fan",
            move |_, ()| {
                let counted = counted.clone();
                Ok::<_, Failed>((
                    (),
                    (0..20).inspect(move |_| {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }),
                ))
            },
            |_: &usize| one_stage(),
            |parts| {
                parts.stage("part", move |_, _| {
                    let begun = begun.fetch_add(1, Ordering::Relaxed) + 1;
                    // One more at most waits for its turn.
                    assert!(made.load(Ordering::Relaxed) <= begun + 2, "two run, one waits");
                    Ok(())
                })
            },
            FanIn::InOrder,
            |_, (), made| Ok(made.len()),
        )
        .build()
        .expect("a pipeline");
    assert_eq!(pipeline.submit("job", ()).expect("taken on").wait().expect("a result"), 20);
    assert_zero(&ledger);
}

#[test]
fn a_part_that_fails_ends_its_job_names_itself_and_loses_nothing() {
    for kind in KINDS {
        for at in [0, 1] {
            for (number, panics) in [(0, false), (2, false), (4, true)] {
                let (ledger, pool, hand) = (ledger(Bytes(2 * claim(5).0)), pool(2), Hand::new());
                let pipeline = fanning((&ledger, &pool, &hand), kind, FanIn::InOrder, 9, silent());
                let told = (number, if panics { Order::Panic(at) } else { Order::Fail(at) });
                let (bad, good) = (Whole { parts: 5, told }, whole(5));
                let tickets = [good, bad, good].map(|whole| pipeline.submit("job", whole).expect("taken on"));
                let [first, failed, last] = tickets.map(Ticket::wait);
                assert!(first.is_ok() && last.is_ok());
                match failed {
                    Err(JobError::Part { job, stage: "fan", part, source }) => {
                        assert_eq!((&*job, part), ("job", number));
                        let name = format!("job, fan {number}");
                        match *source.0 {
                            JobError::Stage { job, stage, source } if !panics => {
                                assert_eq!((&*job, stage, source.0), (&*name, ["make", "turn"][at], at));
                            }
                            JobError::Panicked { job, message, .. } if panics => {
                                assert_eq!((&*job, &*message), (&*name, "told to"));
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    other => panic!("{other:?}"),
                }
                assert_zero(&ledger);
            }
        }
    }
}

#[test]
fn a_part_that_fails_keeps_the_others_from_being_made() {
    let (ledger, pool, hand, ran) = (ledger(claim(20)), pool(1), Hand::new(), Arc::new(AtomicUsize::new(0)));
    let counted = ran.clone();
    let hook = move |stage, _| {
        counted.fetch_add(usize::from(stage == 0), Ordering::Relaxed);
    };
    let pipeline = fanning((&ledger, &pool, &hand), Kind::Worker, FanIn::InOrder, 9, Arc::new(hook));
    let bad = Whole { parts: 20, told: (0, Order::Fail(0)) };
    assert!(matches!(pipeline.submit("job", bad).expect("taken on").wait(), Err(JobError::Part { part: 0, .. })));
    assert!(ran.load(Ordering::Relaxed) <= 2, "the next one may have been on its way");
    assert_zero(&ledger);
}

#[test]
fn a_job_cancelled_while_its_parts_run_ends_after_them() {
    for kind in KINDS {
        for at in [0, 1] {
            for drops in [false, true] {
                let (ledger, pool, hand) = (ledger(claim(5)), pool(2), Hand::new());
                let (begun, has_begun) = mpsc::channel();
                let (go_on, may_go_on) = mpsc::channel::<()>();
                let may_go_on = Mutex::new(may_go_on);
                let hook = move |stage, part| {
                    if (stage, part) == (at, 2) {
                        let _ = begun.send(());
                        let _ = lock(&may_go_on).recv();
                    }
                };
                let pipeline = fanning((&ledger, &pool, &hand), kind, FanIn::InOrder, 9, Arc::new(hook));
                let ticket = pipeline.submit("job", whole(5)).expect("taken on");
                has_begun.recv().expect("the third part begins");
                ticket.cancel();
                assert!(!ticket.has_ended(), "a part still runs");
                drop(go_on);
                if drops {
                    drop(pipeline);
                    assert!(ticket.has_ended());
                }
                match ticket.wait() {
                    Err(JobError::Cancelled { stage: "fan", .. }) => {}
                    Err(JobError::ShutDown { stage: "fan", .. }) => assert!(drops),
                    other => panic!("{other:?}"),
                }
                assert_zero(&ledger);
            }
        }
    }
}

#[test]
fn a_part_that_its_parent_has_no_room_for_fails_the_job() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let small = |bytes| Profile::new().stage("part", Demand::new().bytes(SCRATCH, Bytes(bytes)), Demand::new());
    let pipeline = Pipeline::builder(&ledger, &pool, move |()| {
        Profile::new().stage("fan", Demand::new(), Demand::new()).parts(2, &small(1))
    })
    .fan_out(
        "fan",
        |_, ()| Ok::<_, Failed>(((), [1, 2])),
        move |bytes| small(*bytes),
        |parts| parts.stage("part", |_, _| Ok(())),
        FanIn::InOrder,
        |_, (), _| Ok(()),
    )
    .build()
    .expect("a pipeline");
    match pipeline.submit("job", ()).expect("taken on").wait() {
        Err(JobError::Part { part: 1, source, .. }) => {
            assert!(matches!(*source.0, JobError::Rejected { source: Rejection::Ledger(_), .. }));
        }
        other => panic!("{other:?}"),
    }
    assert_zero(&ledger);
}

#[test]
fn panics_of_split_parts_and_join_are_contained() {
    for at in ["split", "iterator", "profile", "join"] {
        let (ledger, pool) = (ledger(CLAIM), pool(1));
        let bad = move |here| assert_ne!(at, here, "told to");
        let part = || Profile::new().stage("part", Demand::new(), Demand::new());
        let pipeline = Pipeline::builder(&ledger, &pool, move |()| {
            Profile::new().stage("fan", Demand::new().bytes(SCRATCH, Bytes(1)), Demand::new()).parts(3, &part())
        })
        .fan_out(
            "fan",
            move |cx, ()| {
                bad("split");
                let held = cx.grant().take_all(SCRATCH);
                Ok::<_, Failed>((
                    held,
                    (0..3).inspect(move |n| {
                        if *n == 1 {
                            bad("iterator")
                        }
                    }),
                ))
            },
            move |n| {
                if *n == 1 {
                    bad("profile");
                }
                part()
            },
            |parts| parts.stage("part", |_, n: usize| Ok(n)),
            FanIn::InOrder,
            move |_, _held, made| {
                bad("join");
                Ok(made.len())
            },
        )
        .build()
        .expect("a pipeline");
        match pipeline.submit("job", ()).expect("taken on").wait() {
            Err(JobError::Panicked { stage: "fan", .. }) => assert!(["split", "join"].contains(&at)),
            Err(JobError::Part { part: 1, source, .. }) => {
                assert!(matches!(*source.0, JobError::Panicked { .. }) && ["iterator", "profile"].contains(&at));
            }
            other => panic!("{at}: {other:?}"),
        }
        assert_zero(&ledger);
    }
}

/// Parts that split again.
#[test]
fn parts_may_have_parts() {
    let (ledger, pool) = (ledger(CLAIM), pool(2));
    fn leaf() -> Profile {
        Profile::new().stage("leaf", Demand::new().bytes(SCRATCH, Bytes(4)), Demand::new())
    }
    fn branch() -> Profile {
        Profile::new().stage("branch", Demand::new(), Demand::new()).parts(3, &leaf())
    }
    let pipeline = Pipeline::builder(&ledger, &pool, |()| {
        Profile::new().stage("root", Demand::new(), Demand::new()).parts(3, &branch())
    })
    .fan_out(
        "root",
        |_, ()| Ok::<_, Failed>(((), 0..3u64)),
        |_| branch(),
        |branches| {
            branches.fan_out(
                "branch",
                |_, n| Ok((n, 0..3u64)),
                |_| leaf(),
                |leaves| leaves.stage("leaf", |_, m| Ok(m)).at_most(1),
                FanIn::InOrder,
                |_, n, leaves| Ok(leaves.into_iter().map(|(_, m)| 10 * n + m).sum::<u64>()),
            )
        },
        FanIn::InOrder,
        |_, (), branches| Ok(branches.into_iter().map(|(_, sum)| sum).sum::<u64>()),
    )
    .build()
    .expect("a pipeline");
    for _ in 0..5 {
        assert_eq!(pipeline.submit("tree", ()).expect("taken on").wait().expect("a result"), 99);
    }
    assert_zero(&ledger);
}

#[test]
fn a_job_begins_again_from_its_start_when_a_part_of_it_fails() {
    for (times, failures, fatal) in [(2, 2, false), (1, 2, false), (2, 1, true)] {
        let (ledger, pool) = (ledger(claim(3)), pool(2));
        let (tries, starts) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let begun = starts.clone();
        let output = || Demand::new().bytes(OUTPUT, OUTPUT_BYTES);
        let part = move || Profile::new().stage("part", output(), output());
        let profile = move |_: &usize| Profile::new().stage("fan", Demand::new(), Demand::new()).parts(3, &part());
        let pipeline = Pipeline::builder(&ledger, &pool, profile)
            .fan_out(
                "fan",
                move |_, parts: usize| {
                    begun.fetch_add(1, Ordering::Relaxed);
                    Ok(((), 0..parts))
                },
                move |_| part(),
                move |parts| {
                    parts.stage("part", move |cx, number: usize| {
                        let output = cx.grant().take_all(OUTPUT);
                        let fails = number == 1 && tries.fetch_add(1, Ordering::Relaxed) < failures;
                        if fails { Err(Failed(number)) } else { Ok(output) }
                    })
                },
                FanIn::InOrder,
                |_, (), made: Vec<(usize, Reservation)>| Ok(made.len()),
            )
            .from_start(Retry::times(times))
            .failures(move |_| if fatal { Failure::Fatal } else { Failure::Transient })
            .build()
            .expect("a pipeline");
        let answer = pipeline.submit("job", 3).expect("taken on").wait();
        match (fatal || failures > times as usize, answer) {
            (false, Ok(3)) | (true, Err(JobError::Part { stage: "fan", part: 1, .. })) => {}
            (_, other) => panic!("{other:?}"),
        }
        let expected = if fatal { 1 } else { times as usize + 1 };
        assert_eq!(starts.load(Ordering::Relaxed), expected);
        assert_zero(&ledger);
    }
}

#[test]
fn what_concerns_jobs_is_not_said_of_their_parts() {
    type Parts = Builder<u8, u8, Failed>;
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let build = |say: &dyn Fn(Parts) -> Parts| {
        crate::contain::contain(|| {
            drop(Pipeline::builder(&ledger, &pool, |&()| Profile::new()).fan_out(
                "fan",
                |_, ()| Ok(((), [0])),
                |_| Profile::new(),
                |parts| say(parts.stage("s", |_, number| Ok(number))),
                FanIn::InOrder,
                |_, (), made| Ok(made.len()),
            ));
        })
    };
    let told: [(&str, &dyn Fn(Parts) -> Parts); 8] = [
        ("alternatives", &|parts| parts.alternatives(|_| Vec::new())),
        ("charge_input", &|parts| parts.charge_input(BUFFER, |_| Bytes(1))),
        ("failures", &|parts| parts.failures(|_| Failure::Fatal)),
        ("largest", &|parts| parts.largest(Profile::new())),
        ("learning", &|parts| parts.learning(Learning::Nothing)),
        ("observe", &|parts| parts.observe(|_| {})),
        ("pacing", &|parts| parts.pacing(Pacing::Fixed(1))),
        ("remember", &|parts| parts.remember(1)),
    ];
    for (what, say) in told {
        let panic = build(say).expect_err(what).message();
        assert!(panic.contains(what) && panic.contains("stage fan"), "{panic}");
    }
    build(&|parts| parts.from_start(Retry::times(1)).at_most(2)).expect("that is their own");
}
