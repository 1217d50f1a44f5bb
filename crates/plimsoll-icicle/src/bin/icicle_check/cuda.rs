//! The same on a CUDA device by this project's own kernels, in the same process and on the same device.

use std::sync::Arc;
use std::time::Instant;

use blstrs::Scalar;
use plimsoll::device::{Device, DeviceConfig, DeviceError, StageError};
use plimsoll::{Budget, Bytes, Demand, JobSpec, Ledger, Profile};
use plimsoll_cuda::plan::msm::{MsmPlan, Points, point_bytes};
use plimsoll_cuda::plan::{self, SCALAR_BYTES};
use plimsoll_cuda::{Cuda, CudaDriver, DevicePoint, MsmMemory, PointSource, Scalars};
use plimsoll_groth16::backend::{Backend, CurveGroup, Transform};
use plimsoll_groth16::domain::Domain;

/// What it may take of the device, which ICICLE has the rest of.
const ARENA: u64 = 12 << 30;

/// The device, as a backend and with points that stay.
pub(crate) struct Beside {
    device: Device<CudaDriver>,
    ledger: Ledger,
    backend: Arc<Cuda>,
}

impl Beside {
    pub(crate) fn open(device: u16) -> Result<Self, String> {
        let driver = || CudaDriver::open(device, ARENA).map_err(|error| error.to_string());
        let backend = Cuda::alone(driver()?).map_err(|error| error.to_string())?;
        let resident = driver()?;
        let ledger = Ledger::new(Budget::new().device(device, Bytes(resident.usable_bytes()), 2));
        let device = Device::start(device, resident, &ledger, DeviceConfig::default());
        Ok(Self { device: device.map_err(|error| error.to_string())?, ledger, backend: Arc::new(backend) })
    }

    /// Seconds of a transform, from the host and back.
    pub(crate) fn ntt(&self, domain: &Domain, data: &mut [Scalar], transform: Transform) -> Result<f64, String> {
        let mut scratch = crate::figures::scratch(0)?;
        let started = Instant::now();
        self.backend.ntt(domain, data, transform, &mut scratch).map_err(|error| error.to_string())?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Seconds of `runs` multiplications, the points on the device already, the scalars from the host; and the sum.
    pub(crate) fn msm<P: DevicePoint + Copy>(
        &self,
        group: CurveGroup,
        points: &[P],
        scalars: &[Scalar],
        runs: usize,
    ) -> Result<(Vec<f64>, P::Projective), String>
    where
        P::Projective: Send,
    {
        let (number, terms) = (self.device.number(), scalars.len() as u64);
        let shape = self.device.driver().shape();
        let plan = MsmPlan::fastest(group, terms, Points::Resident, shape, 4 << 30).ok_or("no plan")?;
        let demand = Demand::new()
            .on_lease(number)
            .bytes(plan::abc(number), Bytes(terms * SCALAR_BYTES))
            .bytes(plan::points(number), Bytes(terms * point_bytes(group)))
            .bytes(plan::buckets(number), Bytes(plan.bucket_bytes))
            .bytes(plan::workspace(number), Bytes(plan.workspace_bytes));
        let text = |error: &dyn std::error::Error| error.to_string();
        let spec = JobSpec::new("msm", Profile::new().stage("msm", demand, Demand::new()));
        let mut job = self.ledger.submit(spec).map_err(|error| text(&error))?;
        let grant = job.enter(0).wait().map_err(|error| text(&error))?;
        let points = points.to_vec();
        let scalars: Vec<u8> = scalars.iter().flat_map(plimsoll_cuda::scalar_bytes).collect();
        let made = self.device.compute(grant, move |cx| {
            let key = cx.upload(plan::points(number), P::as_bytes(&points))?;
            let mut room = cx.allocate(plan::abc(number), Bytes(terms * SCALAR_BYTES))?;
            let buckets = cx.allocate(plan::buckets(number), Bytes(plan.bucket_bytes))?;
            let workspace = cx.allocate(plan::workspace(number), Bytes(plan.workspace_bytes))?;
            let memory = MsmMemory::of(buckets.memory(), workspace.memory());
            let mut seconds = Vec::new();
            let mut sum = None;
            for _ in 0..runs.max(1) {
                let started = Instant::now();
                cx.copy_in(&scalars, &mut room, 0)?;
                let source = PointSource::<P>::Resident(key.memory(), 0);
                sum = Some(cx.call(|lane| lane.msm(&plan, source, Scalars::of(room.memory(), terms), memory))?);
                seconds.push(started.elapsed().as_secs_f64());
            }
            Ok::<_, DeviceError>((seconds, sum))
        });
        let (seconds, sum) = made.wait().map_err(|error: StageError<DeviceError>| text(&error))?;
        Ok((seconds, sum.ok_or("no sum")?))
    }
}
