//! Residencies through the ledger's handles: loaded once, shared, evicted when their room is needed.
#![expect(clippy::disallowed_types, reason = "tests use plain locks")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use plimsoll::ledger::error::Reason;
use plimsoll::ledger::state::ResidencyStand;
use plimsoll::ledger::{EnterError, GetError, Got, Residency};
use plimsoll::observe::{Event, Observer, What};
use plimsoll::{Budget, Bytes, Charged, Class, Demand, JobSpec, Ledger, Profile, Space};

const KEYS: Class = Class::new("keys", Space::HOST);
const SCRATCH: Class = Class::new("scratch", Space::HOST);

const SECOND: Duration = Duration::from_secs(1);

fn ledger(bytes: u64) -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(bytes)))
}

fn residency<T: Send + Sync + 'static>(ledger: &Ledger, name: &str, bytes: u64) -> Residency<T> {
    ledger.residency(name, KEYS, Bytes(bytes), SECOND).expect("the budget names host memory")
}

fn held(ledger: &Ledger) -> u64 {
    ledger.snapshot().space(Space::HOST).expect("it has a limit").held.0
}

fn stage(bytes: u64) -> Profile {
    Profile::new().stage("prove", Demand::new().bytes(SCRATCH, Bytes(bytes)), Demand::new())
}

/// Loads a residency, and lets go of it.
fn load<T: Send + Sync + 'static>(residency: &Residency<T>, value: T) {
    match residency.get().wait().expect("it fits") {
        Got::Vacant(vacant) => drop(vacant.fill(value).unwrap()),
        Got::Pinned(_) => panic!("it is there already"),
    }
}

#[test]
fn what_many_need_is_loaded_once() {
    let ledger = ledger(10);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    let loads = AtomicUsize::new(0);
    let together = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                together.wait();
                let pin = key.get_or_load(|_| {
                    loads.fetch_add(1, Ordering::Relaxed);
                    Ok::<u64, String>(7)
                });
                assert_eq!(*pin.expect("it fits"), 7);
                together.wait();
            });
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 1);
    assert_eq!(held(&ledger), 8, "it stays for the next one");
    let usage = &ledger.snapshot().residencies[0];
    assert_eq!((usage.stand, usage.pins, usage.loads, usage.evictions), (ResidencyStand::Resident, 0, 1, 0));
}

/// Looks at the ledger while it is dropped.
struct Watched {
    ledger: Ledger,
    seen: Arc<Mutex<Option<u64>>>,
    _buffer: Option<Charged<Vec<u8>>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Under the ledger's lock this would never return.
        *self.seen.lock().expect("no panic") = Some(held(&self.ledger));
    }
}

#[test]
fn bytes_come_back_after_the_evicted_memory_is_gone_and_never_under_the_lock() {
    let ledger = ledger(10);
    let key: Residency<Watched> = residency(&ledger, "key", 8);
    let seen = Arc::new(Mutex::new(None));
    let Got::Vacant(mut vacant) = key.get().wait().expect("it fits") else { panic!("nothing is there") };
    let buffer = vacant.vec::<u8>(5).expect("it is paid for");
    drop(vacant.fill(Watched { ledger: ledger.clone(), seen: seen.clone(), _buffer: Some(buffer) }).unwrap());
    let scratch = ledger.reserve(SCRATCH, Bytes(9)).wait().expect("it is evicted");
    assert_eq!(*seen.lock().expect("no panic"), Some(8), "all of it counts while it is dropped");
    assert_eq!(held(&ledger), 9);
    drop(scratch);
    assert_eq!(ledger.snapshot().residencies[0].evictions, 1);
    assert!(ledger.snapshot().is_empty());
}

/// Says which thread drops it.
struct Leaves(std::sync::mpsc::Sender<thread::ThreadId>, Ledger);

impl Drop for Leaves {
    fn drop(&mut self) {
        assert_eq!(self.1.snapshot().reaping.len(), 1, "what is being dropped is seen");
        self.0.send(thread::current().id()).expect("the test waits for it");
    }
}

