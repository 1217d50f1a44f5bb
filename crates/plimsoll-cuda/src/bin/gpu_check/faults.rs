//! What goes wrong on real devices: typed errors, and a next job that is right.

use plimsoll::device::{Device, DeviceConfig, DeviceError, StageError};
use plimsoll::{Budget, Bytes, Demand, JobSpec, Ledger, Profile};
use plimsoll_cuda::error::OpenError;
use plimsoll_cuda::{Cuda, CudaDriver};
use plimsoll_groth16::backend::{BackendError, CurveGroup, conformance};

use crate::{Outcome, say};

pub(crate) fn run(_args: &[String]) -> Outcome {
    // A neighbour has all but a GiB.
    let free = plimsoll_cuda::properties(0)?.free_bytes;
    let neighbour = CudaDriver::open(0, free - (1 << 30))?;
    match CudaDriver::open(0, 4 << 30) {
        Err(OpenError::OutOfMemory { wanted, free }) => say(&format!("a neighbour: {wanted} wanted, {free} free")),
        other => return Err(format!("with a neighbour on the card: {other:?}").into()),
    }
    // The error does not stick to what comes next.
    conformance::check_msm(&Cuda::alone(CudaDriver::open(0, 512 << 20)?)?, CurveGroup::G1, 1000);
    drop(neighbour);
    let cuda = Cuda::alone(CudaDriver::open(0, 4 << 30)?)?;
    conformance::check_msm(&cuda, CurveGroup::G1, 1000);
    match plimsoll_cuda::properties(99) {
        Err(OpenError::NoSuchDevice { device: 99, count }) => say(&format!("no device 99 of {count}")),
        other => return Err(format!("device 99: {other:?}").into()),
    }

    // More memory than the arena has: the budget of a ledger that does not know.
    let driver = CudaDriver::open(0, 256 << 20)?;
    let ledger = Ledger::new(Budget::new().device(0, Bytes(1 << 30), 2));
    let device = Device::start(0, driver, &ledger, DeviceConfig::default())?;
    let class = plimsoll_cuda::plan::workspace(0);
    let job = |bytes: u64| {
        let demand = Demand::new().on_lease(0).bytes(class, Bytes(bytes));
        ledger.submit(JobSpec::new("job", Profile::new().stage("stage", demand, Demand::new())))
    };
    let take = |bytes: u64| -> Result<Result<(), StageError<DeviceError>>, Box<dyn std::error::Error>> {
        let mut job = job(bytes)?;
        let running = device.compute(job.enter(0).wait()?, move |cx| cx.allocate(class, Bytes(bytes)).map(drop));
        Ok(running.wait())
    };
    match take(512 << 20)? {
        Err(StageError::OutOfMemory { wanted, .. }) => say(&format!("the arena is out of memory: {wanted} wanted")),
        other => return Err(format!("beyond the arena: {other:?}").into()),
    }
    take(64 << 20)?.map_err(|error| format!("after being out of memory: {error}"))?;

    // An error that sticks. It is this process's last act on the device.
    let mut broken = job(4096)?;
    let outcome = device.compute(broken.enter(0).wait()?, |cx| {
        cx.call(|lane| lane.break_context())?;
        cx.synchronise()
    });
    match outcome.wait() {
        Err(StageError::Device(DeviceError::Lost(loss)) | StageError::Stage(DeviceError::Lost(loss))) => {
            say(&format!("a context that breaks: {loss}"));
        }
        other => return Err(format!("a context that breaks: {other:?}").into()),
    }
    drop(broken);
    if device.loss().is_none() {
        return Err("the device was not given up".into());
    }
    let retired = ledger.snapshot().space(plimsoll::Space::device(0)).and_then(|space| space.retired);
    say(&format!("retired with {retired:?} held"));
    match job(4096).map(|mut job| job.enter(0).wait().map(drop)) {
        Ok(Ok(())) => return Err("a lost device grants memory".into()),
        refused => say(&format!("afterwards: {refused:?}")),
    }
    match plimsoll_groth16::backend::Backend::msm_g1(
        &cuda,
        &crate::speed::points(100),
        &crate::conform::random_scalars(100),
        &mut crate::conform::nothing(),
    ) {
        Err(BackendError::DeviceLost { message, .. }) => say(&format!("another handle learns it too: {message}")),
        other => return Err(format!("after the loss: {other:?}").into()),
    }
    Ok(())
}

/// For a build without machine code for the device that is here: `PLIMSOLL_CUDA_ARCH=80`, on a device of another.
pub(crate) fn architecture(_args: &[String]) -> Outcome {
    let properties = plimsoll_cuda::properties(0)?;
    match CudaDriver::open(0, 1 << 30) {
        Err(error @ OpenError::WrongArchitecture { .. }) => {
            say(&error.to_string());
            Ok(())
        }
        other => Err(format!("{properties:?}: {other:?}").into()),
    }
}
