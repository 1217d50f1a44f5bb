//! Keys that are resident on a device: jobs prefer the device that has theirs, and several use it at once.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use plimsoll::device::simulate::{Faults, Simulated, SimulatedLane, SimulatedMemory};
use plimsoll::device::{DeviceError, DriverError, DriverLane, Staged};
use plimsoll::ledger::Residency;
use plimsoll::pipeline::{JobError, Pacing, Pipeline, Retry};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Bytes, Class, Demand, JobSpec, Profile, Space};

use crate::several::Cards;
use crate::support::{MS, input, scratch, submit};

type Key = Arc<Staged<Simulated>>;

const KEY_BYTES: u64 = 20;

fn key_class(device: u16) -> Class {
    Class::new("device.key", Space::device(device))
}

fn keys(cards: &Cards) -> Vec<Residency<Key>> {
    let key = |device: u16| {
        let residency = cards.ledger.residency("key", key_class(device), Bytes(KEY_BYTES), Duration::from_secs(15));
        residency.expect("it fits")
    };
    (0..cards.cards.len() as u16).map(key).collect()
}

/// Runs a job where its key is, or else where it can be loaded. Which device it was.
fn run(cards: &Cards, keys: &[Residency<Key>]) -> u16 {
    let number = cards.set.preferred(|device| keys[device as usize].is_resident())[0];
    let (key, device) = (&keys[number as usize], cards.set.device(number).unwrap());
    let peak = Demand::new().on_lease(number).bytes(scratch(number), Bytes(10));
    let profile = Profile::new().stage("compute", peak, Demand::new());
    let mut job = cards.ledger.submit(JobSpec::new("job", profile).needs(key)).unwrap();
    while let Some(load) = job.load().wait().unwrap() {
        let mut load = load.of(key).expect("the job needs nothing else");
        // The bytes are the key's; what the loading needs of its own is a lane.
        let mut loader =
            submit(&cards.ledger, "loader", Profile::new().stage("load", Demand::new().on_lane(number), Demand::new()));
        let bytes = load.take(Bytes(KEY_BYTES)).unwrap();
        let stage = device.stage(loader.enter(0).wait().unwrap(), move |cx| {
            let mut buffer = cx.allocate_for(bytes).map_err(|(error, _)| error)?;
            cx.copy_in(&[7; KEY_BYTES as usize], &mut buffer, 0)?;
            Ok::<_, DeviceError>(Arc::new(cx.keep(buffer)))
        });
        load.fill(stage.wait().unwrap()).expect("this job waits for it");
    }
    let grant = job.enter(0).wait().unwrap();
    let key: Key = grant.pinned(key).expect("the job needs it").clone();
    let compute = device.compute(grant, move |cx| {
        let memory = cx.lend(&key)?;
        let out = cx.allocate(scratch(number), Bytes(10))?;
        let kernel = || out.memory().write(|out| *out = vec![memory.read(|key| key[0])]);
        cx.call(|lane| lane.kernel(MS, &[memory, out.memory()], kernel))?;
        let mut host = [0];
        cx.copy_out(&out, 0, &mut host)?;
        Ok::<_, DeviceError>(host[0])
    });
    assert_eq!(compute.wait().unwrap(), 7);
    number
}

#[test]
fn jobs_go_where_their_key_is_resident() {
    let cards = Cards::new(40, &[Faults::default(), Faults::default()]);
    let keys = keys(&cards);
    let first = run(&cards, &keys);
    let later: Vec<u16> = (0..6).map(|_| run(&cards, &keys)).collect();
    assert_eq!(later, [first; 6]);
    let [here, there] = [first, 1 - first].map(|number| cards.cards[number as usize].stats());
    // Seven workspaces and one key, which stays.
    assert_eq!((here.allocations, there.allocations, here.allocated_bytes), (8, 0, Bytes(KEY_BYTES)));
}

#[test]
fn a_key_is_loaded_again_where_the_jobs_go_when_its_device_is_lost() {
    let cards = Cards::new(40, &[Faults::default(), Faults::default()]);
    let keys = keys(&cards);
    let first = run(&cards, &keys);
    cards.set.device(first).unwrap().give_up("pulled out");
    assert_eq!(run(&cards, &keys), 1 - first);
    assert_eq!(run(&cards, &keys), 1 - first);
    drop(keys);
    cards.assert_clean();
}

