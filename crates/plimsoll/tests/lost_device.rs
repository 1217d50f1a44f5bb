//! A device is lost: it goes off the books whole, and whoever needs it is told.
#![expect(clippy::disallowed_types, reason = "tests use plain locks")]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plimsoll::ledger::{EnterError, GetError, Got, GrowError, ReserveError, ResizeError, SubmitError};
use plimsoll::observe::{Event, Observer, What};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Slots, Space};

const HOST: Class = Class::new("inputs", Space::HOST);
const STAGING: Class = Class::new("staging", Space::PINNED);
const BUCKETS: Class = Class::new("buckets", Space::device(0));
const OTHER: Class = Class::new("buckets", Space::device(1));

fn ledger() -> Ledger {
    let budget = Budget::new().space(Space::HOST, Bytes(10)).space(Space::PINNED, Bytes(4));
    let budget = budget.space(Space::device(0), Bytes(8)).space(Space::device(1), Bytes(8));
    Ledger::new(budget.slots(Slots::lane(0), 2).slots(Slots::lease(0), 1).slots(Slots::lane(1), 2))
}

fn host(bytes: u64) -> Demand {
    Demand::new().bytes(HOST, Bytes(bytes))
}

/// Makes something on the host, and computes with it on device 0.
fn profile() -> Profile {
    let device = host(2).bytes(STAGING, Bytes(1)).bytes(BUCKETS, Bytes(5)).slots(Slots::lane(0), 1);
    Profile::new().stage("make", host(2), host(2)).stage("prove", device, Demand::new()).stage(
        "check",
        host(1),
        Demand::new(),
    )
}

#[test]
fn whoever_asks_for_a_residency_of_a_lost_device_is_told() {
    let ledger = ledger();
    let residency = || ledger.residency::<u8>("key", BUCKETS, Bytes(2), Duration::ZERO).unwrap();
    let (loading, resident, fresh) = (residency(), residency(), residency());
    drop(resident.get_or_load(|_| Ok::<_, ()>(7)).unwrap());
    let Got::Vacant(vacant) = loading.get().try_now().unwrap() else { panic!("it is not there") };
    let lost = |error| matches!(error, EnterError::Lost(_));
    // Lost while it is loaded, by whoever asked for it by itself.
    let error = fresh.get_or_load(|_| {
        ledger.retire(Space::device(0)).unwrap();
        Ok::<_, ()>(7)
    });
    assert!(matches!(error, Err(GetError::Refused(EnterError::Lost(_)))), "{error:?}");
    assert!(lost(vacant.fill(7).unwrap_err()));
    // And from then on.
    for key in [loading, resident, fresh] {
        assert!(lost(key.get().try_now().unwrap_err()));
        assert!(lost(key.get().wait().unwrap_err()));
        let mut request = std::pin::pin!(key.get());
        let Poll::Ready(polled) = request.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("told")
        };
        assert!(lost(polled.unwrap_err()));
    }
    ledger.quiesce(Duration::ZERO).unwrap();
}

/// A job that goes another way because its device was lost may claim less: whoever waits for that is served in that event,
/// also where the job itself has to wait.
#[test]
fn whoever_waits_for_what_a_job_claims_no_more_is_served() {
    let ledger = ledger();
    let none = Demand::new;
    let large = Profile::new().stage("make", none(), none()).stage("prove", host(8).bytes(BUCKETS, Bytes(1)), none());
    let small = Profile::new().stage("make", none(), none()).stage("prove", host(2).slots(Slots::lane(1), 1), none());
    let mut job = ledger.submit(JobSpec::new("job", large).or(small)).unwrap();
    let making = job.enter(0).wait().unwrap();
    let lanes = Profile::new().stage("s", none().slots(Slots::lane(1), 2), none());
    let mut other = ledger.submit(JobSpec::new("other", lanes)).unwrap();
    let taken = other.enter(0).wait().unwrap();
    let mut waits = std::pin::pin!(ledger.reserve(HOST, Bytes(5)).retained());
    let mut poll = || waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending(), "the job is to have 8 of 10");
    ledger.retire(Space::device(0)).unwrap();
    assert!(poll().is_pending(), "it goes by that plan until it comes there");
    drop(making);
    assert!(job.poll_enter(&mut Context::from_waker(Waker::noop()), 1).is_pending(), "both lanes are taken");
    let Poll::Ready(kept) = poll() else { panic!("the job is to have 2 of 10") };
    drop(taken);
    drop(job.enter(1).wait().unwrap());
    drop(kept.unwrap());
}

