//! Lanes and the lease: what runs beside what, and in which order.

use std::sync::{Arc, Barrier, mpsc};

use plimsoll::device::{DeviceError, StageError};
use plimsoll::observe::{Event, Observer, What};
use plimsoll::{Demand, JobSpec, Profile, Resource, Slots};

use crate::support::{Bench, MS, input, one_stage, scratch, submit, two_stages};
use plimsoll::Bytes;

#[test]
fn one_lane_stages_in_while_the_other_computes() {
    let bench = Bench::new(100);
    let meet = Arc::new(Barrier::new(2));
    let mut first = submit(&bench.ledger, "first", two_stages(0, 10, 10));
    let mut second = submit(&bench.ledger, "second", two_stages(0, 10, 10));
    let staged = bench.stage_in(&mut first, 10).unwrap();
    let compute = {
        let meet = meet.clone();
        bench.device.compute(first.enter(1).wait().unwrap(), move |cx| {
            let inputs = cx.adopt(staged)?;
            cx.call(|lane| lane.kernel(MS, &[inputs.memory()], || ()))?;
            // Both ends of the other's stage lie within this kernel.
            meet.wait();
            meet.wait();
            Ok::<_, DeviceError>(())
        })
    };
    let stage_in = bench.device.stage(second.enter(0).wait().unwrap(), move |cx| {
        meet.wait();
        let buffer = cx.upload(input(0), &[1; 10])?;
        cx.synchronise()?;
        meet.wait();
        Ok::<_, DeviceError>(cx.keep(buffer))
    });
    compute.wait().unwrap();
    drop(stage_in.wait().unwrap());
    assert_eq!(bench.stats().copies_beside_kernels, 1);
}

#[test]
fn only_one_computes_at_a_time() {
    let bench = Bench::new(1000);
    let (sender, waits) = mpsc::channel();
    for at in 0..20 {
        let mut job = submit(&bench.ledger, &format!("job {at}"), one_stage(10));
        let (device, sender) = (bench.device.clone(), sender.clone());
        let waiter = std::thread::Builder::new().spawn(move || {
            let grant = job.enter(0).wait().unwrap();
            let compute = device.compute(grant, |cx| {
                let scratch = cx.allocate(scratch(0), Bytes(10))?;
                cx.call(|lane| lane.kernel(MS, &[scratch.memory()], || ()))
            });
            compute.wait().unwrap();
            sender.send(()).unwrap();
        });
        drop(waiter);
    }
    for _ in 0..20 {
        waits.recv().unwrap();
    }
    let stats = bench.stats();
    assert_eq!((stats.kernels_beside_kernels, stats.compute_ns), (0, 20_000_000));
    assert_eq!(stats.allocated_bytes_peak, Bytes(10), "each finds what the one before had free again");
}

#[test]
fn the_lease_goes_by_priority() {
    let bench = Bench::new(100);
    let (order, runs) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let mut holder = submit(&bench.ledger, "holder", one_stage(1));
    let holds = bench.device.compute(holder.enter(0).wait().unwrap(), move |_| {
        held.recv().unwrap();
        Ok::<_, ()>(())
    });
    let mut threads = Vec::new();
    for (name, priority) in [("low", -1), ("high", 1), ("middle", 0)] {
        let mut job = bench.ledger.submit(JobSpec::new(name, one_stage(1)).priority(priority)).unwrap();
        let (device, order) = (bench.device.clone(), order.clone());
        let run = move || {
            let grant = job.enter(0).wait().unwrap();
            device.compute(grant, move |_| order.send(name)).wait().unwrap();
        };
        threads.push(std::thread::Builder::new().spawn(run).unwrap());
    }
    while bench.ledger.snapshot().waiters.len() < 3 {
        std::thread::yield_now();
    }
    release.send(()).unwrap();
    holds.wait().unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(runs.try_iter().collect::<Vec<_>>(), ["high", "middle", "low"]);
}

