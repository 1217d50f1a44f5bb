//! Several devices: jobs go to whichever is free, and on when one is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, mpsc};

use plimsoll::device::simulate::{CardSpec, Faults, Simulated};
use plimsoll::device::{Device, DeviceConfig, DeviceError, DeviceSet, StageError};
use plimsoll::ledger::EnterError;
use plimsoll::{Budget, Bytes, Job, JobSpec, Ledger, Space};

use crate::support::{MS, input, scratch, two_stages};

pub(crate) struct Cards {
    pub(crate) ledger: Ledger,
    pub(crate) cards: Vec<Simulated>,
    pub(crate) set: DeviceSet<Simulated>,
}

impl Cards {
    pub(crate) fn new(memory: u64, faults: &[Faults]) -> Cards {
        let numbers = 0..faults.len() as u16;
        let budget = numbers.clone().fold(Budget::new(), |budget, number| budget.device(number, Bytes(memory), 2));
        let ledger = Ledger::new(budget);
        let cards: Vec<_> = faults
            .iter()
            .map(|faults| {
                let faults = faults.clone();
                Simulated::new(CardSpec { memory: Bytes(memory), faults, ..CardSpec::default() })
            })
            .collect();
        let start = |number: u16| {
            let card = cards[number as usize].clone();
            Device::start(number, card, &ledger, DeviceConfig::default()).expect("a device")
        };
        let set = DeviceSet::new(numbers.map(start));
        Cards { ledger, cards, set }
    }

    fn submit(&self, name: &str) -> Result<Job, plimsoll::ledger::SubmitError> {
        let mut profiles = self.set.profiles(|_| false, |device| two_stages(device, 10, 10)).into_iter();
        let first = profiles.next().expect("there is one in any case");
        self.ledger.submit(profiles.fold(JobSpec::new(name, first), JobSpec::or))
    }

    /// Runs a job on whichever device it is granted, from its start again when that is lost. Which device it was.
    fn run(&self, name: &str) -> Result<u16, String> {
        let mut job = self.submit(name).map_err(|error| error.to_string())?;
        loop {
            match self.try_once(&mut job) {
                Ok(device) => return Ok(device),
                Err(Failed::Lost) => job.restart().expect("it holds nothing any more"),
                Err(Failed::ForGood(error)) => return Err(error),
            }
        }
    }

    fn try_once(&self, job: &mut Job) -> Result<u16, Failed> {
        let grant = job.enter(0).wait().map_err(Failed::of_entering_first)?;
        let number = grant.lane().expect("it runs on a lane");
        let device = self.set.device(number).expect("a device of the set");
        let staged = device.stage(grant, move |cx| {
            let buffer = cx.upload(input(number), &[1; 10])?;
            Ok::<_, DeviceError>(cx.keep(buffer))
        });
        let staged = staged.wait().map_err(Failed::of_stage)?;
        let grant = match job.enter(1).wait() {
            Ok(grant) => grant,
            Err(EnterError::Lost(_)) => return Err(Failed::Lost),
            Err(error) => return Err(Failed::ForGood(error.to_string())),
        };
        // A job stays where its inputs are, unless they are nowhere any more.
        let other = grant.lane() != Some(number);
        assert!(!other || device.loss().is_some(), "from {number} to {:?}", grant.lane());
        let number = grant.lane().expect("it runs on a lane");
        let device = self.set.device(number).expect("a device of the set");
        let compute = device.compute(grant, move |cx| {
            let memory = cx.lend(&staged)?;
            let workspace = cx.allocate(scratch(number), Bytes(10))?;
            cx.call(|lane| lane.kernel(MS, &[memory, workspace.memory()], || ()))
        });
        compute.wait().map_err(Failed::of_stage)?;
        Ok(number)
    }

    pub(crate) fn assert_clean(&self) {
        for (number, card) in self.cards.iter().enumerate() {
            let stats = card.stats();
            assert_eq!((stats.allocated_bytes, stats.freed_in_use), (Bytes::ZERO, 0), "card {number}");
            let known =
                self.ledger.snapshot().space(Space::device(number as u16)).map_or(Bytes::ZERO, |usage| usage.peak);
            assert!(stats.allocated_bytes_peak <= known, "card {number}: {stats:?}, of which the ledger knew {known}");
        }
        let snapshot = self.ledger.snapshot();
        assert!(snapshot.is_empty(), "{snapshot:?}");
    }
}

enum Failed {
    Lost,
    ForGood(String),
}

impl Failed {
    fn of_stage(error: StageError<DeviceError>) -> Failed {
        match error {
            StageError::Device(error) | StageError::Stage(error) if error.is_lost() => Failed::Lost,
            other => Failed::ForGood(format!("{other:?}")),
        }
    }

    fn of_entering_first(error: EnterError) -> Failed {
        Failed::ForGood(error.to_string())
    }
}