#[test]
fn what_is_held_goes_with_the_limit_and_never_comes_back() {
    let ledger = ledger();
    let mut job = ledger.submit(JobSpec::new("job", profile())).unwrap();
    let input = job.enter(0).wait().unwrap().take_all(HOST);
    let mut grant = job.enter(1).wait().unwrap();
    let buckets = grant.take(BUCKETS, Bytes(3)).unwrap();
    let mut key = ledger.reserve(BUCKETS, Bytes(2)).max(Bytes(3)).wait().unwrap();
    let staging = grant.take_all(STAGING);

    assert_eq!(ledger.retire(Space::device(0)), Ok(Bytes(7)));
    assert_eq!(ledger.retire(Space::device(0)), Ok(Bytes(0)), "it is lost once");

    let snapshot = ledger.snapshot();
    let device = snapshot.space(Space::device(0)).unwrap();
    assert_eq!((device.limit, device.held, device.retired), (Bytes(0), Bytes(0), Some(Bytes(7))));
    let slots: Vec<_> = snapshot.slots.iter().map(|slots| (slots.limit, slots.held, slots.retired)).collect();
    assert_eq!(slots, [(0, 0, Some(1)), (0, 0, Some(0)), (2, 0, None)]);
    let totals = snapshot.class(BUCKETS).unwrap().totals;
    assert_eq!((totals.held, totals.bytes_in, totals.bytes_out), (0, 7, 7));
    let of_host = [Space::HOST, Space::PINNED].map(|space| snapshot.space(space).unwrap().held.0);
    assert_eq!(of_host, [3, 1], "host memory is where it was");

    // In the hands of their holders, and of no use.
    let mut part = key.split(Bytes(1)).unwrap();
    part.shrink_to(Bytes(0)).unwrap();
    assert!(matches!(key.grow(Bytes(1)), Err(GrowError::Lost(_))));
    assert!(matches!(key.try_grow(Bytes(1)), Err(GrowError::WouldWait(_))));
    let key = key.into_class(HOST).unwrap_err().reservation;
    let staging = staging.into_class(BUCKETS).unwrap_err().reservation;
    let more = grant.take_all(BUCKETS);
    grant.put_back(more).unwrap();

    drop((grant, buckets, key, part, staging, input, job));
    let snapshot = ledger.snapshot();
    assert!(snapshot.is_empty());
    assert_eq!(snapshot.space(Space::device(0)).unwrap().limit, Bytes(0), "nothing returns to what is free");
    ledger.quiesce(Duration::from_secs(60)).unwrap();
}

