//! The device as a [`Backend`]: vectors come from the host and go back there, one operation at a time.
//!
//! This is what the conformance harness runs, and what serves a caller who has vectors in host memory. A pipeline that keeps
//! its vectors on the device between operations uses the lane's calls themselves ([`crate::prove`]).
//!
//! Each operation is a job of its own on the device's ledger: its profile is the plan's bytes by class and the lease, its
//! alternatives are plans with fewer bytes, and the ledger grants the first that fits. It needs no scratch in host memory.

use std::marker::PhantomData;
use std::sync::Arc;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::Group;
use plimsoll::device::{Device, DeviceConfig, DeviceError, DriverError, LeaseCx, StageError, StartError};
use plimsoll::ledger::{AnyLoad, EnterError, SubmitError};
use plimsoll::{Budget, Bytes, Demand, JobSpec, Ledger, Profile, Reservation, Space};
use plimsoll_groth16::backend::CurveGroup;
use plimsoll_groth16::backend::{Backend, BackendError, Transform, require_same_length, require_vectors_of};
use plimsoll_groth16::domain::Domain;

use crate::driver::CudaDriver;
use crate::kernels::Scalars;
use crate::msm::{DevicePoint, MsmMemory, Passing, PointSource};
use crate::plan::msm::{MsmPlan, Points};
use crate::plan::ntt::{MAX_LOG_SIZE, workspace_bytes};
use crate::plan::{self, SCALAR_BYTES, Shape};
use crate::raw::{bytes_of, bytes_of_mut};
use crate::staging::Staging;

/// How many alternatives a multiplication has, each with at most half of the bytes of the one before.
const ALTERNATIVES: usize = 6;

/// A CUDA device that computes with vectors in host memory.
#[derive(Debug)]
pub struct Cuda {
    device: Device<CudaDriver>,
    ledger: Ledger,
    shape: Shape,
    budget: u64,
    staging: Option<Staging>,
}

impl Cuda {
    /// On a device that has been started with this ledger, whose budget gives it so much memory. Copies go through
    /// [staging memory](Staging) where the budget names pinned memory, and are slow where it does not.
    pub fn new(device: Device<CudaDriver>, ledger: Ledger) -> Self {
        let (shape, budget) = (device.driver().shape(), device.driver().usable_bytes());
        let staging = Staging::new(device.driver(), DeviceConfig::default().lanes, &ledger).ok();
        Self { device, ledger, shape, budget, staging }
    }

    /// A device with a ledger of its own: for one who uses it alone.
    ///
    /// # Errors
    ///
    /// If its lanes cannot be started.
    pub fn alone(driver: CudaDriver) -> Result<Self, StartError> {
        let number = driver.device();
        let config = DeviceConfig::default();
        let budget = Budget::new().device(number, Bytes(driver.usable_bytes()), config.lanes as u64);
        let staging = Staging::bytes(config.lanes);
        let ledger = Ledger::new(budget.space(Space::HOST, staging).space(Space::PINNED, staging));
        let device = Device::start(number, driver, &ledger, config)?;
        Ok(Self::new(device, ledger))
    }

    /// The device.
    pub fn device(&self) -> &Device<CudaDriver> {
        &self.device
    }

    /// What it takes of host memory, all of it pinned: copies pass through there.
    pub fn staging_bytes(&self) -> Bytes {
        self.staging.as_ref().map_or(Bytes::ZERO, |staging| staging.residency().bytes())
    }