#[test]
fn nothing_computes_without_the_lease_nor_runs_without_a_lane() {
    let bench = Bench::new(100);
    let no_lease = Profile::new().stage("compute", Demand::new().on_lane(0), Demand::new());
    let mut job = submit(&bench.ledger, "job", no_lease);
    let refused = bench.device.compute(job.enter(0).wait().unwrap(), |_| Ok::<_, ()>(())).wait();
    let Err(StageError::Device(error @ DeviceError::NotGranted { what: "lease", .. })) = refused else {
        panic!("{refused:?}")
    };
    assert!(error.to_string().contains("granted no lease of device 0 for stage compute"), "{error}");

    let no_lane = Profile::new().stage("in", Demand::new(), Demand::new());
    let mut job = submit(&bench.ledger, "job", no_lane);
    let refused = bench.device.stage(job.enter(0).wait().unwrap(), |_| Ok::<_, ()>(())).wait();
    assert!(matches!(refused, Err(StageError::Device(DeviceError::NotGranted { what: "lane", .. }))), "{refused:?}");
}

#[test]
fn a_panic_is_contained_and_the_lane_goes_on() {
    let bench = Bench::new(100);
    for _ in 0..4 {
        let mut job = submit(&bench.ledger, "job", one_stage(10));
        let compute = bench.device.compute(job.enter(0).wait().unwrap(), |cx| {
            let _scratch = cx.allocate(scratch(0), Bytes(10));
            panic!("out of ideas");
            #[expect(unreachable_code, reason = "it says what the stage would return")]
            Ok::<(), ()>(())
        });
        let Err(StageError::Panicked { message }) = compute.wait() else { panic!("it panicked") };
        assert_eq!(message, "out of ideas");
        drop(job);
        assert!(bench.ledger.snapshot().is_empty());
        assert_eq!(bench.stats().allocated_bytes, Bytes::ZERO);
    }
}

/// Looks at the card whenever the lease returns.
struct AtTheEndOfTheLease<F>(F);

impl<F: Fn() + Send + Sync> Observer for AtTheEndOfTheLease<F> {
    fn event(&self, event: &Event) {
        if let What::Changed { resource: Resource::Slots(slots), delta: -1, .. } = event.what
            && slots == Slots::lease(0)
        {
            (self.0)();
        }
    }
}

#[test]
fn the_memory_is_free_before_the_lease_returns() {
    let bench = Bench::new(100);
    let (sender, seen) = mpsc::channel();
    let card = bench.card.clone();
    let look = move || sender.send(card.stats()).unwrap();
    bench.ledger.observe(Arc::new(AtTheEndOfTheLease(look)));
    let mut job = submit(&bench.ledger, "job", one_stage(10));
    let compute = bench.device.compute(job.enter(0).wait().unwrap(), |cx| {
        let scratch = cx.allocate(scratch(0), Bytes(10))?;
        cx.call(|lane| lane.kernel(MS, &[scratch.memory()], || ()))
    });
    compute.wait().unwrap();
    let then = seen.try_recv().expect("the lease has returned");
    assert_eq!((then.allocations, then.allocated_bytes), (1, Bytes::ZERO));
}

#[test]
fn the_last_handle_may_be_dropped_inside_of_a_stage() {
    let Bench { ledger, card, device } = Bench::new(100);
    let mut job = submit(&ledger, "job", one_stage(1));
    let grant = job.enter(0).wait().unwrap();
    let (inside, outside) = mpsc::channel();
    let (given, taken) = mpsc::channel();
    let compute = device.compute(grant, move |_| {
        let device: plimsoll::device::Device<_> = taken.recv().unwrap();
        outside.recv().unwrap();
        drop(device);
        Ok::<_, ()>(())
    });
    given.send(device.clone()).unwrap();
    drop(device);
    inside.send(()).unwrap();
    compute.wait().unwrap();
    while card.stats().open_lanes > 0 {
        std::thread::yield_now();
    }
}
