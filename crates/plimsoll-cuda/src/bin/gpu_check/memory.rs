//! What is touched, and what the driver says.

use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;
use plimsoll::device::{Device, DeviceConfig, DeviceError};
use plimsoll::{Budget, Bytes, Demand, JobSpec, Ledger, Profile};
use plimsoll_cuda::plan::msm::{Choice, MsmPlan, Points};
use plimsoll_cuda::plan::ntt::workspace_bytes;
use plimsoll_cuda::plan::{self, SCALAR_BYTES};
use plimsoll_cuda::{CudaDriver, DevicePoint, MsmMemory, Passing, PointSource, Scalars};
use plimsoll_groth16::backend::CurveGroup;
use plimsoll_groth16::domain::Domain;

use crate::conform::random_scalars;
use crate::{Outcome, arena_bytes, say};

const PATTERN: u8 = 0xa5;

pub(crate) fn info(_args: &[String]) -> Outcome {
    for device in 0..plimsoll_cuda::device_count()? {
        say(&format!("device {device}: {:?}", plimsoll_cuda::properties(device)?));
    }
    Ok(())
}

/// A device with its ledger.
pub(crate) fn start(arena: u64) -> Result<(Device<CudaDriver>, Ledger), Box<dyn std::error::Error>> {
    let driver = CudaDriver::open(0, arena)?;
    let ledger = Ledger::new(Budget::new().device(0, Bytes(driver.usable_bytes()), 2));
    let device = Device::start(0, driver, &ledger, DeviceConfig::default())?;
    Ok((device, ledger))
}

pub(crate) fn run(_args: &[String]) -> Outcome {
    let (device, ledger) = start(arena_bytes(8 << 10))?;
    let before = device.driver().driver_memory()?;
    for terms in [1_u64, 1000, 1 << 16, (1 << 18) + 77] {
        for (window_bits, windows_per_pass, chunks) in [(8, 4, 1), (12, 2, 3), (16, 16, 1), (13, 20, 2)] {
            let chunk = terms.div_ceil(chunks);
            for points in [Points::Resident, Points::Streamed] {
                let choice = Choice { window_bits, windows_per_pass, chunk, points };
                touched::<G1Affine>(&device, &ledger, CurveGroup::G1, terms, choice)?;
                touched::<G2Affine>(&device, &ledger, CurveGroup::G2, terms, choice)?;
            }
        }
    }
    quotient_touched(&device, &ledger)?;
    let after = device.driver().driver_memory()?;
    say(&format!("driver's free memory before {} and after {}", before.0, after.0));
    if before != after {
        return Err("the driver's free memory has moved".into());
    }
    if device.driver().used_bytes() != 0 {
        return Err("the arena is not empty at the end".into());
    }
    Ok(())
}