    /// The ledger that grants its memory.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Runs `f` on the device with what the first of `demands` says that fits.
    fn run<R: Send + 'static>(
        &self,
        operation: &'static str,
        demands: Vec<Demand>,
        f: impl for<'lease> FnOnce(&mut LeaseCx<'lease, CudaDriver>) -> Result<R, DeviceError> + Send + 'static,
    ) -> Result<R, BackendError> {
        let mut profiles = demands
            .into_iter()
            .map(|demand| Profile::new().stage(operation, demand.on_lease(self.device.number()), Demand::new()));
        let first = profiles.next().unwrap_or_default();
        let mut spec = profiles.fold(JobSpec::new(operation, first), JobSpec::or);
        if let Some(staging) = &self.staging {
            spec = spec.needs(staging.residency());
        }
        let refused = |message: String| BackendError::Device { operation, message };
        let mut job = self.ledger.submit(spec).map_err(|error| match error {
            SubmitError::NeverFits(why) if why.place.kind.device() == Some(self.device.number()) => {
                let free = why.limit.saturating_sub(why.retained);
                BackendError::DeviceOutOfMemory { operation, wanted: why.claim, free }
            }
            // Pinned memory for staging, say, which is not the device's.
            other => refused(other.to_string()),
        })?;
        let not_entered = |error: EnterError| match self.device.loss() {
            Some(loss) => BackendError::DeviceLost { operation, message: loss.to_string() },
            None => refused(error.to_string()),
        };
        while let Some(load) = job.load().wait().map_err(not_entered)? {
            self.load(load);
        }
        let grant = job.enter(0).wait().map_err(not_entered)?;
        self.device.compute(grant, f).wait().map_err(|error| told(operation, error))
    }

    /// The staging memory is all that the jobs need. Should it not be had, they are told.
    fn load(&self, load: AnyLoad) {
        let Some((staging, Ok(mut load))) =
            self.staging.as_ref().map(|staging| (staging, load.of(staging.residency())))
        else {
            return;
        };
        match staging.load(&mut load) {
            // A value that nobody wants any more is dropped here.
            Ok(area) => drop(load.fill(area)),
            Err(error) => load.fail(error),
        }
    }

    fn msm<P: DevicePoint>(
        &self,
        operation: &'static str,
        bases: &[P],
        scalars: &[Scalar],
    ) -> Result<P::Projective, BackendError> {
        if bases.len() != scalars.len() {
            return Err(BackendError::LengthMismatch { operation, left: bases.len(), right: scalars.len() });
        }
        let terms = scalars.len() as u64;
        if terms == 0 {
            return Ok(P::Projective::identity());
        }
        let number = self.device.number();
        let scalar_bytes = terms * SCALAR_BYTES;
        let plans = alternatives(P::GROUP, terms, self.shape, self.budget.saturating_sub(scalar_bytes));
        if plans.is_empty() {
            let smallest = MsmPlan::smallest(P::GROUP, terms, Points::Streamed, self.shape);
            let wanted = smallest.map_or(u64::MAX, |plan| plan.bytes() + scalar_bytes);
            return Err(BackendError::DeviceOutOfMemory { operation, wanted, free: self.budget });
        }
        let demands = plans.iter().map(|plan| {
            Demand::new()
                .bytes(plan::abc(number), Bytes(scalar_bytes))
                .bytes(plan::points(number), Bytes(plan.point_bytes))
                .bytes(plan::buckets(number), Bytes(plan.bucket_bytes))
                .bytes(plan::workspace(number), Bytes(plan.workspace_bytes))
        });
        let demands = demands.collect();
        let (bases, scalars) = (Borrowed::new(bases), Borrowed::new(scalars));
        self.run(operation, demands, move |cx| {
            let plan = &plans[cx.grant().choice()];
            // SAFETY: `run` waits for the end of this closure, and the caller's slices outlive `run`.
            let (bases, scalars) = unsafe { (bases.get(), scalars.get()) };
            let staged = cx.upload(plan::abc(number), bytes_of(scalars))?;
            let points = cx.allocate(plan::points(number), Bytes(plan.point_bytes))?;
            let buckets = cx.allocate(plan::buckets(number), Bytes(plan.bucket_bytes))?;
            let workspace = cx.allocate(plan::workspace(number), Bytes(plan.workspace_bytes))?;
            let memory = MsmMemory::of(buckets.memory(), workspace.memory());
            let source = PointSource::Streamed(bases, Passing::of(points.memory(), plan));
            cx.call(|lane| lane.msm(plan, source, Scalars::of(staged.memory(), terms), memory))
        })
    }
}