#[test]
fn an_idle_key_makes_room_and_its_memory_is_gone_before_its_bytes_are_given_out() {
    let cards = Cards::new(40, &[Faults::default()]);
    let keys = keys(&cards);
    run(&cards, &keys);
    // All of the card, of which the key holds a half.
    let all = Demand::new().on_lane(0).bytes(input(0), Bytes(40));
    let mut job = submit(&cards.ledger, "large", Profile::new().stage("in", all, Demand::new()));
    let stage = cards.set.device(0).unwrap().stage(job.enter(0).wait().unwrap(), |cx| {
        cx.upload(input(0), &[1; 40])?;
        Ok::<_, DeviceError>(())
    });
    stage.wait().expect("the card has all of its memory free");
    let stats = cards.cards[0].stats();
    assert_eq!((stats.out_of_memory, stats.allocated_bytes_peak), (0, Bytes(40)));
    assert!(!keys[0].is_resident());
    drop((job, keys));
    cards.assert_clean();
}

/// Adds a key of its device's to a number, on whichever card, but rather where the key is. Says which card it was; `fills` counts the
/// loads of each. The first `meeting` jobs are on their cards at the same time.
fn adds(
    cards: &Cards,
    pool: &Pool,
    keys: &[Residency<Key>],
    fills: &Arc<[AtomicUsize; 2]>,
    meeting: u8,
) -> Pipeline<u8, (u16, u8), DeviceError> {
    let on = |device| {
        let peak = Demand::new().on_lease(device).bytes(scratch(device), Bytes(10));
        Profile::new().stage("add", peak, Demand::new())
    };
    let (residencies, meet) = (keys.to_vec(), Barrier::new(meeting.into()));
    let turns = [cards.set.clone(), cards.set.clone()];
    // Where they are, the ledger knows when it admits the job.
    let [first, others] = turns.map(|set| move || set.profiles(|_| false, on));
    let builder = Pipeline::builder(&cards.ledger, pool, move |_: &u8| first().swap_remove(0))
        .alternatives(move |_| others())
        .pacing(Pacing::Unpaced)
        .compute_stage("add", &cards.set, move |cx, number: u8| {
            if number < meeting {
                meet.wait();
            }
            let device = cx.device();
            let [here, there] = [device, 1 - device].map(|device| &residencies[device as usize]);
            assert!(cx.grant().pinned(there).is_none(), "what is on another device is nothing to this one");
            let key: Key = cx.grant().pinned(here).expect("its device's key is pinned").clone();
            let key = cx.lend(&key)?;
            let out = cx.allocate(scratch(device), Bytes(10))?;
            let kernel = || out.memory().write(|out| *out = vec![number + key.read(|key| key[0])]);
            cx.call(|lane| lane.kernel(MS, &[key, out.memory()], kernel))?;
            let mut host = [0];
            cx.copy_out(&out, 0, &mut host)?;
            Ok((device, host[0]))
        })
        .from_start(Retry::times(3).within(Duration::MAX))
        .failures(DeviceError::failure);
    let devices = cards.set.devices().iter().zip(keys);
    let with_keys = devices.fold(builder, |builder, (device, key)| {
        let (number, fills) = (device.number(), fills.clone());
        builder.needs_on(device, key, move |lane, memory| {
            fills[number as usize].fetch_add(1, Ordering::Relaxed);
            lane.copy_in(&[100 + number as u8; KEY_BYTES as usize], memory, 0)
        })
    });
    with_keys.build().expect("a pipeline")
}

#[test]
fn jobs_of_a_pipeline_go_where_their_key_is_while_that_device_is_free() {
    let (cards, fills) = (Cards::new(40, &[Faults::default(), Faults::default()]), Arc::default());
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).unwrap();
    let keys = keys(&cards);
    let pipeline = adds(&cards, &pool, &keys, &fills, 0);
    let run = |number| pipeline.submit("job", number).unwrap().wait().unwrap();
    let (device, _) = run(0);
    // The other one has begun fewer stages each time.
    for number in 1..5 {
        assert_eq!(run(number), (device, number + 100 + device as u8));
    }
    let mut loads = fills.each_ref().map(|fills| fills.load(Ordering::Relaxed));
    loads.sort_unstable();
    assert_eq!(loads, [0, 1]);
    drop((pipeline, keys));
    cards.assert_clean();
}

#[test]
fn jobs_of_a_pipeline_need_the_key_of_the_device_that_they_go_to() {
    let (cards, fills) = (Cards::new(40, &[Faults::default(), Faults::default()]), Arc::default());
    let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).unwrap();
    let keys = keys(&cards);
    let pipeline = adds(&cards, &pool, &keys, &fills, 2);
    let mut on = [0; 2];
    for (at, result) in pipeline.run_all((0..40).map(|at| (format!("job {at}"), at))) {
        let (device, sum) = result.unwrap();
        assert_eq!(sum, at as u8 + 100 + device as u8);
        on[device as usize] += 1;
    }
    assert!(on[0] > 0 && on[1] > 0, "{on:?}");
    assert_eq!(fills.each_ref().map(|fills| fills.load(Ordering::Relaxed)), [1, 1]);
    drop((pipeline, keys));
    cards.assert_clean();
}

