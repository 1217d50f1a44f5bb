//! Jobs that are larger than a limit, and run alone because they were submitted so.

use std::task::{Context, Poll, Waker};

use plimsoll::ledger::SubmitError;
use plimsoll::{Budget, Bytes, Class, Demand, Grant, Job, JobSpec, Ledger, Profile, Space};

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::device(0));

fn ledger(bypass: u32) -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(10)).space(Space::device(0), Bytes(4)).bypass(bypass))
}

fn bytes(bytes: u64) -> Demand {
    Demand::new().bytes(A, Bytes(bytes))
}

fn one_stage(bytes_of_host: u64) -> Profile {
    Profile::new().stage("s", bytes(bytes_of_host), Demand::new())
}

fn large() -> JobSpec {
    let profile = Profile::new().stage("grow", bytes(8), bytes(8)).stage("all", bytes(15), bytes(2));
    JobSpec::new("large", profile).alone_if_oversize()
}

fn poll(job: &mut Job, stage: usize) -> Option<Grant> {
    match job.poll_enter(&mut Context::from_waker(Waker::noop()), stage) {
        Poll::Ready(grant) => Some(grant.unwrap()),
        Poll::Pending => None,
    }
}

fn limits(ledger: &Ledger) -> [u64; 3] {
    let space = ledger.snapshot().space(Space::HOST).unwrap().clone();
    [space.limit.0, space.target.0, space.held.0]
}

#[test]
fn an_oversize_job_is_an_error_unless_it_may_run_alone() {
    let ledger = ledger(8);
    let mut spec = large();
    spec.alone_if_oversize = false;
    assert!(matches!(ledger.submit(spec), Err(SubmitError::NeverFits(_))));
    let key = ledger.reserve(A, Bytes(1)).retained().wait().unwrap();
    let mut other = ledger.submit(JobSpec::new("other", one_stage(3))).unwrap();
    let others = poll(&mut other, 0).unwrap();
    let mut job = ledger.submit(large()).unwrap();
    assert!(poll(&mut job, 0).is_none(), "somebody else is in flight");
    drop((others, other));

    // What is retained stays, and nobody waits for that.
    let mut grant = poll(&mut job, 0).expect("it is alone");
    assert_eq!(limits(&ledger), [16, 10, 9], "its claim, beside the key");
    assert_eq!(ledger.snapshot().forced, 1);
    let mut beside = ledger.submit(JobSpec::new("beside", one_stage(1))).unwrap();
    assert!(poll(&mut beside, 0).is_none(), "nobody comes beside it, however small");
    assert!(ledger.reserve(B, Bytes(1)).try_now().is_err(), "nor anywhere else in this ledger");
    let kept = grant.take_all(A);
    drop(grant);
    let mut grant = poll(&mut job, 1).expect("it was promised its claim");
    assert_eq!(limits(&ledger), [16, 10, 16]);
    drop(kept);
    let result = grant.take(A, Bytes(2)).unwrap();
    drop(grant);
    assert!(poll(&mut beside, 0).is_none());
    drop(job);
    assert!(poll(&mut beside, 0).is_some());
    drop((beside, result, key));
    assert_eq!(limits(&ledger), [10, 10, 0]);
    // Where it fits, it is a job like any other.
    ledger.resize(Space::HOST, Bytes(20)).unwrap();
    let mut other = ledger.submit(JobSpec::new("other", one_stage(3))).unwrap();
    let others = poll(&mut other, 0).unwrap();
    let mut job = ledger.submit(large()).unwrap();
    drop(poll(&mut job, 0).unwrap());
    assert_eq!(ledger.snapshot().forced, 1);
    drop((job, others, other));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn it_is_passed_no_more_often_than_others() {
    let ledger = ledger(2);
    let mut first = ledger.submit(JobSpec::new("first", one_stage(1))).unwrap();
    let mut running = vec![(poll(&mut first, 0), first)];
    let mut job = ledger.submit(large()).unwrap();
    assert!(poll(&mut job, 0).is_none());
    for _ in 0..2 {
        let mut small = ledger.submit(JobSpec::new("small", one_stage(1))).unwrap();
        let grant = poll(&mut small, 0);
        assert!(grant.is_some());
        running.push((grant, small));
    }
    let mut late = ledger.submit(JobSpec::new("late", one_stage(1))).unwrap();
    assert!(poll(&mut late, 0).is_none(), "the large one was passed twice");
    drop(running);
    let grant = poll(&mut job, 0);
    assert!(grant.is_some());
    assert!(poll(&mut late, 0).is_none());
    drop((grant, job));
    assert!(poll(&mut late, 0).is_some());
}

#[test]
fn a_childs_oversize_job_is_alone_in_the_child() {
    let ledger = ledger(8);
    let tenant = ledger.child("tenant", &Budget::new().space(Space::HOST, Bytes(4)));
    let spec = || JobSpec::new("job", one_stage(6)).alone_if_oversize();
    let mut other = ledger.submit(JobSpec::new("other", one_stage(3))).unwrap();
    let _others = poll(&mut other, 0).unwrap();
    let mut job = tenant.submit(spec()).unwrap();
    let grant = poll(&mut job, 0).expect("what runs elsewhere is not in its way");
    assert!(tenant.reserve(A, Bytes(1)).try_now().is_err(), "nobody beside it in the child");
    drop(ledger.reserve(A, Bytes(1)).try_now().expect("others are not held up"));
    assert!(ledger.reserve(A, Bytes(2)).try_now().is_err(), "the root's limit stands");
    drop((grant, job));
    drop(tenant.reserve(A, Bytes(1)).try_now().unwrap());
}

#[test]
fn nobody_waits_for_a_job_alone_by_a_plan_that_has_nothing_to_do_with_its_limit() {
    let ledger = ledger(8);
    let tenant = ledger.child("tenant", &Budget::new().space(Space::HOST, Bytes(4)));
    let grows = Profile::new().stage("s", bytes(1), bytes(1)).stage("t", bytes(6), bytes(0));
    let mut job = tenant.submit(JobSpec::new("job", grows).alone_if_oversize()).unwrap();
    let grant = poll(&mut job, 0).unwrap();
    let two = |first: Demand, second: Demand| {
        Profile::new().stage("s", first, Demand::new()).stage("t", second, Demand::new())
    };
    let device = |bytes| Demand::new().bytes(B, Bytes(bytes));
    let by_host = two(bytes(1), bytes(1));
    let by_device = two(device(2), device(4));
    let mut either = tenant.submit(JobSpec::new("either", by_host).or(by_device)).unwrap();
    let others = poll(&mut either, 0).expect("by its other plan it takes nothing of the child's host memory");
    drop(others);
    // Nor does it come there later by going another way, though there is room there and none on the device.
    let held = ledger.reserve(B, Bytes(1)).wait().unwrap();
    assert!(poll(&mut either, 1).is_none());
    drop((grant, job));
    let others = poll(&mut either, 1).expect("nobody runs alone any more");
    drop((others, held));
}