/// The fastest plan within a budget, and others with half of the bytes each.
fn alternatives(group: CurveGroup, terms: u64, shape: Shape, budget: u64) -> Vec<MsmPlan> {
    let mut plans: Vec<MsmPlan> = Vec::new();
    let mut free = budget;
    while plans.len() < ALTERNATIVES
        && let Some(plan) = MsmPlan::fastest(group, terms, Points::Streamed, shape, free)
    {
        free = plan.bytes() / 2;
        plans.push(plan);
    }
    plans
}

/// A failure on the device in the words of backends.
pub(crate) fn told(operation: &'static str, error: StageError<DeviceError>) -> BackendError {
    match error {
        StageError::OutOfMemory { wanted, free, .. } => {
            BackendError::DeviceOutOfMemory { operation, wanted: wanted.0, free: free.0 }
        }
        StageError::Stage(error) | StageError::Device(error) => told_of_device(operation, &error),
        StageError::Panicked { message } => std::panic::panic_any(message),
        other => BackendError::Device { operation, message: other.to_string() },
    }
}

/// The same of what a stage's own calls said.
pub(crate) fn told_of_device(operation: &'static str, error: &DeviceError) -> BackendError {
    match error {
        DeviceError::Lost(loss) => BackendError::DeviceLost { operation, message: loss.to_string() },
        DeviceError::Driver { source: DriverError::OutOfMemory { wanted, free }, .. } => {
            BackendError::DeviceOutOfMemory { operation, wanted: wanted.0, free: free.0 }
        }
        other => {
            let cause = std::error::Error::source(other).map_or(String::new(), |cause| format!(": {cause}"));
            BackendError::Device { operation, message: format!("{other}{cause}") }
        }
    }
}

fn require_size(operation: &'static str, domain: &Domain) -> Result<(), BackendError> {
    if domain.log_size() <= MAX_LOG_SIZE {
        return Ok(());
    }
    Err(BackendError::TooLarge { operation, len: domain.size(), max: 1 << MAX_LOG_SIZE })
}