#[test]
fn jobs_of_a_pipeline_go_on_with_the_other_key_when_a_device_is_lost() {
    for at in (3..40).step_by(3) {
        let lost = Faults { lost_at: Some(at), ..Faults::default() };
        let (cards, fills) = (Cards::new(40, &[lost, Faults::default()]), Arc::default());
        let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).unwrap();
        let keys = keys(&cards);
        let pipeline = adds(&cards, &pool, &keys, &fills, 0);
        for (number, result) in pipeline.run_all((0..20).map(|at| (format!("job {at}"), at))) {
            // Also those that waited for the load that the loss has ended.
            let (device, sum) = result.unwrap_or_else(|error| panic!("lost at call {at}: {error:?}"));
            assert_eq!(sum, number as u8 + 100 + device as u8);
        }
        // It may not have come to its last call: then it is gone from here on.
        cards.set.device(0).unwrap().give_up("pulled out");
        let again = pipeline.submit("after that", 1).unwrap().wait().unwrap();
        assert_eq!(again, (1, 102));
        drop((pipeline, keys));
        cards.assert_clean();
    }
}

/// An error with all that it came of.
fn in_full(error: &dyn Error) -> String {
    error.source().map_or(error.to_string(), |source| format!("{error}: {}", in_full(source)))
}

/// Adds a number to what the key of the only card says. `again` is how long it is tried to fill that where there is no room for it.
fn reads<F>(cards: &Cards, pool: &Pool, key: &Residency<Key>, again: Duration, fill: F) -> Pipeline<u8, u8, DeviceError>
where
    F: Fn(&mut SimulatedLane, &SimulatedMemory) -> Result<(), DriverError> + Send + Sync + 'static,
{
    let peak = || Demand::new().on_lease(0).bytes(scratch(0), Bytes(10));
    let read = key.clone();
    Pipeline::builder(&cards.ledger, pool, move |_: &u8| Profile::new().stage("read", peak(), Demand::new()))
        .compute_stage("read", &cards.set, move |cx, number: u8| {
            let key: Key = cx.grant().pinned(&read).expect("it is pinned").clone();
            let memory = cx.lend(&key)?;
            Ok::<_, DeviceError>(memory.read(|key| key[0]) + number)
        })
        .needs_on(cards.set.device(0).unwrap(), key, fill)
        .load_again(Retry::times(0).within(again))
        .build()
        .expect("a pipeline")
}

#[test]
fn a_key_that_cannot_be_filled_is_said_to_those_who_need_it_and_takes_nothing() {
    let (cards, attempts) = (Cards::new(40, &[Faults::default()]), Arc::new(AtomicUsize::new(0)));
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).unwrap();
    let key = keys(&cards).swap_remove(0);
    let fill = {
        let attempts = attempts.clone();
        move |lane: &mut SimulatedLane, memory: &SimulatedMemory| match attempts.fetch_add(1, Ordering::Relaxed) {
            0 => Err(DriverError::Failed { message: "a file is missing".to_owned() }),
            1 => panic!("the key panicked"),
            _ => lane.copy_in(&[7; KEY_BYTES as usize], memory, 0),
        }
    };
    let pipeline = reads(&cards, &pool, &key, Duration::ZERO, fill);
    let run = || pipeline.submit("job", 1).unwrap().wait().map_err(|error| in_full(&error));
    let takes_nothing = |neighbours: u64| {
        cards.ledger.quiesce(Duration::MAX).expect("nothing is held");
        assert_eq!(cards.cards[0].stats().allocated_bytes, Bytes(neighbours));
    };
    // Somebody else has more of the card than the ledger knows of.
    let neighbour = cards.cards[0].neighbour(Bytes(30)).expect("it is free");
    let error = run().expect_err("it has no room");
    assert!(error.contains("20 B were asked for, 10 B are free"), "{error}");
    takes_nothing(30);
    drop(neighbour);
    for why in ["a file is missing", "the key panicked"] {
        let error = run().expect_err("it was not filled");
        assert!(error.contains(why), "{error}");
        takes_nothing(0);
    }
    assert_eq!(run(), Ok(8));
    assert_eq!(attempts.load(Ordering::Relaxed), 3);
    drop((pipeline, key));
    cards.assert_clean();
}

