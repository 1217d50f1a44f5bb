//! Residencies that the jobs of a pipeline need.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::ledger::{EnterError, Residency};
use crate::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};

const KEYS: Class = Class::new("keys", Space::HOST);

fn key(ledger: &Ledger) -> Residency<u64> {
    ledger.residency("key", KEYS, Bytes(8), Duration::from_secs(1)).expect("it has a limit")
}

/// A pipeline whose only stage adds the key to its input.
fn adding(
    ledger: &Ledger,
    pool: &Pool,
    key: &Residency<u64>,
    load: impl Fn() -> Result<u64, String> + Send + Sync + 'static,
) -> Pipeline<u64, u64, String> {
    let read = key.clone();
    Pipeline::builder(ledger, pool, |_: &u64| Profile::new().stage("add", Demand::new(), Demand::new()))
        .stage("add", move |cx, input: u64| Ok(input + cx.grant().pinned(&read).expect("it is pinned")))
        .needs(key, move |_load| load())
        .build()
        .expect("it fits")
}

fn threads(threads: usize) -> Pool {
    Pool::new(PoolConfig { threads, ..PoolConfig::default() }).expect("threads")
}

#[test]
fn what_all_jobs_need_is_loaded_once_and_stays_for_the_next() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let (pool, key) = (threads(2), key(&ledger));
    let loads = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = loads.clone();
    let pipeline = adding(&ledger, &pool, &key, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(40)
    });
    let tickets: Vec<_> = (0..20).map(|n| pipeline.submit(format!("job {n}"), n).expect("taken on")).collect();
    for (n, ticket) in (0..).zip(tickets) {
        assert_eq!(ticket.wait().expect("it is done"), 40 + n);
    }
    assert_eq!(loads.load(Ordering::Relaxed), 1);
    assert!(key.is_resident());
}

#[test]
fn a_load_that_fails_or_panics_ends_the_jobs_that_wait_for_it() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let (pool, key) = (threads(1), key(&ledger));
    for (panics, said) in [(false, "no such file"), (true, "panicked: in a load")] {
        let load = move || if panics { panic!("in a load") } else { Err("no such file".into()) };
        let pipeline = adding(&ledger, &pool, &key, load);
        match pipeline.submit("job", 1).expect("taken on").wait() {
            Err(JobError::NotEntered { source, .. }) => {
                let EnterError::LoadFailed { why, .. } = *source else { panic!("{source}") };
                assert_eq!(&*why, said);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_job_that_does_not_fit_beside_what_it_needs_is_refused() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(7)));
    let (pool, key) = (threads(1), key(&ledger));
    let pipeline = adding(&ledger, &pool, &key, || Ok(40));
    assert!(matches!(pipeline.submit("job", 1), Err(Rejected { reason: Rejection::Ledger(_), .. })));
}

#[test]
fn a_slow_way_does_without_the_table_of_the_fast_one() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let pool = threads(1);
    let table = ledger.residency("table", KEYS, Bytes(8), Duration::from_secs(1)).expect("it has a limit");
    let one = |bytes| Profile::new().stage("do", Demand::new().bytes(BUFFER, Bytes(bytes)), Demand::new());
    let read = table.clone();
    let pipeline = Pipeline::builder(&ledger, &pool, move |()| one(1))
        .alternatives(move |()| vec![one(4)])
        .stage("do", move |cx, ()| Ok::<_, String>((cx.grant().choice(), cx.grant().pinned(&read).copied())))
        .needs_by(&table, |profile| profile.stages()[0].peak.of(BUFFER) == 1, |_load| Ok::<_, String>(7))
        .build()
        .expect("it fits");
    let run = |name| pipeline.submit(name, ()).expect("taken on").wait().expect("it is done");
    // With somebody else's bytes the table does not fit.
    let held = ledger.reserve(BUFFER, Bytes(5)).try_now().expect("free");
    assert_eq!(run("slow"), (1, None));
    assert!(!table.is_resident());
    drop(held);
    assert_eq!(run("fast"), (0, Some(7)));
    // The table is there, and the slow way needs its room, but nothing else is in the way of the fast one.
    assert_eq!(run("fast again"), (0, Some(7)));
}

