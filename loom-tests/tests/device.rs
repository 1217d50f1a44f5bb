//! The lanes and the lease of a device, as shipped, on a simulated card.
#![cfg(plimsoll_loom)]

use loom_tests::check_at_most;
use plimsoll::device::simulate::{CardSpec, Faults, Simulated};
use plimsoll::device::{Device, DeviceConfig, DeviceError, StageError};
use plimsoll::{Budget, Bytes, Class, Demand, Job, JobSpec, Ledger, Profile, Space};

const SCRATCH: Class = Class::new("device.scratch", Space::device(0));

/// Three threads and as many locks: two preemptions, or it would take minutes.
fn check(model: impl Fn() + Sync + Send + 'static) {
    check_at_most(2, model);
}

fn card(faults: Faults) -> Simulated {
    Simulated::new(CardSpec { memory: Bytes(2), faults, ..CardSpec::default() })
}

fn start(ledger: &Ledger, card: &Simulated, lanes: usize) -> Device<Simulated> {
    let config = DeviceConfig { lanes, ..DeviceConfig::default() };
    Device::start(0, card.clone(), ledger, config).expect("a device")
}

/// A job that computes with one byte of workspace.
fn job(ledger: &Ledger) -> Job {
    let peak = Demand::new().on_lease(0).bytes(SCRATCH, Bytes(1));
    ledger.submit(JobSpec::new("job", Profile::new().stage("compute", peak, Demand::new()))).expect("it fits")
}

/// There is memory for both, and one lease.
#[test]
fn the_next_to_compute_finds_the_memory_free() {
    check(|| {
        let ledger = Ledger::new(Budget::new().device(0, Bytes(2), 2));
        let card = card(Faults::default());
        let device = start(&ledger, &card, 2);
        let (mut first, mut second) = (job(&ledger), job(&ledger));
        let compute = |job: &mut Job| {
            let card = card.clone();
            device.compute(job.enter(0).wait().expect("it fits"), move |cx| {
                assert_eq!(card.stats().allocated_bytes, Bytes::ZERO, "the one before has left something");
                let scratch = cx.allocate(SCRATCH, Bytes(1))?;
                cx.call(|lane| lane.kernel(std::time::Duration::ZERO, &[scratch.memory()], || ()))
            })
        };
        let first = compute(&mut first);
        let second = compute(&mut second);
        first.wait().expect("a result");
        second.wait().expect("a result");
        assert_eq!(card.stats().freed_in_use, 0);
    });
}

/// Whoever has work on a device that is given up hears of it, wherever it was then.
#[test]
fn work_and_the_end_of_its_device_do_not_miss_each_other() {
    check(|| {
        let ledger = Ledger::new(Budget::new().device(0, Bytes(2), 1));
        let card = card(Faults::default());
        let device = start(&ledger, &card, 1);
        let mut job = job(&ledger);
        let grant = job.enter(0).wait().expect("it fits");
        let watchdog = {
            let device = device.clone();
            loom::thread::spawn(move || drop(device.give_up("it took too long")))
        };
        let compute = device.compute(grant, |cx| cx.allocate(SCRATCH, Bytes(1)).map(drop));
        match compute.wait() {
            Ok(()) => {}
            Err(StageError::Device(DeviceError::Lost(_)) | StageError::Stage(DeviceError::Lost(_))) => {}
            Err(other) => panic!("{other:?}"),
        }
        watchdog.join().expect("no panic");
        assert!(device.loss().is_some());
        assert_eq!(card.stats().allocated_bytes, Bytes::ZERO);
    });
}