/// Runs a multiplication in pieces that are larger than the plan's and filled with a pattern; the last byte that is not the
/// pattern any more is the plan's last.
fn touched<P: DevicePoint + PrimeCurveAffine<Scalar = blstrs::Scalar>>(
    device: &Device<CudaDriver>,
    ledger: &Ledger,
    group: CurveGroup,
    terms: u64,
    choice: Choice,
) -> Outcome {
    let Some(plan) = MsmPlan::new(group, terms, choice, device.driver().shape()) else { return Ok(()) };
    let scalars = random_scalars(terms as usize);
    let resident = terms * plimsoll_cuda::plan::msm::point_bytes(group);
    let points_bytes = plan.point_bytes.max(resident);
    const SPARE: u64 = 1 << 20;
    let demand = Demand::new()
        .on_lease(0)
        .bytes(plan::abc(0), Bytes(terms * SCALAR_BYTES + 256))
        .bytes(plan::points(0), Bytes(points_bytes + SPARE))
        .bytes(plan::buckets(0), Bytes(plan.bucket_bytes + SPARE))
        .bytes(plan::workspace(0), Bytes(plan.workspace_bytes / 4 * 4 + SPARE));
    let mut job = ledger.submit(JobSpec::new("touch", Profile::new().stage("touch", demand, Demand::new())))?;
    let expected = [plan.point_bytes, plan.bucket_bytes, plan.workspace_bytes];
    let found = device
        .compute(job.enter(0).wait()?, move |cx| {
            let points: Vec<P> = vec![P::generator(); terms as usize];
            let scalar_bytes: Vec<u8> = scalars.iter().flat_map(plimsoll_cuda::scalar_bytes).collect();
            let staged = cx.upload(plan::abc(0), &scalar_bytes)?;
            let spare = cx.allocate(plan::abc(0), Bytes(256))?;
            let mut buffers = [
                cx.allocate(plan::points(0), Bytes(points_bytes + SPARE))?,
                cx.allocate(plan::buckets(0), Bytes(plan.bucket_bytes + SPARE))?,
                cx.allocate(plan::workspace(0), Bytes(plan.workspace_bytes / 4 * 4 + SPARE))?,
            ];
            for buffer in &buffers {
                cx.call(|lane| lane.fill(buffer.memory(), PATTERN))?;
            }
            if choice.points == Points::Resident {
                cx.copy_in(P::as_bytes(&points), &mut buffers[0], 0)?;
            }
            let [point_buffer, buckets, workspace] = &buffers;
            let memory = MsmMemory::of(buckets.memory(), workspace.memory());
            let source = match choice.points {
                Points::Resident => PointSource::Resident(point_buffer.memory(), 0),
                Points::Streamed => PointSource::Streamed(&points[..], Passing::of(point_buffer.memory(), &plan)),
            };
            cx.call(|lane| lane.msm::<P>(&plan, source, Scalars::of(staged.memory(), terms), memory))?;
            let mut found = [0; 3];
            for (found, buffer) in found.iter_mut().zip(&buffers) {
                *found = cx.call(|lane| lane.touched(buffer.memory(), PATTERN, spare.memory()))?;
            }
            if choice.points == Points::Resident {
                found[0] = 0;
            }
            Ok::<_, DeviceError>(found)
        })
        .wait()?;
    if found != expected {
        return Err(format!("{group:?} {terms} {choice:?}: touched {found:?}, planned {expected:?}").into());
    }
    Ok(())
}

fn quotient_touched(device: &Device<CudaDriver>, ledger: &Ledger) -> Outcome {
    let domain = Domain::with_log_size(16).ok_or("no such domain")?;
    let len = domain.size() as u64;
    const SPARE: u64 = 1 << 20;
    let demand = Demand::new()
        .on_lease(0)
        .bytes(plan::abc(0), Bytes(3 * len * SCALAR_BYTES + SPARE + 256))
        .bytes(plan::workspace(0), Bytes(workspace_bytes(true) + SPARE));
    let mut job = ledger.submit(JobSpec::new("touch", Profile::new().stage("touch", demand, Demand::new())))?;
    let scalars = random_scalars(len as usize);
    let found = device
        .compute(job.enter(0).wait()?, move |cx| {
            let mut abc = cx.allocate(plan::abc(0), Bytes(3 * len * SCALAR_BYTES + SPARE))?;
            let spare = cx.allocate(plan::abc(0), Bytes(256))?;
            let workspace = cx.allocate(plan::workspace(0), Bytes(workspace_bytes(true) + SPARE))?;
            cx.call(|lane| lane.fill(abc.memory(), PATTERN))?;
            cx.call(|lane| lane.fill(workspace.memory(), PATTERN))?;
            let bytes: Vec<u8> = scalars.iter().flat_map(plimsoll_cuda::scalar_bytes).collect();
            for vector in 0..3 {
                cx.copy_in(&bytes, &mut abc, vector * len * SCALAR_BYTES)?;
            }
            let vectors = [0, 1, 2].map(|vector| Scalars { piece: abc.memory(), at: vector * len * SCALAR_BYTES, len });
            let factor = domain.vanishing_on_coset_inverse();
            cx.call(|lane| lane.quotient(&domain, vectors, &factor, true, workspace.memory()))?;
            let abc = cx.call(|lane| lane.touched(abc.memory(), PATTERN, spare.memory()))?;
            let workspace = cx.call(|lane| lane.touched(workspace.memory(), PATTERN, spare.memory()))?;
            Ok::<_, DeviceError>([abc, workspace])
        })
        .wait()?;
    let expected = [3 * len * SCALAR_BYTES, workspace_bytes(true)];
    if found != expected {
        return Err(format!("the quotient touched {found:?}, planned {expected:?}").into());
    }
    Ok(())
}