#[test]
fn what_parts_need_is_pinned_for_their_job_and_read_by_them() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(30)));
    let (pool, key) = (threads(2), key(&ledger));
    let loads = std::sync::Arc::new(AtomicUsize::new(0));
    let (counted, read, declared, is_loaded) = (loads.clone(), key.clone(), key.clone(), key.clone());
    let leaf = || Profile::new().stage("leaf", Demand::new(), Demand::new());
    let part = move || Profile::new().stage("inner", Demand::new(), Demand::new()).parts(2, &leaf());
    let pipeline = Pipeline::builder(&ledger, &pool, move |_: &u64| {
        Profile::new().stage("fan", Demand::new(), Demand::new()).parts(3, &part())
    })
    .fan_out(
        "fan",
        |_, input: u64| Ok::<_, String>(((), vec![input; 3])),
        move |_| part(),
        move |parts| {
            parts.fan_out(
                "inner",
                move |cx, input: u64| {
                    assert_eq!(cx.grant().pinned(&key), Some(&20), "parts have it, and parts of parts");
                    Ok((input, vec![(); 2]))
                },
                move |()| leaf(),
                move |leaves| {
                    leaves.stage("leaf", move |cx, ()| Ok(*cx.grant().pinned(&read).expect("the job pins it"))).needs(
                        &declared,
                        move |_load| {
                            counted.fetch_add(1, Ordering::Relaxed);
                            Ok::<_, String>(20)
                        },
                    )
                },
                FanIn::AsTheyEnd,
                |_, input, keys: Vec<(usize, u64)>| Ok(input + keys.iter().map(|(_, key)| key).sum::<u64>()),
            )
        },
        FanIn::InOrder,
        |_, (), made: Vec<(usize, u64)>| Ok(made.iter().map(|(_, made)| made).sum::<u64>()),
    )
    .build()
    .expect("it fits");
    assert_eq!(pipeline.submit("job", 1).expect("taken on").wait().expect("a result"), 3 * (1 + 2 * 20));
    assert_eq!((loads.load(Ordering::Relaxed), is_loaded.is_resident()), (1, true));
}

#[test]
fn what_is_needed_is_asked_about_the_profile_that_was_declared() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(30)));
    let (pool, key) = (threads(1), key(&ledger));
    let read = key.clone();
    let one = |_: &u64| Profile::new().stage("do", Demand::new().bytes(BUFFER, Bytes(2)), Demand::new());
    let pipeline = Pipeline::builder(&ledger, &pool, one)
        .stage("do", move |cx, bytes: u64| {
            drop(cx.grant().take(BUFFER, Bytes(bytes)).map_err(|error| error.to_string())?);
            Ok::<_, String>((cx.grant().given(BUFFER), cx.grant().pinned(&read).copied()))
        })
        .needs_by(&key, |profile| profile.stages()[0].peak.of(BUFFER) == 2, |_load| Ok::<_, String>(7))
        .build()
        .expect("it fits");
    let run = |bytes| pipeline.submit("job", bytes).expect("taken on").wait();
    // From the first one is learned that such jobs need more than they declare.
    let _ = run(4);
    assert_eq!(run(1).expect("it is done"), (Bytes(4), Some(7)));
}

