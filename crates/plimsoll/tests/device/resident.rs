//! Keys that are resident on a device: jobs prefer the device that has theirs, and several use it at once.

use std::sync::Arc;
use std::time::Duration;

use plimsoll::device::simulate::{Faults, Simulated};
use plimsoll::device::{DeviceError, Staged};
use plimsoll::ledger::Residency;
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
