//! Memory that several stages use at once, and memory that is kept for another try.

use std::sync::{Arc, mpsc};

use plimsoll::Bytes;
use plimsoll::device::{DeviceError, LaneCx, Staged};

use crate::support::{Bench, MS, submit, two_stages};

type Shared = Arc<Staged<plimsoll::device::simulate::Simulated>>;

/// Begins something that uses the shared memory, and nobody waits for it before the stage ends.
fn begin_to_use(
    cx: &mut LaneCx<'_, plimsoll::device::simulate::Simulated>,
    shared: &Shared,
) -> Result<(), DeviceError> {
    let memory = cx.lend(shared)?;
    cx.call(|lane| lane.kernel(MS, &[memory], || ()))
}

#[test]
fn a_lent_input_that_is_dropped_in_its_stage_is_freed_after_it() {
    let bench = Bench::new(100);
    let mut job = submit(&bench.ledger, "job", two_stages(0, 10, 0));
    let staged = bench.stage_in(&mut job, 10).unwrap();
    let card = bench.card.clone();
    let compute = bench.device.compute(job.enter(1).wait().unwrap(), move |cx| {
        let staged = Arc::new(staged);
        begin_to_use(cx, &staged)?;
        drop(staged);
        assert_eq!(card.stats().allocated_bytes, Bytes(10), "the kernel is at it");
        Ok::<_, DeviceError>(())
    });
    compute.wait().unwrap();
    assert_eq!((bench.stats().allocated_bytes, bench.stats().freed_in_use), (Bytes::ZERO, 0));
    drop(job);
    assert!(bench.ledger.snapshot().is_empty());
}

#[test]
fn what_several_stages_use_is_freed_after_the_last() {
    let bench = Bench::new(100);
    let mut owner = submit(&bench.ledger, "owner", two_stages(0, 10, 0));
    let shared: Shared = Arc::new(bench.stage_in(&mut owner, 10).unwrap());
    let mut jobs = ["first", "second"].map(|name| submit(&bench.ledger, name, two_stages(0, 0, 0)));
    let (is_used, used) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let [first, second] = &mut jobs;
    let slow = {
        let shared = shared.clone();
        bench.device.stage(first.enter(0).wait().unwrap(), move |cx| {
            begin_to_use(cx, &shared)?;
            drop(shared);
            is_used.send(()).unwrap();
            wait.recv().unwrap();
            Ok::<_, DeviceError>(())
        })
    };
    used.recv().unwrap();
    // The last owner lets go, in a stage that ends before the other.
    let quick = bench.device.stage(second.enter(0).wait().unwrap(), move |cx| begin_to_use(cx, &shared));
    quick.wait().unwrap();
    assert_eq!(bench.stats().allocated_bytes, Bytes(10), "the other stage is at it still");
    go.send(()).unwrap();
    slow.wait().unwrap();
    assert_eq!((bench.stats().allocated_bytes, bench.stats().freed_in_use), (Bytes::ZERO, 0));
}
