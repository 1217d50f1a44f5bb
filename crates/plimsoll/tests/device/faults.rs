//! Devices that break: at each call of the driver, in the middle of a batch, with work that waits.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use plimsoll::device::simulate::{CardSpec, Clock, Faults, Simulated};
use plimsoll::device::{Device, DeviceConfig, DeviceError, Driver, DriverError, StageError, StartError};
use plimsoll::{Budget, Bytes, Ledger, Space};

use crate::support::{Bench, MS, input, one_stage, scratch, submit, two_stages};

/// Runs one job of two stages. `Ok` when it has its result.
fn run_job(bench: &Bench) -> Result<u8, StageError<DeviceError>> {
    let mut job = submit(&bench.ledger, "job", two_stages(0, 10, 10));
    let staged = bench.stage_in(&mut job, 10)?;
    let grant = match job.enter(1).wait() {
        Ok(grant) => grant,
        Err(error) => panic!("what is in flight is granted: {error}"),
    };
    let compute = bench.device.compute(grant, |cx| {
        let inputs = cx.adopt(staged)?;
        let sum = cx.allocate(scratch(0), Bytes(10))?;
        let kernel = || sum.memory().write(|out| *out = vec![inputs.memory().read(|bytes| bytes.iter().sum::<u8>())]);
        cx.call(|lane| lane.kernel(MS, &[inputs.memory(), sum.memory()], kernel))?;
        let mut host = [0];
        cx.copy_out(&sum, 0, &mut host)?;
        Ok(host[0])
    });
    compute.wait()
}

/// How many calls of the driver two lanes and one job make.
fn calls_of_a_job() -> u64 {
    let bench = Bench::new(100);
    assert_eq!(run_job(&bench).unwrap(), 10);
    bench.stats().calls
}

#[test]
fn a_refused_call_fails_the_stage_and_nothing_else() {
    let calls = calls_of_a_job();
    assert!(calls >= 9, "two lanes open; the stages allocate, copy, compute and synchronise");
    for at in 3..=calls {
        let bench = Bench::with_faults(100, Faults { refused_at: Some(at), ..Faults::default() });
        let error = run_job(&bench).expect_err("one call failed");
        let refused =
            |error: &DeviceError| matches!(error, DeviceError::Driver { source: DriverError::Failed { .. }, .. });
        assert!(
            matches!(&error, StageError::Stage(error) | StageError::Device(error) if refused(error)),
            "call {at}: {error:?}"
        );
        assert!(bench.ledger.snapshot().is_empty(), "call {at}");
        assert_eq!((bench.stats().allocated_bytes, bench.stats().freed_in_use), (Bytes::ZERO, 0), "call {at}");
        assert_eq!(run_job(&bench).unwrap(), 10, "the device is well otherwise");
    }
}

#[test]
fn a_device_that_breaks_at_any_call_is_given_up() {
    let calls = calls_of_a_job();
    for at in 3..=calls {
        for faults in
            [Faults { broken_at: Some(at), ..Faults::default() }, Faults { lost_at: Some(at), ..Faults::default() }]
        {
            let bench = Bench::with_faults(100, faults);
            let error = run_job(&bench).expect_err("it broke");
            assert!(
                matches!(&error, StageError::Device(DeviceError::Lost(loss)) if loss.cause.is_fatal()),
                "{error:?}"
            );
            assert!(bench.device.loss().is_some());
            let Bench { ledger, card, device } = bench;
            drop(device);
            let stats = card.stats();
            assert_eq!((stats.allocated_bytes, stats.open_lanes), (Bytes::ZERO, 0), "call {at}");
            let calls = stats.calls;
            assert!(calls <= at + 1, "call {at}: a broken device was called again ({calls})");
            drop(ledger);
        }
    }
}

/// Or a job that begins again at once is sent there as often as it may begin again, and fails.
#[test]
fn who_is_told_of_a_loss_finds_the_device_retired() {
    for _ in 0..200 {
        let bench = Bench::with_faults(100, Faults { lost_at: Some(5), ..Faults::default() });
        std::thread::scope(|scope| {
            let named = std::thread::Builder::new().name("runs".to_owned());
            named.spawn_scoped(scope, || run_job(&bench).expect_err("it broke")).expect("a thread");
            while bench.device.loss().is_none() {
                std::hint::spin_loop();
            }
            let snapshot = bench.ledger.snapshot();
            assert!(snapshot.space(Space::device(0)).expect("budgeted").retired.is_some(), "{snapshot:?}");
        });
    }
}

