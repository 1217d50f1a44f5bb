//! Stages that are run again, and jobs that begin again.

use std::task::{Context, Waker};

use plimsoll::ledger::{EnterError, RestartError};
use plimsoll::{Budget, Bytes, Class, Demand, Job, JobSpec, Ledger, Profile, Slots, Space};

const INPUT: Class = Class::new("input", Space::HOST);
const OUTPUT: Class = Class::new("output", Space::HOST);
const LANE: Slots = Slots::new("lane");
const TOKEN: Slots = Slots::new("token");

fn ledger(bytes: u64) -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(bytes)).slots(LANE, 1).slots(TOKEN, 2))
}

fn bytes(input: u64, output: u64) -> Demand {
    Demand::new().bytes(INPUT, Bytes(input)).bytes(OUTPUT, Bytes(output))
}

/// Makes an input, turns it into an output on a lane, keeping the input until that is done, and uses the output.
fn profile() -> Profile {
    Profile::new()
        .stage("make", bytes(2, 0).slots(TOKEN, 1), bytes(2, 0).slots(TOKEN, 1))
        .stage("turn", bytes(2, 3).slots(TOKEN, 1).slots(LANE, 1), bytes(0, 3))
        .stage("use", bytes(0, 3), bytes(0, 0))
}

fn submit(ledger: &Ledger, name: &str) -> Job {
    ledger.submit(JobSpec::new(name, profile())).unwrap()
}

fn held(ledger: &Ledger) -> (u64, Vec<u64>) {
    let snapshot = ledger.snapshot();
    (snapshot.space(Space::HOST).unwrap().held.0, snapshot.slots.iter().map(|slots| slots.held).collect())
}

#[test]
fn a_stage_is_run_again_from_the_input_that_it_kept() {
    let ledger = ledger(5);
    let mut job = submit(&ledger, "job");
    let mut grant = job.enter(0).wait().unwrap();
    let input = grant.take_all(INPUT);
    drop(grant);
    assert_eq!(held(&ledger), (2, vec![0, 1]));

    for _ in 0..2 {
        let mut grant = job.enter(1).wait().unwrap();
        assert_eq!(held(&ledger), (5, vec![1, 1]));
        drop(grant.take(OUTPUT, Bytes(1)).unwrap());
        grant.retry();
        // The lane and the output's bytes are there for others; what was brought is still held.
        assert_eq!(held(&ledger), (2, vec![0, 1]));
        assert!(ledger.reserve(OUTPUT, Bytes(3)).try_now().is_ok(), "it will come back, so it may be lent out");
        let retained = ledger.reserve(OUTPUT, Bytes(1)).retained().try_now();
        assert!(retained.is_err(), "what the stage needs is still promised to the job");
    }

    let mut grant = job.enter(1).wait().unwrap();
    let output = grant.take_all(OUTPUT);
    drop(input);
    drop(grant);
    assert!(matches!(job.enter(1).wait(), Err(EnterError::NoSuchStage { .. })), "what is done is done");
    drop(job.enter(2).wait().unwrap());
    drop(output);
    drop(job);
    assert!(ledger.snapshot().is_empty());
    assert_eq!(ledger.snapshot().retried, 2);
}

#[test]
fn the_first_stage_is_run_again_without_a_new_admission() {
    let ledger = ledger(5);
    let mut job = submit(&ledger, "job");
    let kept = {
        let mut grant = job.enter(0).wait().unwrap();
        let kept = grant.take(INPUT, Bytes(1)).unwrap();
        grant.retry();
        kept
    };
    assert_eq!(held(&ledger), (1, vec![0, 0]));
    ledger.close();
    // A grant that nobody takes leaves it where it was: in flight.
    let mut grant = job.enter(0).wait().expect("it is in flight, and goes on to its end");
    grant.put_back(kept).unwrap();
    let input = grant.take_all(INPUT);
    drop(grant);
    drop(job);
    assert_eq!(held(&ledger), (2, vec![0, 0]));
    drop(input);
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_job_that_begins_again_queues_with_the_age_it_had() {
    let ledger = ledger(5);
    let (mut first, mut second, mut third) =
        (submit(&ledger, "first"), submit(&ledger, "second"), submit(&ledger, "third"));
    let mut grant = first.enter(0).wait().unwrap();
    let input = grant.take_all(INPUT);
    drop(grant);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(second.poll_enter(&mut cx, 0).is_pending());
    assert!(third.poll_enter(&mut cx, 0).is_pending());

    drop(input);
    first.restart().unwrap();
    let grant = second.poll_enter(&mut cx, 0);
    assert!(grant.is_ready(), "what the first one gave up is the second one's");
    assert!(first.poll_enter(&mut cx, 0).is_pending());
    drop((grant, second));
    assert!(third.poll_enter(&mut cx, 0).is_pending(), "the first one is older, whenever it asked last");
    let grant = first.poll_enter(&mut cx, 0);
    assert!(grant.is_ready());
    drop((grant, first));
    assert!(third.poll_enter(&mut cx, 0).is_ready());
    drop(third);
    assert!(ledger.snapshot().is_empty());
    assert_eq!(ledger.snapshot().restarted, 1);
}

#[test]
fn what_it_holds_keeps_a_job_from_beginning_again_unless_declared() {
    let ledger = ledger(5);
    let mut job = submit(&ledger, "job");
    let mut grant = job.enter(0).wait().unwrap();
    assert!(matches!(job.restart(), Err(RestartError::StillInStage { stage: "make", .. })));
    let input = grant.take_all(INPUT);
    drop(grant);
    let error = job.restart().unwrap_err();
    assert_eq!(
        error.to_string(),
        "job \"job\" has 1 reservations out, 2 B of input; drop them before it begins again, \
         or declare with JobSpec::restarts that it keeps its input"
    );
    drop(input);
    job.restart().unwrap();
    drop(job);

    let mut job = ledger.submit(JobSpec::new("job", profile()).restarts()).unwrap();
    let mut grant = job.enter(0).wait().unwrap();
    let input = grant.take_all(INPUT);
    drop(grant);
    drop(job.enter(1).wait().unwrap());
    // In its last stage an ordinary job would claim 3.
    assert!(ledger.reserve(OUTPUT, Bytes(1)).retained().try_now().is_err(), "it claims all 5 to its end");
    job.restart().unwrap();
    assert_eq!(held(&ledger), (2, vec![0, 0]));
    ledger.close();
    drop(job.enter(0).wait().expect("it stayed in flight"));
    drop(input);
    drop(job);
    assert!(ledger.snapshot().is_empty());
}
