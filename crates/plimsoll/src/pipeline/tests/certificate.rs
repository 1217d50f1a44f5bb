//! What a budget means, and that it is kept.

use super::*;
use crate::pipeline::{Obstacle, Pacing};
use crate::{JobSpec, Resource};

fn host(bytes: u64) -> Budget {
    Budget::new().space(Space::HOST, Bytes(bytes))
}

#[test]
fn the_certificate_tells_the_smallest_budget_and_the_largest_backlog() {
    let certificate = Certificate::new(&profile(), &host(200));
    assert_eq!(certificate.smallest_spaces, [(Space::HOST, CLAIM)]);
    assert_eq!(certificate.smallest_slots, []);
    // Two with a buffer of 64 each; a third would leave the first no room for its scratch of 16.
    let backlog = Backlog { stage: "first", jobs: Some(2), bytes: vec![(BUFFER, Bytes(128))] };
    assert_eq!((certificate.backlogs.len(), &certificate.backlogs[0]), (3, &backlog));
    assert_eq!(certificate.peaks, [(Space::HOST, Some(Bytes(200)))]);
    assert!(certificate.makes_progress());
    let unlimited = Certificate::new(&profile(), &Budget::unlimited());
    assert_eq!((unlimited.backlogs[0].jobs, unlimited.peaks[0].1), (None, None));
}