#[test]
fn what_is_large_is_dropped_by_the_reaper_when_it_is_evicted() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10 << 20)));
    let key: Residency<Leaves> = ledger.residency("key", KEYS, Bytes(8 << 20), SECOND).expect("it has a limit");
    let (sender, dropped_by) = std::sync::mpsc::channel();
    load(&key, Leaves(sender, ledger.clone()));
    let scratch = ledger.reserve(SCRATCH, Bytes(9 << 20)).wait().expect("it is evicted");
    assert_ne!(dropped_by.recv(), Ok(thread::current().id()), "whose event evicts does not drop it");
    assert_eq!(held(&ledger), 9 << 20, "its bytes came back after that");
    drop(scratch);
    ledger.quiesce(60 * SECOND).expect("nothing else is held");
    let snapshot = ledger.snapshot();
    assert_eq!((snapshot.reaped, snapshot.reap_panics, snapshot.residencies[0].evictions), (1, 0, 1));
}

#[test]
fn what_is_pinned_stays() {
    let ledger = ledger(10);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    let pin = key.get_or_load(|_| Ok::<u64, String>(7)).expect("it fits");
    assert!(ledger.reserve(SCRATCH, Bytes(3)).try_now().is_err());
    let mut waits = pin!(ledger.reserve(SCRATCH, Bytes(3)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    assert_eq!((*pin, key.is_resident()), (7, true));
    drop(pin);
    assert!(waits.as_mut().poll(&mut cx).is_ready(), "it goes as soon as nobody pins it");
    assert!(!key.is_resident());
}

#[test]
fn what_is_cheap_to_load_again_goes_first_and_of_equals_what_was_not_used_for_longest() {
    let ledger = ledger(12);
    let dear: Residency<u64> = ledger.residency("dear", KEYS, Bytes(4), 1_000_000 * SECOND).expect("it has a limit");
    let [old, new] = ["old", "new"].map(|name| residency::<u64>(&ledger, name, 4));
    for key in [&dear, &old, &new] {
        load(key, 7);
    }
    let there = || [&dear, &old, &new].map(Residency::is_resident);
    drop(ledger.reserve(SCRATCH, Bytes(1)).wait().expect("one goes"));
    assert_eq!(there(), [true, false, true]);
    drop(ledger.reserve(SCRATCH, Bytes(8)).wait().expect("another one goes"));
    assert_eq!(there(), [true, false, false]);
}

#[test]
fn no_more_is_evicted_than_is_needed() {
    let ledger = ledger(12);
    let [small, large] = [("small", 2), ("large", 8)].map(|(name, bytes)| residency::<u64>(&ledger, name, bytes));
    load(&small, 7);
    load(&large, 7);
    drop(ledger.reserve(SCRATCH, Bytes(10)).wait().expect("the large one is enough"));
    assert_eq!([small.is_resident(), large.is_resident()], [true, false]);
}

#[test]
fn a_load_that_is_given_up_is_taken_over() {
    let ledger = ledger(10);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    let Got::Vacant(mut first) = key.get().wait().expect("it fits") else { panic!("nothing is there") };
    let buffer = first.vec::<u8>(3).expect("it is paid for");
    let mut cx = Context::from_waker(Waker::noop());
    let mut urgent = pin!(key.get().priority(1));
    let mut other = pin!(key.get());
    assert!(other.as_mut().poll(&mut cx).is_pending());
    assert!(urgent.as_mut().poll(&mut cx).is_pending());
    assert_eq!(first.priority(), 1, "it is the load of all who wait");
    drop(first);
    assert!(urgent.as_mut().poll(&mut cx).is_pending(), "what the first one made is not gone yet");
    drop(buffer);
    assert!(other.as_mut().poll(&mut cx).is_pending());
    let Poll::Ready(Ok(Got::Vacant(second))) = urgent.as_mut().poll(&mut cx) else { panic!("the urgent one is next") };
    assert_eq!(second.left(), Bytes(8));
    let pin = second.fill(7).unwrap();
    let Poll::Ready(Ok(Got::Pinned(same))) = other.as_mut().poll(&mut cx) else { panic!("it is there") };
    assert_eq!((*pin, *same), (7, 7));
}

#[test]
fn a_request_that_is_dropped_leaves_its_load_to_the_next() {
    let ledger = ledger(10);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    let mut cx = Context::from_waker(Waker::noop());
    let profile = stage(1);
    let mut job = ledger.submit(JobSpec::new("job", profile).needs(&key)).expect("it fits");
    // The load falls to the job, which does not take it.
    let asked = ledger.submit(JobSpec::new("other", stage(1)).needs(&key));
    let mut other = asked.expect("it fits");
    let load = match job.poll_load(&mut cx) {
        Poll::Ready(Ok(Some(load))) => load,
        other => panic!("it falls to the first: {other:?}"),
    };
    assert!(other.poll_load(&mut cx).is_pending());
    drop(job);
    assert!(other.poll_load(&mut cx).is_pending(), "the load goes on without its job");
    drop(load);
    let Poll::Ready(Ok(Some(load))) = other.poll_load(&mut cx) else { panic!("it is taken over") };
    load.of(&key).expect("it needs nothing else").fill(7).expect("it is wanted");
    assert!(matches!(other.poll_load(&mut cx), Poll::Ready(Ok(None))));
    let grant = other.enter(0).try_now().expect("it was granted");
    assert_eq!(grant.pinned(&key), Some(&7));
}

#[test]
fn a_failed_load_is_told_to_all_who_wait() {
    let ledger = ledger(10);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    let Got::Vacant(vacant) = key.get().wait().expect("it fits") else { panic!("nothing is there") };
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits = pin!(key.get());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    vacant.fail("the file is truncated");
    let Poll::Ready(Err(error)) = waits.as_mut().poll(&mut cx) else { panic!("it has failed") };
    assert!(matches!(&error, EnterError::LoadFailed { residency, .. } if &**residency == "key"));
    assert!(error.to_string().contains("the file is truncated"), "{error}");
    assert!(ledger.snapshot().is_empty());
    let again = key.get_or_load(|_| Ok::<u64, String>(7));
    assert_eq!(*again.expect("later ones try again"), 7);
}

#[test]
fn a_loads_own_error_comes_back_and_leaves_nothing_held() {
    let ledger = ledger(10);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    let failed = key.get_or_load(|_| Err("no such file"));
    assert_eq!(failed.map(|pin| *pin), Err(GetError::Load("no such file")));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_job_loads_what_it_needs_and_reads_it_in_its_stages() {
    let ledger = ledger(20);
    let [points, matrix] = ["points", "matrix"].map(|name| residency::<u64>(&ledger, name, 8));
    let profile = stage(2).stage("finish", Demand::new().bytes(SCRATCH, Bytes(1)), Demand::new());
    let mut job = ledger.submit(JobSpec::new("job", profile).needs(&points).needs(&matrix)).expect("it fits");
    let mut loaded = Vec::new();
    while let Some(load) = job.load().wait().expect("it fits") {
        loaded.push(load.name().to_owned());
        match load.of(&points) {
            Ok(load) => load.fill(1).expect("it is wanted"),
            Err(other) => other.of(&matrix).expect("it needs nothing else").fill(2).expect("it is wanted"),
        }
    }
    loaded.sort();
    assert_eq!(loaded, ["matrix", "points"]);
    for stage in 0..2 {
        let grant = job.enter(stage).wait().expect("it is in flight");
        assert_eq!((grant.pinned(&points), grant.pinned(&matrix)), (Some(&1), Some(&2)));
    }
    let pins = |ledger: &Ledger| ledger.snapshot().residencies.iter().map(|usage| usage.pins).collect::<Vec<_>>();
    assert_eq!(pins(&ledger), [1, 1]);
    drop(job);
    assert_eq!(pins(&ledger), [0, 0]);
    // The next one has nothing to load.
    let mut job = ledger.submit(JobSpec::new("job", stage(2)).needs(&points)).expect("it fits");
    assert!(job.load().try_now().expect("it is there").is_none());
    assert_eq!(job.enter(0).try_now().expect("it was granted").pinned(&points), Some(&1));
}

#[test]
fn a_job_goes_where_what_it_needs_is_unless_that_place_is_taken() {
    let devices = [0, 1, 2];
    let ledger = Ledger::new(devices.iter().fold(Budget::new(), |budget, at| budget.device(*at, Bytes(10), 1)));
    let key = |device| {
        ledger.residency::<u16>("key", Class::new("key", Space::device(device)), Bytes(4), SECOND).expect("named")
    };
    let keys = devices.map(key);
    load(&keys[1], 1);
    load(&keys[2], 2);
    let on = |device| Profile::new().stage("prove", Demand::new().on_lease(device), Demand::new());
    let job = |name| {
        let spec = JobSpec::new(name, on(0)).needing(&keys[0]).or(on(1)).needing(&keys[1]).or(on(2)).needing(&keys[2]);
        ledger.submit(spec).expect("it fits")
    };
    // By preference, the second and the third device, for theirs are there; then the first, where it must be loaded.
    let (mut first, mut second, mut third) = (job("first"), job("second"), job("third"));
    let on_second = first.enter(0).try_now().expect("it is there");
    let on_third = second.enter(0).try_now().expect("it is there");
    assert_eq!((on_second.lane(), on_third.lane()), (Some(1), Some(2)));
    let to_load = third.load().wait().expect("the first device is free").expect("its key is not there");
    to_load.of(&keys[0]).expect("it needs that one").fill(0).expect("it waits for it");
    assert_eq!(third.enter(0).wait().expect("it is there").lane(), Some(0));
    drop((on_second, on_third, first, second, third));
    // Now all have theirs, and preference is all that counts; a way that needs nothing keeps its turn.
    assert_eq!(job("fourth").enter(0).try_now().expect("free").lane(), Some(0));
    let spec = JobSpec::new("by preference without", on(1)).or(on(2)).needing(&keys[2]);
    assert_eq!(ledger.submit(spec).expect("it fits").enter(0).try_now().expect("free").lane(), Some(1));
}

/// A key on each of two devices, of which the first is loaded.
fn one_key_of_two() -> (Ledger, [Residency<u16>; 2]) {
    let budget = Budget::new().space(Space::HOST, Bytes(100));
    let ledger = Ledger::new([0, 1].iter().fold(budget, |budget, at| budget.device(*at, Bytes(10), 1)));
    let keys = [0, 1].map(|device| {
        let class = Class::new("key", Space::device(device));
        ledger.residency::<u16>("key", class, Bytes(4), SECOND).expect("named")
    });
    load(&keys[0], 0);
    (ledger, keys)
}

#[test]
fn who_can_go_elsewhere_does_not_join_a_load_and_is_not_refused_with_it() {
    let (ledger, keys) = one_key_of_two();
    let on = |device| Profile::new().stage("prove", Demand::new().on_lease(device), Demand::new());
    let job = |name: &str| {
        let spec = JobSpec::new(name, on(0)).needing(&keys[0]).or(on(1)).needing(&keys[1]);
        ledger.submit(spec).expect("it fits")
    };
    let [mut first, mut second, mut third, mut fourth] = ["first", "second", "third", "fourth"].map(job);
    let mut cx = Context::from_waker(Waker::noop());
    let on_first = first.enter(0).try_now().expect("its key is there");
    let Poll::Ready(Ok(Some(to_load))) = second.poll_load(&mut cx) else { panic!("the second device is free") };
    let to_load = to_load.of(&keys[1]).expect("it needs that one");
    assert!(third.poll_load(&mut cx).is_pending());
    assert!(fourth.poll_load(&mut cx).is_pending());
    // The first device is free while the key of the other is still loaded: somebody who waits goes there.
    drop((first, on_first));
    assert!(matches!(third.poll_load(&mut cx), Poll::Ready(Ok(None))), "it is bound to the load of another");
    let on_first = third.enter(0).try_now().expect("it was granted");
    assert_eq!(on_first.lane(), Some(0));
    to_load.fail("unreadable");
    assert!(matches!(second.poll_load(&mut cx), Poll::Ready(Err(EnterError::LoadFailed { .. }))));
    // Who has not joined is not told of the failure, but tries once more; and goes on when it is done.
    let Poll::Ready(Ok(Some(again))) = fourth.poll_load(&mut cx) else { panic!("nobody loads it") };
    let mut fifth = job("fifth");
    assert!(fifth.poll_load(&mut cx).is_pending());
    again.of(&keys[1]).expect("it needs that one").fill(1).expect("it waits for it");
    assert!(matches!(fourth.poll_load(&mut cx), Poll::Ready(Ok(None))), "it is there");
    let on_second = fourth.enter(0).try_now().expect("it was granted");
    assert_eq!(on_second.lane(), Some(1));
    assert!(fifth.poll_load(&mut cx).is_pending(), "both are busy");
    drop((on_second, fourth));
    assert!(matches!(fifth.poll_load(&mut cx), Poll::Ready(Ok(None))), "the end of a load calls who has waited for it");
    assert_eq!(fifth.enter(0).try_now().expect("it was granted").lane(), Some(1));
}

#[test]
fn jobs_that_begin_on_the_host_are_spread_over_the_devices_also_while_a_key_is_loaded() {
    let (ledger, keys) = one_key_of_two();
    let on = |device| {
        let host = Demand::new().bytes(SCRATCH, Bytes(1));
        Profile::new().stage("host", host, Demand::new()).stage("prove", Demand::new().on_lease(device), Demand::new())
    };
    let job = || {
        let spec = JobSpec::new("job", on(0)).needing(&keys[0]).or(on(1)).needing(&keys[1]);
        ledger.submit(spec).expect("it fits")
    };
    let mut jobs: Vec<_> = (0..6).map(|_| job()).collect();
    let mut cx = Context::from_waker(Waker::noop());
    let mut to_load = None;
    let mut here = Vec::new();
    for (at, job) in jobs.iter_mut().enumerate() {
        match job.poll_load(&mut cx) {
            Poll::Ready(Ok(Some(load))) => to_load = Some((at, load)),
            Poll::Ready(Ok(None)) => here.push(at),
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => {}
        }
    }
    let (loader, to_load) = to_load.expect("the second one loads");
    assert_eq!((loader, here), (1, vec![0, 2, 4]));
    to_load.of(&keys[1]).expect("it needs that one").fill(1).expect("they wait for it");
    let choices: Vec<_> = jobs.iter_mut().map(|job| job.enter(0).try_now().expect("it is there").choice()).collect();
    assert_eq!(choices, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn who_goes_smaller_leaves_the_load_that_it_does_not_need_any_more() {
    let ledger = ledger(20);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    let part = stage(1);
    let way = |bytes| stage(bytes).parts(1, &part);
    let mut cx = Context::from_waker(Waker::noop());
    for is_gone in [true, false] {
        let mut job = ledger.submit(JobSpec::new("job", way(2)).needing(&key).or(way(1))).expect("it fits");
        let Poll::Ready(Ok(Some(to_load))) = job.poll_load(&mut cx) else { panic!("it is free") };
        let mut to_load = to_load.of(&key).expect("it needs that one");
        let mut made = Some(to_load.vec::<u8>(3).expect("it is paid for"));
        // For its part, it stays in flight without a request.
        let part = ledger.submit(JobSpec::new("part", part.clone()).part_of(&job)).expect("it fits");
        job.cancel_enter();
        drop((part, to_load));
        // For want of another the load falls to it again.
        made.take_if(|_| is_gone);
        assert!(job.go_smaller(), "by the way that needs nothing");
        drop((job, made));
        assert!(ledger.snapshot().is_empty(), "{:?}", ledger.snapshot().holders);
        assert!(matches!(key.get().try_now(), Ok(Got::Vacant(_))), "the load falls to somebody who has ended");
    }
}

#[test]
fn a_job_that_asks_for_its_stage_is_told_to_load_first() {
    let ledger = ledger(10);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    let mut job = ledger.submit(JobSpec::new("job", stage(1)).needs(&key)).expect("it fits");
    let error = job.enter(0).wait().expect_err("nothing is loaded");
    assert!(matches!(&error, EnterError::NotLoaded { residency, .. } if &**residency == "key"), "{error}");
    assert!(ledger.snapshot().is_empty(), "the load is left to others");
    assert!(matches!(job.enter(0).try_now(), Err(EnterError::WouldWait(_))));
}

#[test]
fn a_request_that_can_never_be_served_beside_what_it_needs_is_refused() {
    let ledger = ledger(10);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    assert!(ledger.submit(JobSpec::new("job", stage(2)).needs(&key)).is_ok());
    assert!(ledger.submit(JobSpec::new("job", stage(3)).needs(&key)).is_err());
    let large: Residency<u64> = residency(&ledger, "large", 11);
    assert!(matches!(large.get().wait(), Err(EnterError::NeverFits(_))));
}

#[test]
fn a_load_that_nobody_waits_for_makes_room() {
    let ledger = ledger(10);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    let mut job = ledger.submit(JobSpec::new("job", stage(1)).needs(&key)).expect("it fits");
    let load = job.load().wait().expect("it fits").expect("it falls to the job").of(&key).expect("it needs only that");
    drop(job);
    let mut scratch = pin!(ledger.reserve(SCRATCH, Bytes(5)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(scratch.as_mut().poll(&mut cx).is_pending(), "the loader still has the memory");
    let unwanted = load.fill(7).expect_err("its room is needed");
    assert_eq!(unwanted.value, 7);
    assert!(scratch.as_mut().poll(&mut cx).is_pending());
    drop(unwanted);
    assert!(scratch.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn a_lower_limit_evicts_what_nobody_pins() {
    let ledger = ledger(10);
    let [one, other] = ["one", "other"].map(|name| residency::<u64>(&ledger, name, 4));
    load(&one, 7);
    let pin = other.get_or_load(|_| Ok::<u64, String>(7)).expect("it fits");
    ledger.resize(Space::HOST, Bytes(6)).expect("it has a limit");
    assert_eq!([one.is_resident(), other.is_resident()], [false, true]);
    assert_eq!(ledger.snapshot().space(Space::HOST).expect("it has a limit").limit, Bytes(6));
    drop(pin);
}

#[test]
fn a_closed_ledger_and_a_dropped_handle_keep_nothing() {
    let ledger = ledger(10);
    let [one, other] = ["one", "other"].map(|name| residency::<u64>(&ledger, name, 4));
    load(&one, 7);
    let pin = other.get_or_load(|_| Ok::<u64, String>(7)).expect("it fits");
    drop(one);
    assert_eq!(held(&ledger), 4, "nobody can ask for it any more");
    ledger.close();
    assert_eq!(held(&ledger), 4);
    drop(pin);
    assert!(ledger.snapshot().is_empty());
    assert!(matches!(other.get().wait(), Err(EnterError::Closed { .. })));
}

#[test]
fn a_destructor_that_panics_returns_its_bytes_all_the_same() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    let ledger = ledger(10);
    let key: Residency<Bad> = residency(&ledger, "key", 8);
    load(&key, Bad);
    drop(ledger.reserve(SCRATCH, Bytes(9)).wait().expect("whoever made the room needed goes on"));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_wait_for_a_load_says_so() {
    let ledger = ledger(10);
    let key: Residency<u64> = residency(&ledger, "key", 8);
    let mut first = ledger.submit(JobSpec::new("first", stage(1)).needs(&key)).expect("it fits");
    let load = first.load().wait().expect("it fits").expect("it falls to the first");
    let mut other = ledger.submit(JobSpec::new("other", stage(1)).needs(&key)).expect("it fits");
    let mut cx = Context::from_waker(Waker::noop());
    assert!(other.poll_load(&mut cx).is_pending());
    let snapshot = ledger.snapshot();
    let waiter = snapshot.waiters.iter().find(|waiter| &*waiter.shortage.who == "other").expect("it waits");
    let Reason::Loading { residency, loader } = &waiter.shortage.reason else { panic!("{:?}", waiter.shortage) };
    assert_eq!((&**residency, loader.as_deref()), ("key", Some("first")));
    let stall = ledger.stall(Duration::ZERO).expect("it waits").to_string();
    assert!(stall.contains(r#"it waits for "key", which "first" loads"#), "{stall}");
    drop(load);
}

#[test]
fn observers_are_told_of_loads_and_evictions() {
    #[derive(Default)]
    struct Words(Mutex<Vec<&'static str>>);
    impl Observer for Words {
        fn event(&self, event: &Event) {
            let of_key = event.subject.as_ref().is_some_and(|subject| &*subject.name == "key" && !subject.is_job);
            if of_key && !matches!(event.what, What::Changed { .. }) {
                self.0.lock().expect("no panic").push(event.what.name());
            }
        }
    }
    let ledger = ledger(10);
    let words = Arc::new(Words::default());
    ledger.observe(words.clone());
    let key: Residency<u64> = residency(&ledger, "key", 8);
    drop(key.get().wait());
    load(&key, 7);
    drop(ledger.reserve(SCRATCH, Bytes(9)).wait());
    let words = words.0.lock().expect("no panic").clone();
    assert_eq!(
        words,
        ["load_started", "load_failed", "evicted", "load_started", "loaded", "eviction_started", "evicted"]
    );
}
