//! Pipelines over devices that fail: their jobs go to another device, come again, or go by a smaller plan.

#![expect(clippy::disallowed_types, reason = "tests use plain locks")]

use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use plimsoll::device::simulate::{CardSpec, Faults, Simulated};
use plimsoll::device::{Device, DeviceConfig, DeviceError, DeviceSet};
use plimsoll::pipeline::{JobError, Pacing, Pipeline, Retry};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};

use crate::several::Cards;
use crate::support::{MS, input, scratch, two_stages};

fn pool() -> Pool {
    Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).expect("threads")
}

/// Sums ten bytes on whichever card; begins again from the start when that is lost. Says which card it was.
fn sums(cards: &Cards, pool: &Pool) -> Pipeline<u8, (u16, u8), DeviceError> {
    let turns = [cards.set.clone(), cards.set.clone()];
    let [first, others] = turns.map(|set| move || set.profiles(|_| false, |device| two_stages(device, 10, 10)));
    let retry = Retry::times(4).within(Duration::MAX);
    Pipeline::builder(&cards.ledger, pool, move |_: &u8| first().swap_remove(0))
        .alternatives(move |_| others())
        .failures(DeviceError::failure)
        .device_stage("stage in", &cards.set, |cx, byte: u8| {
            let class = input(cx.device());
            let buffer = cx.upload(class, &[byte; 10])?;
            Ok(cx.keep(buffer))
        })
        .from_start(retry)
        .compute_stage("compute", &cards.set, |cx, staged| {
            let device = cx.device();
            let inputs = cx.adopt(staged)?;
            let sum = cx.allocate(scratch(device), Bytes(10))?;
            let kernel = || {
                let total = inputs.memory().read(|bytes| bytes.iter().sum::<u8>());
                sum.memory().write(|out| *out = vec![total]);
            };
            cx.call(|lane| lane.kernel(MS, &[inputs.memory(), sum.memory()], kernel))?;
            let mut host = [0];
            cx.copy_out(&sum, 0, &mut host)?;
            Ok((device, host[0]))
        })
        .from_start(retry)
        .build()
        .expect("a pipeline")
}

#[test]
fn jobs_of_a_pipeline_are_spread_over_the_devices() {
    let cards = Cards::new(40, &[Faults::default(), Faults::default()]);
    let pool = pool();
    let pipeline = sums(&cards, &pool);
    let mut on = [0; 2];
    for (at, result) in pipeline.run_all((0..40).map(|at| (format!("job {at}"), at % 20))) {
        let (device, sum) = result.unwrap();
        assert_eq!(sum, (at as u8 % 20) * 10);
        on[device as usize] += 1;
    }
    assert!(on[0] >= 5 && on[1] >= 5, "{on:?}");
    drop(pipeline);
    cards.assert_clean();
}

#[test]
fn jobs_of_a_pipeline_begin_again_on_the_other_device() {
    // Each call of the driver is a moment at which a card may go.
    for at in (3..60).step_by(3) {
        let lost = Faults { lost_at: Some(at), ..Faults::default() };
        let cards = Cards::new(40, &[lost, Faults::default()]);
        let pool = pool();
        let pipeline = sums(&cards, &pool);
        let results: Vec<_> = pipeline.run_all((0..20).map(|at| (format!("job {at}"), at))).collect();
        assert_eq!(results.len(), 20);
        for (index, result) in results {
            let (_, sum) = result.unwrap_or_else(|error| panic!("lost at call {at}: {error:?}"));
            assert_eq!(sum, index as u8 * 10);
        }
        drop(pipeline);
        cards.assert_clean();
    }
}