#[test]
fn a_budget_that_is_too_small_is_named_with_class_and_stage() {
    let wide = Demand::new().bytes(BUFFER, Bytes(10)).bytes(SCRATCH, Bytes(90));
    let profile = profile().stage("wide", wide.slots(PERMIT, 3), Demand::new());
    let certificate = Certificate::new(&profile, &host(99).slots(PERMIT, 2));
    let resources: Vec<_> = certificate.obstacles.iter().map(|obstacle| (obstacle.stage, obstacle.resource)).collect();
    assert_eq!(resources, [("wide", Resource::Class(SCRATCH)), ("wide", Resource::Slots(PERMIT))]);
    let Obstacle { needed, limit, .. } = certificate.obstacles[0];
    assert_eq!((needed, limit), (100, 99));
    let text = certificate.to_string();
    assert!(
        text.contains("stage wide needs 100 B of host memory, most of it scratch, and the limit is 99 B"),
        "{text}"
    );
    assert!(
        certificate.json().contains(r#""obstacles":[{"stage":"wide","resource":"scratch","needed":100,"limit":99}"#)
    );
    assert!(Certificate::new(&profile, &host(100).slots(PERMIT, 3)).makes_progress());
}

#[test]
fn parts_are_claimed_by_the_stage_that_they_run_in() {
    let part = Profile::new().stage(
        "part",
        Demand::new().bytes(BUFFER, Bytes(16)).bytes(SCRATCH, Bytes(1)),
        Demand::new().bytes(SCRATCH, Bytes(1)),
    );
    let parent = Profile::new()
        .stage("prove", Demand::new().bytes(BUFFER, Bytes(2)), Demand::new().bytes(SCRATCH, Bytes(10)))
        .parts(10, &part)
        .stage("assemble", Demand::new().bytes(SCRATCH, Bytes(10)), Demand::new());
    // 2 of its own, 10 results, one part's buffer.
    assert_eq!(Certificate::new(&parent, &host(28)).smallest_spaces, [(Space::HOST, Bytes(28))]);
    assert!(!Certificate::new(&parent, &host(27)).makes_progress());
    let ledger = Ledger::new(host(28));
    assert!(ledger.submit(JobSpec::new("parent", parent.clone())).is_ok());
    let ledger = Ledger::new(host(27));
    assert!(ledger.submit(JobSpec::new("parent", parent)).is_err());
}

fn two_stages(ledger: &Ledger, pool: &Pool) -> Pipeline<(), (), Failed> {
    let held = Demand::new().bytes(BUFFER, Bytes(60));
    let profile = Profile::new().stage("fill", held.clone(), held.clone()).stage("use", held, Demand::new());
    let of = profile.clone();
    Pipeline::builder(ledger, pool, move |_: &()| of.clone())
        .stage("fill", |cx, ()| Ok(cx.grant().vec::<u8>(BUFFER, 60).expect("granted")))
        .stage("use", |_, buffer| {
            drop(buffer);
            Ok(())
        })
        .largest(profile)
        .pacing(Pacing::Unpaced)
        .build()
        .expect("a pipeline")
}

#[test]
fn what_was_certified_is_kept() {
    let (ledger, pool) = (ledger(Bytes(200)), pool(2));
    let pipeline = two_stages(&ledger, &pool);
    assert_eq!(pipeline.certificate().expect("declared").backlogs[0].jobs, Some(3));
    let tickets: Vec<_> = (0..100).map(|_| pipeline.submit("job", ()).expect("taken on")).collect();
    tickets.into_iter().for_each(|ticket| ticket.wait().expect("a result"));
    assert_eq!(pipeline.certificate_violations(), 0);
}

#[test]
fn a_broken_certificate_is_noticed_when_a_stage_ends() {
    let (ledger, pool) = (ledger(Bytes(200)), pool(1));
    let pipeline = two_stages(&ledger, &pool);
    pipeline.line.certified.as_ref().expect("declared").promise_less();
    let result = pipeline.submit("job", ()).expect("taken on").wait();
    assert_eq!(pipeline.certificate_violations(), 1);
    if cfg!(debug_assertions) {
        let error = result.expect_err("debug builds do not go on");
        assert!(error.to_string().contains("the certificate says"), "{error}");
    } else {
        result.expect("release builds count");
    }
    drop(pipeline);
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn throughput_is_predicted_from_times_and_budget() {
    let (ledger, pool) = (ledger(Bytes(1000)), pool(4));
    let pipeline = build_with_largest(&ledger, &pool);
    assert_eq!(pipeline.certify(&host(1000)).expect("declared").work, None, "nothing has run");
    let seconds = [1, 1, 1, 1].map(Duration::from_secs);
    let plenty = pipeline.certify_with_times(&host(1 << 20), &seconds).expect("declared").work.expect("times");
    // Four threads, four seconds a job.
    assert!((plenty.rate - 1.0).abs() < 0.02 && plenty.memory.is_none() && plenty.jobs == 4, "{plenty:?}");
    let tight = pipeline.certify_with_times(&host(160), &seconds).expect("declared").work.expect("times");
    assert!(tight.rate < 0.6 && tight.memory == Some(Space::HOST), "{tight:?}");
    pipeline.submit("job", Order::Nothing).expect("taken on").wait().expect("a result");
    let measured = pipeline.certify(&host(1000)).expect("declared");
    let text = measured.to_string();
    assert!(measured.work.is_some() && text.contains("jobs/s, set by pool"), "{text}");
    assert!(measured.json().contains(r#""work":{"drum":"pool""#), "{}", measured.json());
}

fn build_with_largest(ledger: &Ledger, pool: &Pool) -> Pipeline<Order, Order, Failed> {
    Pipeline::builder(ledger, pool, |_: &Order| profile())
        .stage(STAGES[0], |_, order| Ok(order))
        .stage(STAGES[1], |_, order| Ok(order))
        .stage(STAGES[2], |_, order| Ok(order))
        .stage(STAGES[3], |_, order| Ok(order))
        .largest(profile())
        .build()
        .expect("a pipeline")
}

#[test]
fn what_another_budget_means_is_asked_as_the_budget_at_hand_was_whatever_the_pacing() {
    for pacing in [Pacing::Unpaced, Pacing::Fixed(2), Pacing::Auto] {
        let (ledger, pool) = (ledger(CLAIM.times(3)), pool(2));
        let pipeline = Pipeline::builder(&ledger, &pool, |_: &()| profile())
            .stage(STAGES[0], |_, ()| Ok::<_, Failed>(()))
            .stage(STAGES[1], |_, ()| Ok(()))
            .at_most(1)
            .stage(STAGES[2], |_, ()| Ok(()))
            .stage(STAGES[3], |_, ()| Ok(()))
            .largest(profile())
            .pacing(pacing)
            .build()
            .expect("a pipeline");
        let budget =
            Budget::new().space(Space::HOST, CLAIM.times(3)).space(Space::device(0), Bytes(1)).slots(PERMIT, 2);
        let again = pipeline.certify(&budget).expect("the largest job was declared");
        assert_eq!(Some(&again), pipeline.certificate(), "{pacing:?}");
        let times = [1, 9, 1, 1].map(Duration::from_millis);
        let timed = pipeline.certify_with_times(&budget, &times).expect("declared");
        assert_eq!(timed.work.expect("times were given").drum, STAGES[1], "{pacing:?}");
        assert!(!pipeline.certify(&host(79)).expect("declared").makes_progress());
    }
}