impl Backend for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn ntt_scratch_bytes(&self, _n: usize, _threads: usize) -> u64 {
        0
    }

    fn quotient_scratch_bytes(&self, _n: usize, _threads: usize) -> u64 {
        0
    }

    fn msm_scratch_bytes(&self, _group: CurveGroup, _n: usize, _threads: usize) -> u64 {
        0
    }

    fn ntt(
        &self,
        domain: &Domain,
        data: &mut [Scalar],
        transform: Transform,
        _scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_same_length("ntt", domain.size(), data.len())?;
        require_size("ntt", domain)?;
        let number = self.device.number();
        let coset = matches!(transform, Transform::CosetForward | Transform::CosetInverse);
        let len = data.len() as u64;
        let demand = Demand::new()
            .bytes(plan::abc(number), Bytes(len * SCALAR_BYTES))
            .bytes(plan::workspace(number), Bytes(workspace_bytes(coset)));
        let (data, domain) = (BorrowedMut::new(data), domain.clone());
        self.run("ntt", vec![demand], move |cx| {
            // SAFETY: `run` waits for the end of this closure, and the caller's slice outlives `run`.
            let data = unsafe { data.get() };
            let buffer = cx.upload(plan::abc(number), bytes_of(data))?;
            let workspace = cx.allocate(plan::workspace(number), Bytes(workspace_bytes(coset)))?;
            cx.call(|lane| lane.transform(&domain, Scalars::of(buffer.memory(), len), transform, workspace.memory()))?;
            cx.copy_out(&buffer, 0, bytes_of_mut(data))
        })
    }

    fn quotient_on_coset(
        &self,
        domain: &Domain,
        a: &mut [Scalar],
        b: &mut [Scalar],
        c: &mut [Scalar],
        factor: &Scalar,
        _scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_vectors_of(domain, [a, b, c])?;
        require_size("quotient", domain)?;
        let number = self.device.number();
        let len = a.len() as u64;
        let demand = Demand::new()
            .bytes(plan::abc(number), Bytes(3 * len * SCALAR_BYTES))
            .bytes(plan::workspace(number), Bytes(workspace_bytes(true)));
        let (a, b, c) = (BorrowedMut::new(a), Borrowed::new(b), Borrowed::new(c));
        let (domain, factor) = (domain.clone(), *factor);
        self.run("quotient", vec![demand], move |cx| {
            // SAFETY: `run` waits for the end of this closure, and the caller's slices outlive `run`.
            let (a, b, c) = unsafe { (a.get(), b.get(), c.get()) };
            let class = plan::abc(number);
            let buffers =
                [cx.upload(class, bytes_of(a))?, cx.upload(class, bytes_of(b))?, cx.upload(class, bytes_of(c))?];
            let workspace = cx.allocate(plan::workspace(number), Bytes(workspace_bytes(true)))?;
            let vectors = buffers.each_ref().map(|buffer| Scalars::of(buffer.memory(), len));
            cx.call(|lane| lane.quotient(&domain, vectors, &factor, false, workspace.memory()))?;
            cx.copy_out(&buffers[0], 0, bytes_of_mut(a))
        })
    }

    fn mul_sub_scale(&self, a: &mut [Scalar], b: &[Scalar], c: &[Scalar], factor: &Scalar) -> Result<(), BackendError> {
        require_same_length("mul_sub_scale", a.len(), b.len())?;
        require_same_length("mul_sub_scale", a.len(), c.len())?;
        let number = self.device.number();
        let len = a.len() as u64;
        let demand = Demand::new().bytes(plan::abc(number), Bytes(3 * len * SCALAR_BYTES));
        let (a, b, c) = (BorrowedMut::new(a), Borrowed::new(b), Borrowed::new(c));
        let factor = *factor;
        self.run("mul_sub_scale", vec![demand], move |cx| {
            // SAFETY: `run` waits for the end of this closure, and the caller's slices outlive `run`.
            let (a, b, c) = unsafe { (a.get(), b.get(), c.get()) };
            let class = plan::abc(number);
            let buffers =
                [cx.upload(class, bytes_of(a))?, cx.upload(class, bytes_of(b))?, cx.upload(class, bytes_of(c))?];
            let [x, y, z] = buffers.each_ref().map(|buffer| Scalars::of(buffer.memory(), len));
            cx.call(|lane| lane.mul_sub_scale(x, y, z, &factor))?;
            cx.copy_out(&buffers[0], 0, bytes_of_mut(a))
        })
    }

    fn msm_g1(
        &self,
        bases: &[G1Affine],
        scalars: &[Scalar],
        _scratch: &mut Reservation,
    ) -> Result<G1Projective, BackendError> {
        self.msm("msm", bases, scalars)
    }

    fn msm_g2(
        &self,
        bases: &[G2Affine],
        scalars: &[Scalar],
        _scratch: &mut Reservation,
    ) -> Result<G2Projective, BackendError> {
        self.msm("msm", bases, scalars)
    }
}

/// A slice that goes to a lane's thread, for as long as the one who lent it waits there.
struct Borrowed<T>(*const T, usize, PhantomData<Arc<T>>);

// SAFETY: a `&[T]` may be sent where `T` is `Sync`.
unsafe impl<T: Sync> Send for Borrowed<T> {}

impl<T> Borrowed<T> {
    fn new(slice: &[T]) -> Self {
        Self(slice.as_ptr(), slice.len(), PhantomData)
    }

    /// # Safety
    ///
    /// The slice is still borrowed from its owner.
    unsafe fn get<'a>(&self) -> &'a [T] {
        // SAFETY: made from a slice; the caller says that it lives.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

/// The same, to be changed.
struct BorrowedMut<T>(*mut T, usize, PhantomData<Arc<T>>);

// SAFETY: a `&mut [T]` may be sent where `T` is `Send`.
unsafe impl<T: Send> Send for BorrowedMut<T> {}

impl<T> BorrowedMut<T> {
    fn new(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr(), slice.len(), PhantomData)
    }

    /// # Safety
    ///
    /// The slice is still borrowed from its owner, and this is called once.
    unsafe fn get<'a>(&self) -> &'a mut [T] {
        // SAFETY: made from a slice; the caller says that it lives, and that nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}
