use std::task::{Context, Waker};
use std::time::Duration;

use super::EvictError;
use crate::ledger::error::Reason;
use crate::ledger::{Got, Residency};
use crate::pipeline::{JobError, Pipeline};
use crate::pool::{Pool, PoolConfig};
use crate::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Space};

const BYTES: Class = Class::new("bytes", Space::HOST);
const KEYS: Class = Class::new("keys", Space::HOST);

fn ledger(bytes: u64) -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(bytes)))
}

fn demand(bytes: u64) -> Demand {
    Demand::new().bytes(BYTES, Bytes(bytes))
}

#[test]
fn what_is_new_waits_while_admission_is_paused_and_what_is_in_flight_goes_on() {
    let ledger = ledger(10);
    let profile = Profile::new().stage("one", demand(2), demand(2)).stage("two", demand(4), Demand::new());
    let job = |name| ledger.submit(JobSpec::new(name, profile.clone())).expect("it fits");
    let mut cx = Context::from_waker(Waker::noop());
    let (mut first, mut second, mut third) = (job("first"), job("second"), job("third"));
    let grant = first.enter(0).try_now().expect("there is room");
    ledger.pause();
    assert!(ledger.snapshot().paused);
    assert!(second.poll_enter(&mut cx, 0).is_pending());
    assert!(third.poll_enter(&mut cx, 0).is_pending());
    let why = |ledger: &Ledger| ledger.snapshot().waiters.iter().map(|w| w.shortage.reason.clone()).collect::<Vec<_>>();
    assert_eq!(why(&ledger), [Reason::Paused, Reason::Paused]);
    assert!(ledger.reserve(BYTES, Bytes(1)).try_now().expect_err("paused").to_string().contains("paused"));
    // The first job goes on to its end, and what it returns is given to nobody.
    drop(grant);
    drop(first.enter(1).try_now().expect("it is in flight"));
    drop(first);
    assert!(second.poll_enter(&mut cx, 0).is_pending());
    ledger.resume();
    assert!(second.poll_enter(&mut cx, 0).is_ready() && third.poll_enter(&mut cx, 0).is_ready());
    assert!(!ledger.snapshot().paused);
}

#[test]
fn reservations_that_wait_in_the_line_keep_their_place_over_a_pause() {
    let ledger = ledger(10);
    let held = ledger.reserve(BYTES, Bytes(10)).try_now().expect("there is room");
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> =
        [6, 5].map(|bytes| Box::pin(ledger.reserve(BYTES, Bytes(bytes)).into_future())).into_iter().collect();
    assert!(waiting.iter_mut().all(|request| request.as_mut().poll(&mut cx).is_pending()));
    ledger.pause();
    drop(held);
    assert!(waiting.iter_mut().all(|request| request.as_mut().poll(&mut cx).is_pending()));
    ledger.resume();
    let first = waiting[0].as_mut().poll(&mut cx);
    assert!(first.is_ready(), "the older one goes first");
    assert!(waiting[1].as_mut().poll(&mut cx).is_pending());
}

#[test]
fn a_residency_that_nobody_uses_can_be_evicted_by_its_name() {
    let ledger = ledger(10);
    let key: Residency<u64> = ledger.residency("key", KEYS, Bytes(8), Duration::from_secs(1)).expect("named");
    assert!(matches!(ledger.evict("lock"), Err(EvictError::Unknown { known, .. }) if known.len() == 1));
    assert!(matches!(ledger.evict("key"), Err(EvictError::NotResident { .. })));
    let Got::Vacant(vacant) = key.get().wait().expect("it fits") else { panic!("it was not there") };
    let pin = vacant.fill(7);
    assert!(matches!(ledger.evict("key"), Err(EvictError::InUse { pins: 1, .. })));
    drop(pin);
    assert_eq!(ledger.evict("key"), Ok(Bytes(8)));
    assert!(!key.is_resident());
    assert_eq!(ledger.snapshot().space(Space::HOST).expect("limited").held, Bytes::ZERO);
    assert!(matches!(key.get().wait().expect("it fits"), Got::Vacant(_)), "the next one loads it again");
}

#[test]
fn a_job_is_cancelled_by_its_name_wherever_it_waits() {
    let (ledger, pool) = (ledger(10), Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("a pool"));
    let pipeline = Pipeline::<(), (), String>::builder(&ledger, &pool, |()| {
        Profile::new().stage("all", demand(10), Demand::new())
    })
    .stage("all", |_, ()| Ok(()))
    .build()
    .expect("a pipeline");
    let held = ledger.reserve(BYTES, Bytes(1)).try_now().expect("there is room");
    let [one, other] = ["one", "other"].map(|name| pipeline.submit(name, ()).expect("taken on"));
    assert_eq!((ledger.cancel("nobody"), ledger.cancel("one")), (0, 1));
    assert!(matches!(one.wait(), Err(JobError::Cancelled { .. })));
    drop(held);
    assert!(other.wait().is_ok());
    drop(pipeline);
    assert_eq!(ledger.cancel("other"), 0);
}