#[test]
fn a_part_fails_with_the_panic_of_whoever_says_what_it_needs() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(30)));
    let (pool, key) = (threads(1), key(&ledger));
    let part = || Profile::new().stage("leaf", Demand::new(), Demand::new());
    let whole = move |_: &u64| Profile::new().stage("fan", Demand::new(), Demand::new()).parts(2, &part());
    let pipeline = Pipeline::builder(&ledger, &pool, whole)
        .fan_out(
            "fan",
            |_, input: u64| Ok::<_, String>(((), vec![input; 2])),
            move |_| part(),
            |parts| {
                parts.stage("leaf", |_, input: u64| Ok(input)).needs_by(
                    &key,
                    |profile| profile.stages()[0].name == "fan" || panic!("of no such profile"),
                    |_load| Ok::<_, String>(7),
                )
            },
            FanIn::InOrder,
            |_, (), made: Vec<(usize, u64)>| Ok(made.len()),
        )
        .build()
        .expect("it fits");
    match pipeline.submit("job", 1).expect("taken on").wait() {
        Err(JobError::Part { source, .. }) => {
            let why = format!("{:?}", source.0);
            assert!(why.contains("of no such profile"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

/// An error that panics where it is to say what it is.
struct Mute;

impl std::fmt::Display for Mute {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("it does not say")
    }
}

#[test]
fn a_load_whose_error_panics_ends_the_jobs_that_wait_for_it() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let (pool, key) = (threads(1), key(&ledger));
    let loads = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = loads.clone();
    let pipeline = Pipeline::builder(&ledger, &pool, |&()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage("s", |_, ()| Ok::<_, String>(()))
        .needs(&key, move |_load| {
            // Left to another one it would come back for ever.
            assert!(counted.fetch_add(1, Ordering::Relaxed) < 100, "it is loaded again and again");
            Err::<u64, _>(Mute)
        })
        .build()
        .expect("it fits");
    let error = pipeline.submit("job", ()).expect("taken on").wait().expect_err("there is no key");
    let JobError::NotEntered { source, .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().contains("it does not say"), "{source}");
    assert_eq!(loads.load(Ordering::Relaxed), 1);
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_load_is_tried_again_as_often_as_it_may_be() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let pool = threads(1);
    // One that fails twice: within three attempts it is there, within two it is not, and then everything begins anew.
    for (times, pause) in [(2, Duration::ZERO), (2, Duration::from_millis(1)), (1, Duration::ZERO)] {
        let key = key(&ledger);
        let loads = std::sync::Arc::new(AtomicUsize::new(0));
        let (counted, read) = (loads.clone(), key.clone());
        let pipeline =
            Pipeline::builder(&ledger, &pool, |_: &u64| Profile::new().stage("add", Demand::new(), Demand::new()))
                .stage("add", move |cx, input| Ok::<_, String>(input + cx.grant().pinned(&read).expect("it is pinned")))
                .needs(&key, move |load| {
                    let taken = load.take(Bytes(5)).expect("it is all there, each time");
                    match counted.fetch_add(1, Ordering::Relaxed) {
                        0 | 1 => Err("busy"),
                        _ => {
                            drop(taken);
                            Ok(40)
                        }
                    }
                })
                .load_again(Retry::times(times).pause(pause).within(Duration::MAX))
                .build()
                .expect("it fits");
        let tickets: Vec<_> = (0..3).map(|n| pipeline.submit(format!("job {n}"), n).expect("taken on")).collect();
        let ended: Vec<_> = tickets.into_iter().map(Ticket::wait).collect();
        if times == 2 {
            assert!(ended.into_iter().map(|result| result.expect("it is there")).eq([40, 41, 42]));
            assert_eq!(loads.load(Ordering::Relaxed), 3);
        } else {
            // Those that came after the failure have loaded it.
            assert!(ended.iter().any(Result::is_err), "{ended:?}");
            assert_eq!(pipeline.submit("again", 2).expect("taken on").wait().expect("the third attempt"), 42);
        }
    }
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_load_that_rests_before_it_is_tried_again_is_left_to_the_next_with_its_pipeline() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let (pool, key) = (threads(1), key(&ledger));
    let (failed, has_failed) = mpsc::channel();
    let failed = crate::sync::Mutex::new(failed);
    let adding = |load: Box<dyn Fn() -> Result<u64, String> + Send + Sync>| {
        let read = key.clone();
        Pipeline::builder(&ledger, &pool, |_: &u64| Profile::new().stage("add", Demand::new(), Demand::new()))
            .stage("add", move |cx, input| Ok::<_, String>(input + cx.grant().pinned(&read).expect("it is pinned")))
            .needs(&key, move |_load| load())
            .load_again(Retry::times(9).pause(Duration::from_secs(1000)).within(Duration::MAX))
            .build()
            .expect("it fits")
    };
    let unlucky = adding(Box::new(move || {
        let _ = crate::sync::lock(&failed).send(());
        Err("no such file".to_owned())
    }));
    let lucky = adding(Box::new(|| Ok(40)));
    let waits = unlucky.submit("unlucky", 1).expect("taken on");
    has_failed.recv().expect("it is loaded");
    until_idle(&pool);
    // Nobody is at it, and it is paid for: this one joins those who wait.
    let joins = lucky.submit("lucky", 2).expect("taken on");
    assert!(!waits.has_ended() && !joins.has_ended());
    drop(unlucky);
    assert!(matches!(waits.wait(), Err(JobError::ShutDown { .. })));
    assert_eq!(joins.wait().expect("it fell to this one"), 42);
}

#[test]
fn a_load_that_rests_for_nobody_gives_its_bytes_back() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let (pool, key) = (threads(1), key(&ledger));
    let (failed, has_failed) = mpsc::channel();
    let failed = crate::sync::Mutex::new(failed);
    let pipeline = Pipeline::builder(&ledger, &pool, |_: &u64| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage("s", |_, input| Ok::<_, String>(input))
        .needs(&key, move |_load| {
            crate::sync::lock(&failed).send(()).expect("the test listens");
            Err::<u64, _>("no such file")
        })
        .load_again(Retry::times(9).pause(Duration::from_secs(1000)).within(Duration::MAX))
        .build()
        .expect("it fits");
    for early in [true, false] {
        let waits = ["one", "other"].map(|name| pipeline.submit(name, 1).expect("taken on"));
        has_failed.recv().expect("it is loaded");
        if !early {
            until_idle(&pool);
        }
        // With the first of them gone the other still waits.
        let [one, other] = waits;
        one.cancel();
        if !early {
            assert!(ledger.reserve(BUFFER, Bytes(10)).try_now().is_err(), "it rests, and is paid for");
        }
        other.cancel();
        pipeline.drain();
        drop(ledger.reserve(BUFFER, Bytes(10)).wait().expect("all of it is free"));
    }
}