#[test]
fn a_key_whose_job_was_cancelled_while_it_was_filled_is_there_for_the_next() {
    let (cards, fills) = (Cards::new(40, &[Faults::default()]), Arc::new(AtomicUsize::new(0)));
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).unwrap();
    let key = keys(&cards).swap_remove(0);
    let meet = Arc::new(Barrier::new(2));
    let (inside, counted) = (meet.clone(), fills.clone());
    let pipeline = reads(&cards, &pool, &key, Duration::MAX, move |lane, memory| {
        inside.wait();
        counted.fetch_add(1, Ordering::Relaxed);
        inside.wait();
        lane.copy_in(&[7; KEY_BYTES as usize], memory, 0)
    });
    let first = pipeline.submit("first", 1).unwrap();
    meet.wait();
    first.cancel();
    assert!(matches!(first.wait(), Err(JobError::Cancelled { .. })));
    let second = pipeline.submit("second", 2).unwrap();
    meet.wait();
    assert_eq!(second.wait().unwrap(), 9);
    assert_eq!(fills.load(Ordering::Relaxed), 1);
    drop((pipeline, key));
    cards.assert_clean();
}

#[test]
fn a_key_that_finds_no_memory_comes_again_until_the_neighbour_has_gone() {
    let (cards, fills) = (Cards::new(40, &[Faults::default()]), Arc::new(AtomicUsize::new(0)));
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).unwrap();
    let key = keys(&cards).swap_remove(0);
    let counted = fills.clone();
    let pipeline = reads(&cards, &pool, &key, Duration::MAX, move |lane, memory| {
        counted.fetch_add(1, Ordering::Relaxed);
        lane.copy_in(&[7; KEY_BYTES as usize], memory, 0)
    });
    let neighbour = cards.cards[0].neighbour(Bytes(30)).expect("it is free");
    let jobs: Vec<_> = (1..4).map(|number| pipeline.submit("job", number).unwrap()).collect();
    // One that gives up meanwhile keeps nobody from the key.
    while cards.cards[0].stats().out_of_memory < 2 {
        std::thread::yield_now();
    }
    assert_eq!(pool.install(|| 7), 7, "no worker waits");
    jobs[0].cancel();
    while cards.cards[0].stats().out_of_memory < 4 {
        std::thread::yield_now();
    }
    assert_eq!(cards.cards[0].stats().allocated_bytes, Bytes(30));
    drop(neighbour);
    let mut ended = jobs.into_iter().map(|job| job.wait());
    assert!(matches!(ended.next(), Some(Err(JobError::Cancelled { .. }))));
    assert!(ended.map(Result::unwrap).eq([9, 10]));
    assert_eq!(fills.load(Ordering::Relaxed), 1);
    drop((pipeline, key));
    cards.assert_clean();
}

#[test]
fn who_has_a_plan_without_the_key_goes_by_it_when_there_is_no_memory_for_that_for_too_long() {
    for again in [Duration::ZERO, Duration::from_millis(5)] {
        let cards = Cards::new(40, &[Faults::default()]);
        let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).unwrap();
        let key = keys(&cards).swap_remove(0);
        let read = key.clone();
        let one = |peak| Profile::new().stage("add", peak, Demand::new());
        let on_card = move || one(Demand::new().on_lease(0).bytes(scratch(0), Bytes(10)));
        let pipeline = Pipeline::builder(&cards.ledger, &pool, move |_: &u8| on_card())
            // The one of the two that is possible says by which number it was granted.
            .alternatives(move |_| vec![one(Demand::new().on_lease(9)), one(Demand::new())])
            .compute_stage_or(
                "add",
                &cards.set,
                move |cx, number: u8| {
                    let key: Key = cx.grant().pinned(&read).expect("it is pinned").clone();
                    let memory = cx.lend(&key)?;
                    Ok::<_, DeviceError>((cx.grant().choice(), number + memory.read(|key| key[0])))
                },
                |cx, number| Ok((cx.grant().choice(), number)),
            )
            .needs_on(cards.set.device(0).unwrap(), &key, |lane, memory| {
                lane.copy_in(&[7; KEY_BYTES as usize], memory, 0)
            })
            .load_again(Retry::times(0).within(again))
            .pacing(Pacing::Unpaced)
            .build()
            .expect("a pipeline");
        let neighbour = cards.cards[0].neighbour(Bytes(30)).expect("it is free");
        let jobs: Vec<_> = (1..4).map(|number| pipeline.submit("job", number).unwrap()).collect();
        assert!(jobs.into_iter().map(|job| job.wait().unwrap()).eq([(2, 1), (2, 2), (2, 3)]));
        assert!(cards.cards[0].stats().out_of_memory >= if again.is_zero() { 1 } else { 2 });
        drop(neighbour);
        // The next one finds room for it.
        assert_eq!(pipeline.submit("after", 1).unwrap().wait().unwrap(), (0, 8));
        drop((pipeline, key));
        cards.assert_clean();
    }
}
