//! Jobs that belong together, and jobs that may be served in more than one way, through the ledger's handles.

use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use plimsoll::ledger::{EnterError, SubmitError};
use plimsoll::{Budget, Bytes, Class, Demand, Job, JobSpec, Ledger, Profile, Slots, Space};

const WORK: Class = Class::new("work", Space::HOST);
const PROOF: Class = Class::new("proof", Space::HOST);
const ON_ONE: Class = Class::new("abc", Space::device(0));
const ON_OTHER: Class = Class::new("abc", Space::device(1));
const CORE: Slots = Slots::new("core");

fn demand(work: u64, proofs: u64) -> Demand {
    Demand::new().bytes(WORK, Bytes(work)).bytes(PROOF, Bytes(proofs))
}

/// Needs 5 and leaves 1.
fn part() -> Profile {
    Profile::new().stage("half", demand(2, 0), demand(2, 0)).stage("prove", demand(4, 1), demand(0, 1))
}

/// Holds 1 itself, with `n` parts beside it, and then their `n` proofs: claims 1 + n + 4.
fn whole(n: u64) -> Profile {
    Profile::new().stage("parts", demand(1, 0), demand(0, n)).parts(n, &part()).stage(
        "join",
        demand(1, n),
        demand(0, 0),
    )
}

fn ledger(limit: u64) -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(limit)).bypass(0))
}

fn submit_part(ledger: &Ledger, job: &Job) -> Result<Job, SubmitError> {
    ledger.submit(JobSpec::new("part", part()).part_of(job))
}

/// Polls a job's request for a stage once.
fn poll(job: &mut Job, stage: usize) -> Poll<Result<plimsoll::Grant, EnterError>> {
    struct Nobody;
    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }
    job.poll_enter(&mut Context::from_waker(&Arc::new(Nobody).into()), stage)
}

fn held(ledger: &Ledger) -> u64 {
    ledger.snapshot().spaces[0].held.0
}

