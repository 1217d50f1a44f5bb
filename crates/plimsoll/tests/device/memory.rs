//! Device memory: who pays for it, when it is freed, and what happens when there is too little.

use plimsoll::Bytes;
use plimsoll::device::simulate::Faults;
use plimsoll::device::{DeviceError, DriverError, StageError};

use crate::support::{Bench, MS, input, one_stage, scratch, submit, two_stages};

#[test]
fn staged_memory_belongs_to_the_job_until_it_is_dropped() {
    let bench = Bench::new(100);
    let mut job = submit(&bench.ledger, "job", two_stages(0, 30, 10));
    let staged = bench.stage_in(&mut job, 30).unwrap();
    assert_eq!((staged.bytes(), staged.class()), (Bytes(30), input(0)));
    assert_eq!(bench.stats().allocated_bytes, Bytes(30));
    assert_eq!(bench.ledger.snapshot().class(input(0)).map(|class| class.totals.held), Some(30));
    // Somewhere else, long after.
    let elsewhere = std::thread::Builder::new().spawn(move || drop(staged)).unwrap();
    elsewhere.join().unwrap();
    assert_eq!(bench.stats().allocated_bytes, Bytes::ZERO);
    drop(job);
    assert!(bench.ledger.snapshot().is_empty());
}

#[test]
fn what_was_staged_in_is_there_for_the_kernel() {
    let bench = Bench::new(100);
    let mut job = submit(&bench.ledger, "job", two_stages(0, 30, 10));
    let staged = bench.stage_in(&mut job, 30).unwrap();
    let compute = bench.device.compute(job.enter(1).wait().unwrap(), |cx| {
        let inputs = cx.adopt(staged)?;
        let sum = cx.allocate(scratch(0), Bytes(1))?;
        let kernel = || {
            let total = inputs.memory().read(|bytes| bytes.iter().sum::<u8>());
            sum.memory().write(|out| *out = vec![total]);
        };
        cx.call(|lane| lane.kernel(MS, &[inputs.memory(), sum.memory()], kernel))?;
        let mut host = [0];
        cx.copy_out(&sum, 0, &mut host)?;
        Ok::<_, DeviceError>(host[0])
    });
    assert_eq!(compute.wait().unwrap(), 30);
    assert_eq!(bench.stats().allocated_bytes_peak, Bytes(31), "what was declared, and no more");
    assert_eq!(bench.stats().freed_in_use, 0);
}

#[test]
fn what_a_stage_lets_go_it_may_take_again() {
    let bench = Bench::new(100);
    let mut job = submit(&bench.ledger, "job", one_stage(10));
    let compute = bench.device.compute(job.enter(0).wait().unwrap(), |cx| {
        for _ in 0..5 {
            let scratch = cx.allocate(scratch(0), Bytes(10))?;
            cx.call(|lane| lane.kernel(MS, &[scratch.memory()], || ()))?;
        }
        Ok::<_, DeviceError>(())
    });
    compute.wait().unwrap();
    let stats = bench.stats();
    assert_eq!((stats.allocations, stats.allocated_bytes_peak, stats.freed_in_use), (5, Bytes(10), 0));
}

#[test]
fn nothing_is_freed_while_the_device_is_at_it() {
    let bench = Bench::new(100);
    let mut job = submit(&bench.ledger, "job", one_stage(10));
    let compute = bench.device.compute(job.enter(0).wait().unwrap(), |cx| {
        let scratch = cx.allocate(scratch(0), Bytes(10))?;
        cx.call(|lane| lane.kernel(MS, &[scratch.memory()], || ()))
    });
    compute.wait().unwrap();
    let stats = bench.stats();
    assert_eq!((stats.compute_ns, stats.freed_in_use, stats.allocated_bytes), (1_000_000, 0, Bytes::ZERO));
}

#[test]
fn more_than_was_granted_is_refused() {
    let bench = Bench::new(100);
    let mut job = submit(&bench.ledger, "job", one_stage(10));
    let compute = bench.device.compute(job.enter(0).wait().unwrap(), |cx| {
        assert!(matches!(cx.allocate(input(1), Bytes(1)), Err(DeviceError::OtherSpace { device: 0, .. })));
        let _all = cx.allocate(scratch(0), Bytes(10))?;
        cx.allocate(scratch(0), Bytes(1)).map(drop)
    });
    let Err(StageError::Stage(DeviceError::Take(error))) = compute.wait() else { panic!("it asked for too much") };
    assert_eq!(error.left, Bytes::ZERO);
    assert_eq!(bench.stats().out_of_memory, 0, "the card was not even asked");
}

#[test]
fn a_neighbour_on_the_card_is_told_from_a_fault_of_the_stage() {
    let bench = Bench::new(100);
    let neighbour = bench.card.neighbour(Bytes(95)).unwrap();
    let mut job = submit(&bench.ledger, "job", one_stage(10));
    let run = |cx: &mut plimsoll::device::LeaseCx<'_, _>| cx.allocate(scratch(0), Bytes(10)).map(drop);
    let compute = bench.device.compute(job.enter(0).wait().unwrap(), run);
    let Err(StageError::OutOfMemory { device: 0, wanted: Bytes(10), free: Bytes(5), .. }) = compute.wait() else {
        panic!("there was too little")
    };
    drop(job);
    assert!(bench.ledger.snapshot().is_empty());

    drop(neighbour);
    let mut again = submit(&bench.ledger, "again", one_stage(10));
    bench.device.compute(again.enter(0).wait().unwrap(), run).wait().unwrap();
}

#[test]
fn a_failed_allocation_gives_back_and_leaves_the_stage_to_try_less() {
    let bench = Bench::with_faults(100, Faults { out_of_memory_at: Some(1), ..Faults::default() });
    let mut job = submit(&bench.ledger, "job", one_stage(10));
    let compute = bench.device.compute(job.enter(0).wait().unwrap(), |cx| {
        let first = cx.allocate(scratch(0), Bytes(10));
        assert!(matches!(first, Err(DeviceError::Driver { source: DriverError::OutOfMemory { .. }, .. })));
        assert_eq!(cx.grant().left(scratch(0)), Bytes(10), "what it took is back");
        cx.allocate(scratch(0), Bytes(5)).map(drop)
    });
    compute.wait().unwrap();
    assert_eq!(bench.stats().out_of_memory, 1);
}

#[test]
fn memory_of_a_stage_that_still_runs_is_nobody_elses() {
    let bench = Bench::new(100);
    let mut first = submit(&bench.ledger, "first", two_stages(0, 10, 0));
    let mut second = submit(&bench.ledger, "second", two_stages(0, 10, 0));
    let (give, take) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let stage = bench.device.stage(first.enter(0).wait().unwrap(), move |cx| {
        let buffer = cx.upload(input(0), &[1; 10])?;
        give.send(cx.keep(buffer)).unwrap();
        wait.recv().unwrap();
        Ok::<_, DeviceError>(())
    });
    let thief = bench.device.stage(second.enter(0).wait().unwrap(), move |cx| {
        let refused = cx.adopt(take.recv().unwrap()).is_err();
        done.send(()).unwrap();
        Ok::<_, ()>(refused)
    });
    assert!(thief.wait().unwrap());
    stage.wait().unwrap();
    assert_eq!(bench.stats().freed_in_use, 0);
}