#[test]
fn jobs_of_a_pipeline_fail_with_a_reason_when_the_last_device_is_lost() {
    let lost = |at| Faults { lost_at: Some(at), ..Faults::default() };
    let cards = Cards::new(40, &[lost(12), lost(17)]);
    let pool = pool();
    let pipeline = sums(&cards, &pool);
    let mut failed = 0;
    for (_, result) in pipeline.run_all((0..20).map(|at| (format!("job {at}"), at))) {
        match result {
            Ok(_) => {}
            Err(JobError::Stage { source, .. }) if source.is_lost() => failed += 1,
            Err(JobError::NotEntered { .. } | JobError::Rejected { .. }) => failed += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(failed >= 10, "two cards of so few calls run few jobs: {failed}");
    drop(pipeline);
    cards.assert_clean();
}

/// One stage, which computes with a workspace of 20 or of 5, as it was granted. Says how large it was.
fn plans(cards: &Cards, pool: &Pool, retry: Retry) -> Pipeline<(), u64, DeviceError> {
    let plan = |bytes| {
        let peak = Demand::new().on_lease(0).bytes(scratch(0), Bytes(bytes));
        Profile::new().stage("compute", peak, Demand::new())
    };
    Pipeline::builder(&cards.ledger, pool, move |()| plan(20))
        .alternatives(move |()| vec![plan(5)])
        .failures(DeviceError::failure)
        .compute_stage_again("compute", &cards.set, retry, |cx, ()| {
            let workspace = cx.grant().left(scratch(0));
            cx.allocate(scratch(0), workspace)?;
            Ok(workspace.0)
        })
        .build()
        .expect("a pipeline")
}

#[test]
fn out_of_memory_comes_again_until_the_neighbour_has_gone() {
    let cards = Cards::new(40, &[Faults::default()]);
    let pool = pool();
    let pipeline = plans(&cards, &pool, Retry::times(0).within(Duration::MAX));
    let neighbour = cards.cards[0].neighbour(Bytes(30)).unwrap();
    let ticket = pipeline.submit("job", ()).unwrap();
    while cards.cards[0].stats().out_of_memory < 2 {
        std::thread::yield_now();
    }
    assert!(!ticket.has_ended());
    drop(neighbour);
    assert_eq!(ticket.wait().unwrap(), 20);
    drop(pipeline);
    assert!(cards.ledger.snapshot().is_empty());
}

#[test]
fn out_of_memory_for_too_long_goes_by_the_smaller_plan() {
    let cards = Cards::new(40, &[Faults::default()]);
    let pool = pool();
    let pipeline = plans(&cards, &pool, Retry::times(0).within(Duration::ZERO));
    let neighbour = cards.cards[0].neighbour(Bytes(30)).unwrap();
    assert_eq!(pipeline.submit("job", ()).unwrap().wait().unwrap(), 5);
    assert!(cards.set.losses().is_empty());
    drop((pipeline, neighbour));
    assert!(cards.ledger.snapshot().is_empty() && cards.cards[0].stats().allocated_bytes.is_zero());
}

/// A neighbour of the jobs who waits for a byte of the host, and gives a device up in the moment in which it is told that it
/// has it.
struct Breaker(Device<Simulated>);

impl Wake for Breaker {
    fn wake(self: Arc<Self>) {
        self.0.give_up("pulled out");
    }
}

#[test]
fn a_stage_whose_device_is_lost_says_so_wherever_that_is_found() {
    const HOST: Class = Class::new("host", Space::HOST);
    let card = || Simulated::new(CardSpec { memory: Bytes(40), ..CardSpec::default() });
    let budget = [0, 1].into_iter().fold(Budget::new(), |budget, number| budget.device(number, Bytes(40), 2));
    let ledger = Ledger::new(budget.space(Space::HOST, Bytes(10)));
    let start = |number| Device::start(number, card(), &ledger, DeviceConfig::default()).expect("a device");
    let set = DeviceSet::new([start(0), start(1)]);
    let pool = pool();
    let (begun, has_begun) = mpsc::channel();
    let (open, opened) = mpsc::channel::<()>();
    let (begun, opened) = (Mutex::new(begun), Mutex::new(opened));
    let on = |&(device, bytes): &(u16, u64)| {
        let peak = Demand::new().on_lane(device).bytes(HOST, Bytes(bytes));
        Profile::new().stage("hold", peak, Demand::new())
    };
    let pipeline = Pipeline::builder(&ledger, &pool, on)
        .pacing(Pacing::Unpaced)
        .device_stage("hold", &set, move |cx, (device, _)| {
            assert_eq!(cx.device(), device);
            if device == 1 {
                begun.lock().unwrap().send(()).expect("the test waits for it");
                let _ = opened.lock().unwrap().recv();
            }
            Ok::<_, DeviceError>(())
        })
        .build()
        .expect("a pipeline");
    let first = pipeline.submit("on the device that stays", (1, 10)).expect("taken on");
    has_begun.recv().expect("it has begun");
    // Both wait for what the first one holds. When its lane returns that, the neighbour's word comes before the second job's:
    // so the lane finds that job granted, and its device gone.
    let mut neighbour = pin!(ledger.reserve(HOST, Bytes(1)).into_future());
    let device = set.device(0).expect("one of the set").clone();
    let waker = Waker::from(Arc::new(Breaker(device)));
    assert!(neighbour.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let second = pipeline.submit("on the device that goes", (0, 9)).expect("taken on");
    drop(open);
    first.wait().expect("its device is well");
    match second.wait() {
        Err(JobError::Stage { source, .. }) => assert!(source.is_lost(), "{source:?}"),
        other => panic!("{other:?}"),
    }
}
