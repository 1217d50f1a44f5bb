//! What proofs leave behind: on the device and in pinned memory nothing that is not zero, but for points.

use std::sync::Arc;

use plimsoll::device::DeviceError;
use plimsoll::pipeline::Pacing;
use plimsoll::{Bytes, Demand, JobSpec, Profile};
use plimsoll_cuda::plan;
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::device::Residence;
use plimsoll_groth16::prover::Prover;
use plimsoll_groth16::r1cs::R1cs;

use crate::circuits::{Chain, Kind};
use crate::prove::{pool, real_key};
use crate::setting::{Failed, Setting};
use crate::{Outcome, arena_bytes, number, say};

pub(crate) fn run(args: &[String]) -> Outcome {
    let log = number(args, 0, 16)?;
    let pool = pool()?;
    let circuit = Chain::new(log, Kind::Dense);
    let r1cs = R1cs::from_circuit(circuit)?;
    let key = real_key(&r1cs, &pool)?;
    let prover = Prover::new(Arc::new(r1cs), Arc::new(key), Arc::new(Cpu::new()))?;
    // Resident, so that no points pass through what is looked at.
    let setting = Setting::new(&prover, &pool, arena_bytes(2 << 10), Some(Residence::Resident), Pacing::Auto)?;
    // The key first; it stays where it is, and the rest of the arena is made all zeros.
    setting.pipeline.submit("first", circuit)?.wait()?;
    setting.pipeline.drain();
    write_all(&setting, 0)?;
    if written(&setting)? != 0 {
        return Err("what was filled with zeros is not zero".into());
    }
    for proof in setting.pipeline.run_all((0..4).map(|i| (format!("{i}"), circuit))) {
        proof.1?;
    }
    setting.pipeline.drain();
    let on_device = written(&setting)?;
    // That it would be seen: the same without erasing.
    write_all(&setting, 7)?;
    let seen = written(&setting)?;
    drop(setting);
    let staged =
        Setting::new(&prover, &pool, arena_bytes(2 << 10), Some(Residence::Streamed), Pacing::Auto)?.staged()?;
    say(&format!(
        "after 5 proofs of 2^{log}: the last byte of the free arena that is not zero is {on_device} (filled by hand: {seen}); bytes \
         of pinned memory that are not zero: {} after a copy of secret ones, {} after one of others",
        staged[0], staged[1]
    ));
    match (on_device, seen > 0, staged[0], staged[1] > 0) {
        (0, true, 0, true) => Ok(()),
        _ => Err("something is left, or would not be seen".into()),
    }
}

/// All of the arena that is free, as a piece for points, which nobody erases.
fn free(setting: &Setting) -> u64 {
    let driver = setting.device.driver();
    driver.usable_bytes() - driver.used_bytes() - 4096
}

/// Fills it.
fn write_all(setting: &Setting, byte: u8) -> Outcome {
    let bytes = free(setting);
    let demand = Demand::new().on_lease(0).bytes(plan::points(0), Bytes(bytes));
    let mut job = setting.ledger.submit(JobSpec::new("fill", Profile::new().stage("fill", demand, Demand::new())))?;
    let filled = setting.device.compute(job.enter(0).wait()?, move |cx| {
        let piece = cx.allocate(plan::points(0), Bytes(bytes))?;
        cx.call(|lane| lane.fill(piece.memory(), byte))
    });
    Ok(filled.wait().map_err(|error: plimsoll::device::StageError<DeviceError>| error.to_string())?)
}

/// One past its last byte that is not zero.
fn written(setting: &Setting) -> Result<u64, Failed> {
    let bytes = free(setting);
    let demand = Demand::new().on_lease(0).bytes(plan::points(0), Bytes(bytes + 256));
    let mut job = setting.ledger.submit(JobSpec::new("look", Profile::new().stage("look", demand, Demand::new())))?;
    let seen = setting.device.compute(job.enter(0).wait()?, move |cx| {
        let piece = cx.allocate(plan::points(0), Bytes(bytes))?;
        let spare = cx.allocate(plan::points(0), Bytes(256))?;
        cx.call(|lane| lane.touched(piece.memory(), 0, spare.memory()))
    });
    Ok(seen.wait().map_err(|error: plimsoll::device::StageError<DeviceError>| error.to_string())?)
}
