//! Priorities and deadlines from one end to the other: over parts, carried and async stages, also for what is under way.

use super::kinds::{Hand, KINDS, Kind};
use super::*;
use crate::sync::{Mutex, lock};

type Log = Arc<Mutex<Vec<String>>>;

/// Two stages, of which the second needs the gate's byte and is of this kind; says which job passes it.
fn through_the_gate(kind: Kind, (ledger, pool, hand): (&Ledger, &Pool, &Hand), log: &Log) -> Pipeline<(), (), Failed> {
    let gate = || Demand::new().bytes(GATE, Bytes(1));
    let profile =
        move |_: &()| Profile::new().stage("come", Demand::new(), Demand::new()).stage("pass", gate(), Demand::new());
    let log = log.clone();
    let pass = move |name: &str| lock(&log).push(name.to_owned());
    let builder = Pipeline::builder(ledger, pool, profile).stage("come", |_, ()| Ok::<_, Failed>(()));
    let builder = match kind {
        Kind::Worker => builder.stage("pass", move |cx, ()| {
            pass(cx.job_name());
            Ok(())
        }),
        Kind::Carried => builder.stage_on("pass", &hand.carrier(), move |cx, ()| {
            pass(cx.job_name());
            Ok(())
        }),
        Kind::Task => builder.async_stage("pass", &hand.runtime(), move |cx, ()| {
            pass(cx.job_name());
            std::future::ready(Ok(()))
        }),
    };
    builder.pacing(Pacing::Unpaced).build().expect("a pipeline")
}

/// Until so many jobs wait for the gate.
fn until_waiting(ledger: &Ledger, jobs: usize) {
    while ledger.snapshot().waiters.iter().filter(|waiter| waiter.in_flight).count() < jobs {
        std::thread::yield_now();
    }
}

#[test]
fn jobs_pass_a_stage_of_any_kind_by_priority_and_a_deadline_goes_before_that() {
    for kind in KINDS {
        let (ledger, pool, hand, log) = (ledger(CLAIM), pool(1), Hand::new(), Log::default());
        let pipeline = through_the_gate(kind, (&ledger, &pool, &hand), &log);
        let closed = ledger.reserve(GATE, Bytes(1)).wait().expect("free");
        let submit =
            |name: &str, priority| pipeline.submit(JobOptions::new(name).priority(priority), ()).expect("taken on");
        let jobs = [submit("low", -1), submit("due", 0), submit("high", 5), submit("higher", 7)];
        until_waiting(&ledger, 4);
        pipeline.line.landing.named("due").deadline_is_near();
        // The worker that has put it down may have to look once more.
        until_idle(&pool);
        drop(closed);
        jobs.into_iter().for_each(|job| job.wait().expect("a result"));
        assert_eq!(*lock(&log), ["due", "higher", "high", "low"], "{kind:?}");
    }
}

/// A job of two parts, of two stages each, of which the second needs the gate's byte.
fn parts_through_the_gate(ledger: &Ledger, pool: &Pool, log: &Log) -> Pipeline<usize, usize, Failed> {
    let part = || {
        let gate = Demand::new().bytes(GATE, Bytes(1));
        Profile::new().stage("come", Demand::new(), Demand::new()).stage("pass", gate, Demand::new())
    };
    let profile =
        move |parts: &usize| Profile::new().stage("fan", Demand::new(), Demand::new()).parts(*parts as u64, &part());
    let log = log.clone();
    Pipeline::builder(ledger, pool, profile)
        .fan_out(
            "fan",
            |_, parts: usize| Ok(((), 0..parts)),
            move |_| part(),
            move |parts| {
                parts.stage("come", |_, number: usize| Ok::<_, Failed>(number)).stage("pass", move |cx, number| {
                    lock(&log).push(cx.job_name().to_owned());
                    Ok(number)
                })
            },
            FanIn::InOrder,
            |_, (), made: Vec<(usize, usize)>| Ok(made.len()),
        )
        .pacing(Pacing::Unpaced)
        .build()
        .expect("a pipeline")
}

#[test]
fn parts_go_by_the_priority_of_their_job_and_hurry_with_it_when_they_are_under_way() {
    for due in [false, true] {
        let (ledger, pool, log) = (ledger(CLAIM), pool(1), Log::default());
        let pipeline = parts_through_the_gate(&ledger, &pool, &log);
        let closed = ledger.reserve(GATE, Bytes(1)).wait().expect("free");
        let submit =
            |name: &str, priority| pipeline.submit(JobOptions::new(name).priority(priority), 2).expect("taken on");
        let jobs = [submit("job", 0), submit("rival", 5)];
        until_waiting(&ledger, 4);
        if due {
            // As its alarm does. Whoever drives the job then tells its parts.
            pipeline.line.landing.named("job").deadline_is_near();
            until_idle(&pool);
        }
        drop(closed);
        jobs.into_iter().for_each(|job| assert_eq!(job.wait().expect("a result"), 2));
        let order: Vec<_> = lock(&log).iter().map(|name| name.split(',').next().expect("a name").to_owned()).collect();
        let expected = if due { ["job", "job", "rival", "rival"] } else { ["rival", "rival", "job", "job"] };
        assert_eq!(order, expected);
    }
}

#[test]
fn carriers_are_told_the_priority_of_what_they_carry_also_when_it_is_raised() {
    let (ledger, pool, (carrier, errand)) = (ledger(CLAIM), pool(1), super::word::hands());
    let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage_on("s", &carrier, |_, ()| Ok::<_, Failed>(()))
        .build()
        .expect("a pipeline");
    let ticket = pipeline.submit(JobOptions::new("job").priority(7), ()).expect("taken on");
    let early = errand.recv().expect("sent on");
    assert_eq!(early.priority(), 7);
    pipeline.line.landing.named("job").deadline_is_near();
    let raised = errand.recv().expect("sent on again");
    assert_eq!(raised.priority(), 7 + URGENT);
    raised.run();
    ticket.wait().expect("a result");
    early.run();
}