#[test]
fn parts_run_one_after_another_in_the_room_that_their_parent_claims() {
    let ledger = ledger(1 + 2 + 4);
    let mut job = ledger.submit(JobSpec::new("job", whole(2))).unwrap();
    let stage = job.enter(0).wait().unwrap();
    let (mut one, mut other) = (submit_part(&ledger, &job).unwrap(), submit_part(&ledger, &job).unwrap());
    drop(one.enter(0).wait().unwrap());
    assert!(poll(&mut other, 0).is_ready(), "one holds nothing between its stages: there is room for both");
    let mut prove = one.enter(1).wait().unwrap();
    assert!(poll(&mut other, 1).is_pending(), "there is room for one in its last stage");
    let first = prove.take_all(PROOF);
    drop((prove, one));
    let mut prove = other.enter(1).wait().unwrap();
    let second = prove.take_all(PROOF);
    drop((prove, other, stage));
    assert_eq!(held(&ledger), 2, "the proofs are the job's");
    let mut join = job.enter(1).wait().unwrap();
    assert_eq!(held(&ledger), 3);
    join.put_back(first).unwrap();
    join.put_back(second).unwrap();
    drop((join, job));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn more_parts_than_their_parent_declared_are_refused_at_once() {
    let ledger = ledger(100);
    let mut job = ledger.submit(JobSpec::new("job", whole(2))).unwrap();
    assert!(matches!(submit_part(&ledger, &job), Err(SubmitError::NoParent { .. })), "it is not in flight yet");
    let _stage = job.enter(0).wait().unwrap();
    let _parts = [submit_part(&ledger, &job).unwrap(), submit_part(&ledger, &job).unwrap()];
    let error = submit_part(&ledger, &job).unwrap_err();
    let text = "job \"part\" and the other parts of \"job\" need 8 B of host memory, beyond their parent's claim of 7 B; \
                declare all of them with Profile::parts";
    assert_eq!(error.to_string(), text);
    let elsewhere = Ledger::unlimited();
    assert!(matches!(submit_part(&elsewhere, &job), Err(SubmitError::OtherLedger { .. })));
}

#[test]
fn a_part_is_not_held_back_by_an_admission_that_may_not_be_passed() {
    let ledger = ledger(7);
    let mut job = ledger.submit(JobSpec::new("job", whole(2))).unwrap();
    let _stage = job.enter(0).wait().unwrap();
    let mut large =
        ledger.submit(JobSpec::new("large", Profile::new().stage("s", demand(7, 0), demand(0, 0)))).unwrap();
    assert!(poll(&mut large, 0).is_pending(), "it waits for the job's bytes, and may be passed by nobody");
    let mut part = submit_part(&ledger, &job).unwrap();
    drop(part.enter(0).try_now().unwrap());
}

#[test]
fn a_job_that_is_dropped_ends_with_its_last_part_in_flight() {
    let ledger = ledger(20);
    let mut job = ledger.submit(JobSpec::new("job", whole(3))).unwrap();
    let stage = job.enter(0).wait().unwrap();
    let (mut running, mut fresh) = (submit_part(&ledger, &job).unwrap(), submit_part(&ledger, &job).unwrap());
    let grant = running.enter(0).wait().unwrap();
    drop((job, stage));
    assert!(matches!(fresh.enter(0).wait(), Err(EnterError::ParentEnded { .. })));
    drop(grant);
    let mut grant = running.enter(1).wait().unwrap();
    let proof = grant.take_all(PROOF);
    drop((grant, running));
    assert_eq!(held(&ledger), 1, "what is still out is held");
    assert!(ledger.snapshot().holders[0].who.contains("job"));
    drop((proof, fresh));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_job_whose_grant_is_given_back_stays_in_flight_for_its_parts() {
    let ledger = ledger(7);
    let all = ledger.reserve(WORK, Bytes(7)).wait().unwrap();
    let mut job = ledger.submit(JobSpec::new("job", whole(2))).unwrap();
    assert!(poll(&mut job, 0).is_pending());
    drop(all);
    // Granted, and nobody has looked yet.
    let mut part = submit_part(&ledger, &job).unwrap();
    let half = part.enter(0).wait().unwrap();
    job.cancel_enter();
    assert_eq!(held(&ledger), 2);
    drop(half);
    let mut prove = part.enter(1).wait().unwrap();
    let proof = prove.take_all(PROOF);
    drop((prove, part));
    drop(job.enter(0).wait().unwrap());
    let mut join = job.enter(1).wait().unwrap();
    join.put_back(proof).unwrap();
    drop((join, job));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_job_whose_grant_is_given_back_stays_in_flight_for_what_its_parts_have_left() {
    let ledger = ledger(7);
    let all = ledger.reserve(WORK, Bytes(7)).wait().unwrap();
    let mut job = ledger.submit(JobSpec::new("job", whole(2))).unwrap();
    assert!(poll(&mut job, 0).is_pending());
    drop(all);
    let mut part = submit_part(&ledger, &job).unwrap();
    drop(part.enter(0).wait().unwrap());
    let mut prove = part.enter(1).wait().unwrap();
    let proof = prove.take_all(PROOF);
    drop((prove, part));
    // All its parts have ended; what they have left is the job's.
    job.cancel_enter();
    let holders = ledger.snapshot().holders;
    assert!(held(&ledger) == 1 && holders[0].who.contains("job"), "{holders:?}");
    assert!(ledger.reserve(WORK, Bytes(6)).retained().try_now().is_err(), "its claim stands");
    drop(job.enter(0).wait().unwrap());
    let mut join = job.enter(1).wait().unwrap();
    join.put_back(proof).unwrap();
    drop((join, job));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_part_may_be_submitted_while_its_parent_waits_and_counts_with_what_that_waits_for() {
    let profile = whole(2).stage("large", demand(7, 0), demand(0, 0));
    let ledger = ledger(9);
    let mut job = ledger.submit(JobSpec::new("job", profile)).unwrap();
    drop(job.enter(0).wait().unwrap());
    let cache = ledger.reserve(WORK, Bytes(5)).wait();
    assert!(poll(&mut job, 2).is_pending() == cache.is_ok());
    assert!(matches!(submit_part(&ledger, &job), Err(SubmitError::BeyondParent { needed: 12, claim: 7, .. })));
}

#[test]
fn a_stage_that_leaves_no_room_for_unfinished_parts_is_not_entered() {
    let profile = whole(2).stage("large", demand(7, 0), demand(0, 0));
    let ledger = ledger(100);
    let mut job = ledger.submit(JobSpec::new("job", profile)).unwrap();
    drop(job.enter(0).wait().unwrap());
    let part = submit_part(&ledger, &job).unwrap();
    let error = job.enter(2).wait().unwrap_err();
    assert!(matches!(&error, EnterError::PartsUnfinished { needed: 12, claim: 7, .. }), "{error}");
    drop(part);
    drop(job.enter(2).wait().unwrap());
}

/// A job on the host that makes room in its second stage for a part like this one.
fn with_room_for(part: &Profile) -> Profile {
    let one = || demand(1, 0);
    Profile::new().stage("begin", one(), one()).stage("parts", one(), one()).parts(1, part).stage(
        "end",
        one(),
        demand(0, 0),
    )
}

/// Two stages on the host and on a device.
fn on(class: Class, on_device: [u64; 2], on_host: u64) -> Profile {
    let host = || demand(on_host, 0);
    let [first, second] = on_device.map(|bytes| host().bytes(class, Bytes(bytes)));
    Profile::new().stage("half", first, host()).stage("prove", second, demand(0, 0))
}

/// A job in its first stage, of which a part in flight goes by its second plan, since the first device is taken.
fn part_by_its_second_plan(part: JobSpec) -> (Ledger, Job, plimsoll::Grant, Job) {
    let devices = Budget::new().space(Space::device(0), Bytes(1)).space(Space::device(1), Bytes(2));
    let ledger = Ledger::new(devices.space(Space::HOST, Bytes(20)));
    let taken = ledger.reserve(ON_ONE, Bytes(1)).wait().unwrap();
    let mut job = ledger.submit(JobSpec::new("job", with_room_for(&part.profile))).unwrap();
    let begin = job.enter(0).wait().unwrap();
    let mut part = ledger.submit(part.part_of(&job)).unwrap();
    let half = part.enter(0).wait().unwrap();
    assert_eq!(half.choice(), 1);
    drop((half, taken));
    (ledger, job, begin, part)
}

#[test]
fn what_is_set_aside_for_a_part_is_as_much_when_the_plan_that_it_was_for_is_lost() {
    let part = JobSpec::new("part", on(ON_ONE, [1, 1], 1)).or(on(ON_OTHER, [2, 1], 3));
    let (ledger, mut job, begin, mut part) = part_by_its_second_plan(part);
    ledger.retire(Space::device(0)).unwrap();
    drop(begin);
    // What the part needs by the plan that it goes by was never set aside here, and is not missing now.
    drop(job.enter(1).wait().unwrap());
    assert_eq!(part.enter(1).wait().unwrap().choice(), 1);
    drop((part, job));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_part_goes_smaller_only_by_what_its_parent_has_room_for() {
    let larger_than_the_first = on(ON_OTHER, [1, 1], 3);
    let part = JobSpec::new("part", on(ON_ONE, [1, 0], 1)).or(on(ON_OTHER, [2, 2], 3));
    let part = part.or(larger_than_the_first).or(on(ON_OTHER, [0, 0], 1));
    let (ledger, mut job, begin, mut part) = part_by_its_second_plan(part);
    assert!(part.go_smaller());
    drop(begin);
    drop(job.enter(1).wait().unwrap());
    assert_eq!(part.enter(1).wait().unwrap().choice(), 3);
    drop((part, job));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_request_is_granted_by_the_first_profile_that_fits() {
    let on = |class: Class, bytes| {
        let host = demand(1, 0);
        Profile::new().stage("make", host.clone(), host.clone()).stage(
            "prove",
            host.bytes(class, Bytes(bytes)),
            demand(0, 0),
        )
    };
    let budget = Budget::new().space(Space::HOST, Bytes(9)).space(Space::device(0), Bytes(5));
    let ledger = Ledger::new(budget.space(Space::device(1), Bytes(4)));
    let submit = || ledger.submit(JobSpec::new("job", on(ON_ONE, 5)).or(on(ON_ONE, 2)).or(on(ON_OTHER, 4)));
    let mut jobs: Vec<Job> = (0..4).map(|_| submit().unwrap()).collect();
    // All of them start, since each can still be served one after another.
    let starts: Vec<usize> = jobs.iter_mut().map(|job| job.enter(0).wait().unwrap().choice()).collect();
    assert_eq!(starts, [0, 0, 0, 0]);
    let first = jobs[0].enter(1).wait().unwrap();
    assert_eq!(first.choice(), 0, "the whole of the first device");
    let second = jobs[1].enter(1).wait().unwrap();
    assert_eq!(second.choice(), 2, "the other device");
    assert!(poll(&mut jobs[2], 1).is_pending());
    drop(second);
    assert_eq!(poll(&mut jobs[2], 1).map(|grant| grant.unwrap().choice()), Poll::Ready(2));
    drop(first);
    // On the first device again, as the first profile says.
    assert_eq!(jobs[3].enter(1).wait().unwrap().choice(), 0);
    assert_eq!(jobs[3].profiles().len(), 3);
}

#[test]
fn a_profile_that_never_fits_drops_out_and_none_left_is_an_error() {
    let on =
        |class: Class, bytes| Profile::new().stage("prove", Demand::new().bytes(class, Bytes(bytes)), demand(0, 0));
    let ledger = Ledger::new(Budget::new().space(Space::device(0), Bytes(4)).slots(CORE, 1));
    let mut job = ledger.submit(JobSpec::new("job", on(ON_OTHER, 1)).or(on(ON_ONE, 9)).or(on(ON_ONE, 3))).unwrap();
    assert_eq!(job.enter(0).wait().unwrap().choice(), 2);
    let never = ledger.submit(JobSpec::new("job", on(ON_ONE, 9)).or(on(ON_ONE, 8))).unwrap_err();
    assert!(matches!(never, SubmitError::NeverFits(_)), "{never}");
    let nowhere = ledger.submit(JobSpec::new("job", on(ON_OTHER, 1))).unwrap_err();
    assert!(matches!(nowhere, SubmitError::Unbudgeted { .. }), "{nowhere}");
    let other = Profile::new().stage("else", Demand::new(), Demand::new());
    let stages = ledger.submit(JobSpec::new("job", on(ON_ONE, 1)).or(other)).unwrap_err();
    assert!(matches!(stages, SubmitError::OtherStages { choice: 1, .. }), "{stages}");
}
