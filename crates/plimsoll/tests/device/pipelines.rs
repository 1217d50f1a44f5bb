//! Stages of a pipeline on devices.

use std::collections::BTreeMap;

use plimsoll::device::simulate::{CardSpec, Faults, Simulated};
use plimsoll::device::{Device, DeviceConfig, DeviceError, DeviceSet};
use plimsoll::pipeline::{JobError, Pipeline};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Demand, Ledger, Profile};

use crate::support::{MS, input, scratch};

/// A pipeline that adds up bytes on a card: cut out on the host, staged in, summed.
fn adder(ledger: &Ledger, pool: &Pool, devices: &DeviceSet<Simulated>) -> Pipeline<Vec<u8>, u64, DeviceError> {
    let profile = |bytes: &Vec<u8>| {
        let inputs = Demand::new().bytes(input(0), Bytes(bytes.len() as u64));
        Profile::new()
            .stage("cut", Demand::new(), Demand::new())
            .stage("stage in", inputs.clone().on_lane(0), inputs.clone())
            .stage("compute", inputs.on_lease(0).bytes(scratch(0), Bytes(8)), Demand::new())
    };
    Pipeline::builder(ledger, pool, profile)
        .stage("cut", |_, bytes: Vec<u8>| Ok(bytes))
        .device_stage("stage in", devices, |cx, bytes: Vec<u8>| {
            let buffer = cx.upload(input(0), &bytes)?;
            Ok(cx.keep(buffer))
        })
        .compute_stage("compute", devices, |cx, staged| {
            let inputs = cx.adopt(staged)?;
            let sum = cx.allocate(scratch(0), Bytes(8))?;
            let kernel = || {
                let total = inputs.memory().read(|bytes| bytes.iter().copied().map(u64::from).sum::<u64>());
                sum.memory().write(|out| *out = total.to_le_bytes().to_vec());
            };
            cx.call(|lane| lane.kernel(MS, &[inputs.memory(), sum.memory()], kernel))?;
            let mut host = [0; 8];
            cx.copy_out(&sum, 0, &mut host)?;
            Ok(u64::from_le_bytes(host))
        })
        .build()
        .expect("a pipeline")
}

fn pool() -> Pool {
    Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).expect("threads")
}

fn device(ledger: &Ledger, number: u16, card: &Simulated) -> Device<Simulated> {
    Device::start(number, card.clone(), ledger, DeviceConfig::default()).expect("a device")
}

#[test]
fn jobs_go_through_a_device_within_its_memory() {
    let card = Simulated::new(CardSpec { memory: Bytes(250), ..CardSpec::default() });
    let ledger = Ledger::new(Budget::new().device(0, Bytes(250), 2));
    let (pool, devices) = (pool(), DeviceSet::new([device(&ledger, 0, &card)]));
    let pipeline = adder(&ledger, &pool, &devices);
    let inputs = (0..100).map(|at| (format!("job {at}"), vec![1; at % 100 + 1]));
    let sums: BTreeMap<usize, u64> = pipeline.run_all(inputs).map(|(at, sum)| (at, sum.unwrap())).collect();
    assert!(sums.iter().all(|(at, sum)| *sum == (*at as u64) % 100 + 1) && sums.len() == 100, "{sums:?}");
    let stats = card.stats();
    assert_eq!((stats.kernels_beside_kernels, stats.freed_in_use, stats.out_of_memory), (0, 0, 0));
    assert!(stats.allocated_bytes_peak <= Bytes(250) && stats.allocated_bytes.is_zero(), "{stats:?}");
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_device_that_breaks_fails_its_jobs_with_its_own_error() {
    let calls = {
        let card = Simulated::new(CardSpec::default());
        run_three(&card);
        card.stats().calls
    };
    for at in 3..=calls {
        let faults = Faults { lost_at: Some(at), ..Faults::default() };
        let card = Simulated::new(CardSpec { faults, ..CardSpec::default() });
        run_three(&card);
        assert_eq!((card.stats().open_lanes, card.stats().allocated_bytes), (0, Bytes::ZERO), "call {at}");
    }
}

/// Three jobs, which succeed or say why not.
fn run_three(card: &Simulated) {
    let ledger = Ledger::new(Budget::new().device(0, Bytes(100), 2));
    let (pool, devices) = (pool(), DeviceSet::new([device(&ledger, 0, card)]));
    let pipeline = adder(&ledger, &pool, &devices);
    let tickets: Vec<_> = (0..3).filter_map(|at| pipeline.submit(format!("job {at}"), vec![1; 40]).ok()).collect();
    for ticket in tickets {
        match ticket.wait() {
            Ok(sum) => assert_eq!(sum, 40),
            Err(JobError::Stage { source: DeviceError::Lost(loss), .. }) => assert_eq!(loss.device, 0),
            Err(JobError::NotEntered { .. }) => assert!(!devices.losses().is_empty()),
            Err(other) => panic!("{other:?}"),
        }
    }
    drop(pipeline);
}

#[test]
fn a_panic_on_a_lane_is_the_jobs_alone() {
    let card = Simulated::new(CardSpec::default());
    let ledger = Ledger::new(Budget::new().device(0, Bytes(100), 2));
    let (pool, devices) = (pool(), DeviceSet::new([device(&ledger, 0, &card)]));
    let profile = |_: &u8| Profile::new().stage("compute", Demand::new().on_lease(0), Demand::new());
    let pipeline = Pipeline::builder(&ledger, &pool, profile)
        .compute_stage("compute", &devices, |_, at: u8| {
            assert_ne!(at, 1, "one is none");
            Ok::<_, DeviceError>(at)
        })
        .build()
        .unwrap();
    let tickets = [0, 1, 2].map(|at| pipeline.submit("job", at).unwrap());
    let [zero, one, two] = tickets.map(|ticket| ticket.wait());
    assert_eq!((zero.unwrap(), two.unwrap()), (0, 2));
    let Err(JobError::Panicked { message, .. }) = one else { panic!("it panicked") };
    assert!(message.contains("one is none"), "{message}");
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_profile_without_a_lane_is_refused_at_its_first_run() {
    let card = Simulated::new(CardSpec::default());
    let ledger = Ledger::new(Budget::new().device(0, Bytes(100), 2));
    let (pool, devices) = (pool(), DeviceSet::new([device(&ledger, 0, &card)]));
    let profile = |_: &u8| Profile::new().stage("compute", Demand::new(), Demand::new());
    let pipeline = Pipeline::builder(&ledger, &pool, profile)
        .compute_stage("compute", &devices, |_, at: u8| Ok::<_, DeviceError>(at))
        .build()
        .unwrap();
    let failed = pipeline.submit("job", 0).unwrap().wait();
    assert!(
        matches!(failed, Err(JobError::Stage { source: DeviceError::NotGranted { what: "lane", .. }, .. })),
        "{failed:?}"
    );
}