#[test]
fn who_waits_for_it_is_refused_and_so_is_who_comes_later() {
    let ledger = ledger();
    let mut cx = Context::from_waker(Waker::noop());
    let held = ledger.reserve(BUCKETS, Bytes(4)).retained().wait().unwrap();
    assert!(ledger.submit(JobSpec::new("never", profile())).is_err(), "5 of 8 do not fit beside 4");
    drop(held);
    let held = ledger.reserve(BUCKETS, Bytes(4)).wait().unwrap();
    let mut in_flight = ledger.submit(JobSpec::new("in flight", profile())).unwrap();
    drop(in_flight.enter(0).wait().unwrap());
    let mut before = ledger.submit(JobSpec::new("before", profile())).unwrap();
    drop(before.enter(0).wait().unwrap());
    let mut fresh = ledger.submit(JobSpec::new("fresh", profile())).unwrap();
    let mut elsewhere =
        ledger.submit(JobSpec::new("elsewhere", Profile::new().stage("s", host(10), Demand::new()))).unwrap();
    let block = ledger.reserve(HOST, Bytes(1)).wait().unwrap();
    let mut asked = ledger.reserve(BUCKETS, Bytes(5));
    assert!(in_flight.poll_enter(&mut cx, 1).is_pending());
    assert!(elsewhere.poll_enter(&mut cx, 0).is_pending());
    assert!(Pin::new(&mut asked).poll(&mut cx).is_pending());

    ledger.retire(Space::device(0)).unwrap();

    let Poll::Ready(Err(EnterError::Lost(lost))) = in_flight.poll_enter(&mut cx, 1) else { panic!("it is refused") };
    assert_eq!(
        lost.to_string(),
        "\"in flight\" needs memory of device 0 in stage prove, which was lost with its device; use another device"
    );
    assert!(elsewhere.poll_enter(&mut cx, 0).is_pending(), "others go on waiting");
    assert!(matches!(Pin::new(&mut asked).poll(&mut cx), Poll::Ready(Err(ReserveError::Lost(_)))));
    // It is in flight still, and may go on without the device.
    drop(in_flight.enter(2).wait().unwrap());
    assert!(matches!(before.enter(1).wait(), Err(EnterError::Lost(_))));
    drop(block);
    drop((before, in_flight));
    assert!(matches!(fresh.enter(0).wait(), Err(EnterError::Lost(_))), "one of its stages needs the device");
    assert!(matches!(ledger.submit(JobSpec::new("late", profile())), Err(SubmitError::Lost(_))));
    let lease = Profile::new().stage("s", Demand::new().slots(Slots::lease(0), 1), Demand::new());
    assert!(matches!(ledger.submit(JobSpec::new("late", lease)), Err(SubmitError::Lost(_))));
    assert!(matches!(ledger.reserve(BUCKETS, Bytes(1)).wait(), Err(ReserveError::Lost(_))));
    let error = ledger.resize(Space::device(0), Bytes(8)).unwrap_err();
    assert!(matches!(error, ResizeError::Lost(_)));
    assert!(elsewhere.poll_enter(&mut cx, 0).is_ready());
    drop((elsewhere, held, fresh));
    drop(ledger.reserve(OTHER, Bytes(8)).try_now().expect("the other device is there"));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn it_is_lost_to_children_too_old_and_new() {
    let ledger = ledger();
    let child = |name| ledger.child(name, &Budget::new().space(Space::device(0), Bytes(4)));
    let old = child("old");
    let held = old.reserve(BUCKETS, Bytes(3)).wait().unwrap();
    assert_eq!(old.retire(Space::device(0)), Ok(Bytes(3)));
    let new = child("new");
    assert!(matches!(new.reserve(BUCKETS, Bytes(1)).wait(), Err(ReserveError::Lost(_))));
    drop(held);
    let limits: Vec<_> = ledger.snapshot().spaces.into_iter().filter_map(|space| space.retired).collect();
    assert_eq!(limits, [Bytes(3), Bytes(3), Bytes(0)]);
}

#[test]
fn only_a_device_can_be_lost() {
    let ledger = ledger();
    let error = ledger.retire(Space::PINNED).unwrap_err();
    assert!(error.to_string().starts_with("pinned host memory is not a device's"), "{error}");
    assert!(ledger.retire(Space::HOST).is_err());
    assert!(ledger.retire(Space::device(7)).is_err());
    assert_eq!(Ledger::unlimited().retire(Space::device(7)), Ok(Bytes(0)));
}

#[test]
fn observers_are_told_what_was_lost_and_by_whom() {
    #[derive(Default)]
    struct Log(Mutex<Vec<(Option<String>, What)>>);
    impl Observer for Log {
        fn event(&self, event: &Event) {
            let who = event.subject.as_ref().map(|subject| subject.name.to_string());
            self.0.lock().unwrap().push((who, event.what));
        }
    }
    let ledger = ledger();
    let held = ledger.reserve(BUCKETS, Bytes(3)).name("key").wait().unwrap();
    let log = Arc::new(Log::default());
    ledger.observe(log.clone());
    ledger.retire(Space::device(0)).unwrap();
    drop(held);
    let lost = What::Changed { resource: BUCKETS.into(), delta: -3, held: 0 };
    let told = std::mem::take(&mut *log.0.lock().unwrap());
    let retired = What::Retired { space: Space::device(0), bytes: Bytes(3) };
    assert_eq!(told, [(None, retired), (Some("key".into()), lost), (Some("key".into()), What::Ended)]);
}

#[test]
fn a_job_with_another_plan_goes_by_that() {
    let ledger = ledger();
    let mut cx = Context::from_waker(Waker::noop());
    let on = |device: Class, bytes: u64| {
        let made = host(2);
        let proved = made.clone().bytes(device, Bytes(bytes));
        Profile::new().stage("make", made.clone(), made).stage("prove", proved, Demand::new())
    };
    let spec = |name: &str| JobSpec::new(name, on(BUCKETS, 5)).or(on(OTHER, 6));
    let mut between = ledger.submit(spec("between")).unwrap();
    let mut running = ledger.submit(spec("running")).unwrap();
    let mut fresh = ledger.submit(spec("fresh")).unwrap();
    let input = between.enter(0).wait().unwrap().take_all(HOST);
    let mut grant = running.enter(0).wait().unwrap();
    let other_input = grant.take_all(HOST);
    drop(grant);
    let grant = running.enter(1).wait().unwrap();
    assert_eq!(grant.choice(), 0);
    let held = ledger.reserve(OTHER, Bytes(8)).wait().unwrap();
    assert!(between.poll_enter(&mut cx, 1).is_pending(), "one device has too little, the other nothing");

    ledger.retire(Space::device(0)).unwrap();
    assert!(between.poll_enter(&mut cx, 1).is_pending(), "it waits for the other device now");
    grant.retry();
    assert!(running.poll_enter(&mut cx, 1).is_pending(), "and so does the one that was at it");
    drop(held);
    let Poll::Ready(Ok(grant)) = between.poll_enter(&mut cx, 1) else { panic!("there is room") };
    assert_eq!(grant.choice(), 1);
    assert!(running.poll_enter(&mut cx, 1).is_pending());
    drop((grant, between, input));
    let Poll::Ready(Ok(grant)) = running.poll_enter(&mut cx, 1) else { panic!("there is room") };
    drop((grant, running, other_input));
    drop(fresh.enter(0).wait().unwrap());
    assert_eq!(fresh.enter(1).wait().unwrap().choice(), 1);
    drop(fresh);
    drop(ledger.submit(spec("late")).unwrap().enter(1).wait().unwrap());
    assert!(ledger.snapshot().is_empty());

    ledger.retire(Space::device(1)).unwrap();
    assert!(matches!(ledger.submit(spec("too late")), Err(SubmitError::Lost(_))));
}
