//! A pipeline over two simulated cards, without a GPU: bytes are cut on the host, staged in by one lane while the other
//! computes, and one of the cards is lost in the middle.
//!
//! `cargo run -p plimsoll --example simulated_device`

use std::error::Error;
use std::time::Duration;

use plimsoll::device::simulate::{CardSpec, Faults, Simulated};
use plimsoll::device::{Device, DeviceConfig, DeviceError, DeviceSet};
use plimsoll::ledger::SubmitError;
use plimsoll::pipeline::{JobError, Pipeline, Rejection};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};

/// What a card has, of which a job takes a third.
const CARD: Bytes = Bytes(48 << 10);
const INPUT_BYTES: usize = 12 << 10;

fn input(device: u16) -> Class {
    Class::new("device.input", Space::device(device))
}

fn scratch(device: u16) -> Class {
    Class::new("device.scratch", Space::device(device))
}

/// The same two stages on each device.
fn on(device: u16, len: usize) -> Profile {
    let inputs = Demand::new().bytes(input(device), Bytes(len as u64));
    Profile::new().stage("stage in", inputs.clone().on_lane(device), inputs.clone()).stage(
        "compute",
        inputs.on_lease(device).bytes(scratch(device), Bytes(4 << 10)),
        Demand::new(),
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::new(Budget::new().device(0, CARD, 2).device(1, CARD, 2));
    // The second card breaks at its 60th call.
    let faults = [None, Some(60)].map(|broken_at| Faults { broken_at, ..Faults::default() });
    let cards = faults.map(|faults| Simulated::new(CardSpec { memory: CARD, faults, ..CardSpec::default() }));
    let mut devices = Vec::new();
    for (number, card) in (0..).zip(&cards) {
        devices.push(Device::start(number, card.clone(), &ledger, DeviceConfig::default())?);
    }
    let devices = DeviceSet::new(devices);
    let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() })?;

    // In turn; with `Builder::alternatives` the ledger takes whichever is free.
    let turns = devices.clone();
    let profile = move |bytes: &Vec<u8>| on(turns.preferred(|_| false)[0], bytes.len());
    let pipeline = Pipeline::builder(&ledger, &pool, profile)
        .device_stage("stage in", &devices, |cx, bytes: Vec<u8>| {
            let buffer = cx.upload(input(cx.device()), &bytes)?;
            Ok::<_, DeviceError>(cx.keep(buffer))
        })
        .compute_stage("compute", &devices, |cx, staged| {
            let device = cx.device();
            let inputs = cx.adopt(staged)?;
            let sum = cx.allocate(scratch(device), Bytes(8))?;
            let kernel = || {
                let total: u64 = inputs.memory().read(|bytes| bytes.iter().copied().map(u64::from).sum());
                sum.memory().write(|out| *out = total.to_le_bytes().to_vec());
            };
            cx.call(|lane| lane.kernel(Duration::from_millis(1), &[inputs.memory(), sum.memory()], kernel))?;
            let mut host = [0; 8];
            cx.copy_out(&sum, 0, &mut host)?;
            Ok((device, u64::from_le_bytes(host)))
        })
        .build()?;

    let jobs = (1..=30u8).map(|at| (format!("job {at}"), vec![at; INPUT_BYTES]));
    let mut done = [0; 2];
    let mut failed = 0;
    for (at, result) in pipeline.run_all(jobs) {
        match result {
            Ok((device, sum)) => {
                assert_eq!(sum, (at as u64 + 1) * INPUT_BYTES as u64);
                done[device as usize] += 1;
            }
            Err(JobError::Stage { source: DeviceError::Lost(_), .. } | JobError::NotEntered { .. }) => failed += 1,
            // Its card was chosen a moment before that was lost.
            Err(JobError::Rejected { source: Rejection::Ledger(refusal), .. })
                if matches!(*refusal, SubmitError::Lost(_)) =>
            {
                failed += 1;
            }
            Err(other) => return Err(other.into()),
        }
    }
    println!("computed on card 0: {}, on card 1: {}, failed with card 1: {failed}", done[0], done[1]);
    for loss in devices.losses() {
        println!("{loss}");
    }
    for (number, card) in cards.iter().enumerate() {
        let stats = card.stats();
        println!("card {number}: at most {} of {CARD} in {} calls", stats.allocated_bytes_peak, stats.calls);
        assert!(stats.allocated_bytes_peak <= CARD && stats.kernels_beside_kernels == 0);
    }
    drop(pipeline);
    assert!(ledger.snapshot().is_empty());
    assert_eq!(done[0] + done[1] + failed, 30);
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("a card that is well");
}