/// Runs jobs from several threads; which device each ended on.
fn run_batch(cards: &Arc<Cards>, jobs: usize) -> Vec<Result<u16, String>> {
    let (sender, results) = mpsc::channel();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let (cards, sender) = (cards.clone(), sender.clone());
            let work = move || {
                for at in (thread..jobs).step_by(4) {
                    sender.send(cards.run(&format!("job {at}"))).unwrap();
                }
            };
            std::thread::Builder::new().spawn(work).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    results.try_iter().collect()
}

#[test]
fn a_job_takes_the_device_that_is_free() {
    let cards = Cards::new(40, &[Faults::default(), Faults::default()]);
    let mut jobs = ["a", "b"].map(|name| cards.submit(name).unwrap());
    // Each holds what it was granted: there is room for one more on the other device alone, whatever it prefers.
    let grants = jobs.each_mut().map(|job| job.enter(0).wait().unwrap());
    let taken = grants.each_ref().map(|grant| grant.lane().unwrap());
    assert!(taken == [0, 1] || taken == [1, 0], "in turn: {taken:?}");
    let mut third = cards.submit("c").unwrap();
    let mut fourth = cards.submit("d").unwrap();
    let [first, _second] = grants;
    let third_grant = third.enter(0).wait().unwrap();
    let fourth_grant = fourth.enter(0).wait().unwrap();
    let more = [third_grant.lane().unwrap(), fourth_grant.lane().unwrap()];
    assert!(more == [0, 1] || more == [1, 0], "{more:?}");
    // All four lanes are taken. Whoever comes next gets the lane that comes back.
    let back = first.lane();
    let mut fifth = cards.submit("e").unwrap();
    drop(first);
    assert_eq!(fifth.enter(0).wait().unwrap().lane(), back);
}

#[test]
fn two_devices_compute_at_the_same_time() {
    let cards = Cards::new(40, &[Faults::default(), Faults::default()]);
    let both = Arc::new(Barrier::new(2));
    let mut jobs = ["a", "b"].map(|name| cards.submit(name).unwrap());
    let computing = jobs.each_mut().map(|job| {
        // Stages may be left out: nothing is staged in.
        let grant = job.enter(1).wait().unwrap();
        let both = both.clone();
        let device = cards.set.device(grant.lane().unwrap()).unwrap();
        device.compute(grant, move |_| {
            both.wait();
            Ok::<_, ()>(())
        })
    });
    for compute in computing {
        compute.wait().unwrap();
    }
}

#[test]
fn a_batch_is_spread_over_the_devices() {
    let cards = Arc::new(Cards::new(40, &[Faults::default(), Faults::default()]));
    let results = run_batch(&cards, 40);
    let mut on: BTreeMap<u16, usize> = BTreeMap::new();
    for device in results {
        *on.entry(device.unwrap()).or_default() += 1;
    }
    assert_eq!(on.values().sum::<usize>(), 40);
    assert!(on.len() == 2 && on.values().all(|jobs| *jobs >= 5), "{on:?}");
    cards.assert_clean();
}

#[test]
fn a_device_lost_in_the_middle_leaves_its_jobs_to_the_other() {
    // Early, in the middle, and late: each call of the driver is a moment at which a card may go.
    for at in (3..60).step_by(3) {
        let lost = Faults { lost_at: Some(at), ..Faults::default() };
        let cards = Arc::new(Cards::new(40, &[lost, Faults::default()]));
        let results = run_batch(&cards, 20);
        assert_eq!(results.len(), 20);
        assert!(results.iter().all(Result::is_ok), "lost at call {at}: {results:?}");
        cards.assert_clean();
        if let [loss] = &cards.set.losses()[..] {
            assert_eq!(loss.device, 0);
            assert_eq!(cards.set.preferred(|_| true), [1], "it is not asked for any more");
        }
    }
}

#[test]
fn jobs_fail_with_a_reason_when_the_last_device_is_lost() {
    let lost = |at| Faults { lost_at: Some(at), ..Faults::default() };
    let cards = Arc::new(Cards::new(40, &[lost(12), lost(17)]));
    let results = run_batch(&cards, 20);
    assert_eq!(cards.set.losses().len(), 2);
    let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(errors.len() >= 10, "two cards of so few calls run few jobs: {errors:?}");
    assert!(errors.iter().all(|error| error.contains("lost")), "{errors:?}");
    cards.assert_clean();
}

#[test]
fn a_neighbour_on_one_card_sends_nobody_astray() {
    let cards = Arc::new(Cards::new(40, &[Faults::default(), Faults::default()]));
    let neighbour = cards.cards[0].neighbour(Bytes(35)).unwrap();
    let results = run_batch(&cards, 8);
    let failed = results.iter().filter(|result| result.is_err()).count();
    assert!(failed > 0 && failed < 8, "those on the first card: {results:?}");
    assert!(results.iter().flat_map(|result| result.as_ref().err()).all(|error| error.contains("OutOfMemory")));
    drop(neighbour);
    assert!(run_batch(&cards, 8).iter().all(Result::is_ok));
    assert!(cards.set.losses().is_empty());
    let stats = cards.cards[0].stats();
    assert_eq!((stats.allocated_bytes, stats.freed_in_use), (Bytes::ZERO, 0));
    assert!(cards.ledger.snapshot().is_empty());
}