#[test]
fn a_device_that_cannot_be_opened_is_not_started() {
    for lane in 1..=2 {
        let faults = Faults { lost_at: Some(lane), ..Faults::default() };
        let card = Simulated::new(CardSpec { faults, ..CardSpec::default() });
        let ledger = Ledger::new(Budget::new().device(0, Bytes(1), 2));
        let started = Device::start(0, card.clone(), &ledger, DeviceConfig::default());
        let Err(StartError::Open { device: 0, source: DriverError::Lost { .. }, .. }) = started else {
            panic!("it opened")
        };
        assert_eq!(card.stats().open_lanes, 0);
    }
}

#[test]
fn work_that_waits_for_a_lost_device_is_refused() {
    let bench = Bench::new(100);
    let mut running = submit(&bench.ledger, "running", one_stage(10));
    let mut waiting = submit(&bench.ledger, "waiting", one_stage(10));
    let (go, wait) = mpsc::channel::<()>();
    let run = bench.device.compute(running.enter(0).wait().unwrap(), move |cx| {
        let scratch = cx.allocate(scratch(0), Bytes(10))?;
        wait.recv().unwrap();
        cx.call(|lane| lane.kernel(MS, &[scratch.memory()], || ()))
    });
    let waits = std::thread::Builder::new().spawn(move || waiting.enter(0).wait().map(drop)).unwrap();
    while bench.ledger.snapshot().waiters.is_empty() {
        std::thread::yield_now();
    }
    bench.card.lose();
    go.send(()).unwrap();
    assert!(matches!(run.wait(), Err(StageError::Device(DeviceError::Lost(_)))));
    waits.join().unwrap().expect_err("nobody will ever run it");
    let refused = bench.ledger.submit(plimsoll::JobSpec::new("late", one_stage(10)));
    assert!(refused.is_err(), "nothing new is admitted");
}

#[test]
fn a_watchdog_may_give_a_device_up() {
    let bench = Bench::new(100);
    let mut job = submit(&bench.ledger, "job", two_stages(0, 10, 10));
    let staged = bench.stage_in(&mut job, 10).unwrap();
    let first = bench.device.give_up("no progress for a minute");
    let second = bench.device.give_up("and another one");
    assert_eq!(first, second, "the first cause stays");
    drop(staged);
    assert_eq!(bench.stats().allocated_bytes, Bytes::ZERO, "its memory is dropped quietly");
    let _ = input(0);
}

#[test]
fn a_card_by_the_clock_takes_its_time_and_a_lost_one_keeps_nobody_waiting() {
    let card = Simulated::new(CardSpec { clock: Clock::Real, ..CardSpec::default() });
    let ledger = Ledger::new(Budget::new().device(0, Bytes(100), 2));
    let device = Device::start(0, card.clone(), &ledger, DeviceConfig::default()).unwrap();
    let kernel = |time: Duration| {
        let mut job = submit(&ledger, "job", one_stage(0));
        device.compute(job.enter(0).wait().unwrap(), move |cx| cx.call(|lane| lane.kernel(time, &[], || ())))
    };
    let began = Instant::now();
    kernel(MS).wait().unwrap();
    assert!(began.elapsed() >= MS);
    let for_ever = kernel(Duration::from_secs(3600));
    while card.ops().len() < 2 {
        std::thread::yield_now();
    }
    card.lose();
    assert!(matches!(for_ever.wait(), Err(StageError::Device(DeviceError::Lost(_)))));
}

/// A device whose driver panics when this lane opens it.
struct PanicsAtOpen(Simulated, usize);

impl Driver for PanicsAtOpen {
    type Lane = <Simulated as Driver>::Lane;
    type Memory = <Simulated as Driver>::Memory;

    fn open(&self, lane: usize) -> Result<Self::Lane, DriverError> {
        assert_ne!(lane, self.1, "told to");
        self.0.open(lane)
    }
}

#[test]
fn a_device_whose_driver_panics_while_it_is_opened_is_not_started() {
    for lane in 0..2 {
        let card = Simulated::new(CardSpec::default());
        let ledger = Ledger::new(Budget::new().device(0, Bytes(1), 2));
        let started = Device::start(0, PanicsAtOpen(card.clone(), lane), &ledger, DeviceConfig::default());
        let Err(StartError::Open { device: 0, lane: at, source: DriverError::Broken { message } }) = started else {
            panic!("it opened")
        };
        assert!(at == lane && message.contains("told to"), "{message}");
        assert_eq!(card.stats().open_lanes, 0);
    }
}
