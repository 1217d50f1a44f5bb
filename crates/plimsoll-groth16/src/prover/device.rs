//! Proofs whose heavy part is made on devices.
//!
//! | stage | where | gives back |
//! |---|---|---|
//! | synthesise, evaluate | workers | |
//! | [stage in](DeviceProver::stage_in) | a lane | a, b and the assignment in host memory |
//! | [compute](DeviceProver::compute) | a lane with the lease | everything on the device |
//! | [assemble](Prover::assemble), or [finish](Prover::finish), which verifies the proof where the prover is to | a worker | |
//!
//! So the upload of one proof overlaps the kernels of another, and what is left after the kernels is a worker's. Keys are
//! residencies: loaded once to each device, kept as long as nobody needs their room more, pinned by the jobs that go there. Where a
//! device has no room for the key beside a proof, its points pass through it.
//!
//! A job may go by several plans; the ledger grants the first that fits. Should the device turn out to have less memory than
//! it promised, because somebody else uses it, the stage is run again, and at last with a smaller plan; what was staged in
//! stays where it is. That ends where the device begins to compute: the scalars are used up by it, so a run belongs to the one
//! that takes them. What fails after that is told as it is, and a job that can begins again
//! [from its start](Builder::from_start); a second run on the same scalars is refused ([`ProveError::UsedUp`]).

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use blstrs::Scalar;
use ff::Field;
use plimsoll::device::{Device, DeviceError, DeviceSet, DriverLane, LaneCx, LeaseCx, NotAdopted, Staged};
use plimsoll::ledger::{ReserveError, Residency};
use plimsoll::pipeline::{Builder, Failure};
use plimsoll::{Bytes, Charged, Demand, Ledger, Profile, StageProfile};

use super::b_g2::Openings;
use super::evaluate::Evaluated;
use super::synthesise::Witness;
use super::{ProveError, Prover};
use crate::device::{
    DeviceBackend, DevicePlan, DeviceSizes, DeviceWork, KeyLayout, KeyPoints, Residence, ScalarLayout, abc, buckets,
    points, workspace,
};
use crate::keys::{HBasis, ProvingKey};
use crate::r1cs::{Density, R1cs, Values};
use crate::secret::{SecretPoint, SecretVec};

pub use crate::footprint::DEVICE_STAGES;

/// About how long a key takes to load again, a byte: for the choice of what is evicted.
const LOAD_NANOSECONDS_PER_KIB: u64 = 100;

/// Makes proofs of one circuit with one key on a set of devices.
#[derive(Debug)]
pub struct DeviceProver<D: DeviceBackend> {
    prover: Prover,
    devices: DeviceSet<D>,
    sizes: DeviceSizes,
    residence: Residence,
    layout: ScalarLayout,
    /// For each device, in the set's order.
    sites: Arc<Vec<Site<D>>>,
}

/// One device of the set.
#[derive(Debug)]
struct Site<D: DeviceBackend> {
    device: Device<D>,
    plans: Vec<DevicePlan<D::Plan>>,
    key: Option<Residency<Arc<Staged<D>>>>,
}

impl<D: DeviceBackend> Clone for DeviceProver<D> {
    fn clone(&self) -> Self {
        let Self { prover, devices, sizes, residence, layout, sites } = self;
        Self {
            prover: prover.clone(),
            devices: devices.clone(),
            sizes: *sizes,
            residence: *residence,
            layout: *layout,
            sites: sites.clone(),
        }
    }
}

/// A proof's scalars on a device, waiting for its lease.
pub struct OnDevice<D: DeviceBackend> {
    scalars: RefCell<Scalars<D>>,
    /// Taken when the device is done with them.
    public_inputs: RefCell<Option<Charged<Vec<Scalar>>>>,
}

/// The scalars are there for one run that begins.
enum Scalars<D: DeviceBackend> {
    Staged(Staged<D>),
    /// A run has taken them, and may have said why it failed.
    UsedUp(Option<DeviceError>),
}

impl<D: DeviceBackend> fmt::Debug for OnDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("OnDevice");
        match self.scalars.try_borrow().as_deref() {
            Ok(Scalars::Staged(staged)) => tuple.field(staged).finish(),
            _ => tuple.finish_non_exhaustive(),
        }
    }
}

/// There is no way to make these proofs on these devices.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceProverError {
    /// Even with the points passing through, a device's memory is too small.
    #[error("device {device} has a budget of {memory}, which is too little for even one proof of this circuit")]
    TooSmall {
        /// The device.
        device: u16,
        /// Its budget.
        memory: Bytes,
    },
    /// The prover's key is not in memory.
    #[error("the prover's key passes through memory, where a device would have to find it; load it whole")]
    KeyStreamed,
    /// The key is no residency of the ledger's.
    #[error(transparent)]
    Residency(#[from] ReserveError),
}

impl<D: DeviceBackend> DeviceProver<D> {
    /// On these devices, whose memory is what `ledger`'s budget says. All of them keep the key, or none does.
    ///
    /// # Errors
    ///
    /// If a device is too small.
    pub fn new(prover: Prover, devices: DeviceSet<D>, ledger: &Ledger) -> Result<Self, DeviceProverError> {
        Self::with_residence(prover.clone(), devices.clone(), ledger, Residence::Resident)
            .or_else(|_| Self::with_residence(prover, devices, ledger, Residence::Streamed))
    }

    /// The same, with the points where the caller says.
    ///
    /// # Errors
    ///
    /// If a device is too small for that.
    pub fn with_residence(
        prover: Prover,
        devices: DeviceSet<D>,
        ledger: &Ledger,
        residence: Residence,
    ) -> Result<Self, DeviceProverError> {
        if prover.is_streamed() {
            return Err(DeviceProverError::KeyStreamed);
        }
        let sizes = DeviceSizes::new(prover.r1cs(), prover.key().h.basis);
        let layout = ScalarLayout::new(&sizes, residence);
        let key_bytes = match residence {
            Residence::Resident => KeyLayout::new(&sizes).bytes,
            Residence::Streamed => Bytes::ZERO,
        };
        let mut sites = Vec::new();
        for device in devices.devices() {
            let number = device.number();
            let space = points(number).space();
            let memory = ledger.snapshot().space(space).map_or(Bytes::ZERO, |space| space.limit);
            // With room for a second proof's scalars, so that they come while the first is computed; or without.
            let plans = [2, 1].into_iter().find_map(|proofs| {
                let room = memory.checked_sub(key_bytes)?.checked_sub(layout.bytes.times(proofs))?;
                let plans = device.driver().plans(&sizes, residence, room);
                (!plans.is_empty()).then_some(plans)
            });
            let plans = plans.ok_or(DeviceProverError::TooSmall { device: number, memory })?;
            let key = match residence {
                Residence::Streamed => None,
                Residence::Resident => {
                    let cost = Duration::from_nanos(key_bytes.0 / 1024 * LOAD_NANOSECONDS_PER_KIB);
                    Some(ledger.residency("proving key", points(number), key_bytes, cost)?)
                }
            };
            sites.push(Site { device: device.clone(), plans, key });
        }
        Ok(Self { prover, devices, sizes, residence, layout, sites: Arc::new(sites) })
    }

    /// The prover whose other stages these stand between.
    pub fn prover(&self) -> &Prover {
        &self.prover
    }

    /// The devices.
    pub fn devices(&self) -> &DeviceSet<D> {
        &self.devices
    }

    /// Where the key's points are.
    pub fn residence(&self) -> Residence {
        self.residence
    }

    /// A profile for each way to make one proof: the fastest on each device that is well first, the preferred device first
    /// among those. `threads` are those of the pool that synthesises.
    pub fn profiles(&self, threads: usize) -> Vec<Profile> {
        let is_resident =
            |number| self.site(number).and_then(|site| site.key.as_ref()).is_some_and(Residency::is_resident);
        let mut devices = self.devices.preferred(is_resident);
        if devices.is_empty() {
            devices.extend(self.sites.first().map(|site| site.device.number()));
        }
        let most = self.sites.iter().map(|site| site.plans.len()).max().unwrap_or(0);
        let each = (0..most).flat_map(|rank| devices.iter().map(move |&device| (rank, device)));
        each.filter_map(|(rank, device)| Some(self.profile(threads, device, self.site(device)?.plans.get(rank)?)))
            .collect()
    }

    fn profile(&self, threads: usize, device: u16, plan: &DevicePlan<D::Plan>) -> Profile {
        let [_, _, stage_in, compute, _] = DEVICE_STAGES;
        let scalars = |demand: &Demand| demand.clone().bytes(abc(device), self.layout.bytes);
        let host = self.prover.footprint(threads).device_profile();
        host.stages().iter().fold(Profile::new(), |profile, StageProfile { name, peak, keep, .. }| {
            let (peak, keep) = match *name {
                name if name == stage_in => (scalars(peak).on_lane(device), scalars(keep)),
                name if name == compute => {
                    let computing = scalars(peak)
                        .bytes(points(device), plan.points)
                        .bytes(buckets(device), plan.buckets)
                        .bytes(workspace(device), plan.workspace);
                    (computing.on_lease(device), keep.clone())
                }
                _ => (peak.clone(), keep.clone()),
            };
            profile.stage(name, peak, keep)
        })
    }

    fn site(&self, device: u16) -> Option<&Site<D>> {
        self.sites.iter().find(|site| site.device.number() == device)
    }

    /// Has each job of a pipeline need the key on the device that it goes to, where that is to be resident.
    pub fn with_keys<In, Out, E>(&self, builder: Builder<In, Out, E>) -> Builder<In, Out, E>
    where
        In: Send + 'static,
        Out: Send + 'static,
        E: Send + 'static,
    {
        self.sites.iter().fold(builder, |builder, site| {
            let Some(residency) = &site.key else { return builder };
            let layout = KeyLayout::new(&self.sizes);
            let (key, r1cs) = (self.prover.key().clone(), self.prover.r1cs().clone());
            builder.needs_on(&site.device, residency, move |lane, memory| {
                copy_key::<D, _>(&key, &r1cs, &layout, &mut |bytes, at| lane.copy_in(bytes, memory, at))
            })
        })
    }

    /// Copies a proof's scalars to the device, and gives back what they were in host memory.
    ///
    /// # Errors
    ///
    /// As the device says.
    pub fn stage_in(&self, cx: &mut LaneCx<'_, D>, evaluated: Evaluated) -> Result<OnDevice<D>, ProveError> {
        let Evaluated { witness: Witness { assignment, public_inputs }, mut a, b, c } = evaluated;
        // Made again on the device, where it would take longer to get to.
        drop(c);
        let layout = &self.layout;
        let mut buffer = cx.allocate(abc(cx.device()), layout.bytes)?;
        let [a_at, b_at] = layout.factors;
        // To erase them and give them back takes longer than the copies do. So each goes on a thread of its own, and none
        // outlives the stage, whose bytes they are.
        std::thread::scope(|scope| {
            let done = |values: SecretVec| {
                // Where the system has no thread, the closure is dropped here, and the values with it.
                let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(values));
            };
            cx.copy_in(&D::scalars(&a), &mut buffer, a_at)?;
            let b = match b {
                Some(b) => {
                    done(a);
                    b
                }
                // Not evaluated for a device: it is made where a was, which is there now.
                None => {
                    self.prover.r1cs().evaluate_every(Values::Right, &assignment, 0, 1, &mut a);
                    a
                }
            };
            for (values, at) in [(b, b_at), (assignment, layout.assignment)] {
                cx.copy_in(&D::scalars(&values), &mut buffer, at)?;
                done(values);
            }
            Ok::<_, ProveError>(())
        })?;
        if self.residence == Residence::Streamed {
            let r1cs = self.prover.r1cs();
            let mut copy = |bytes: &[u8], at: u64| cx.copy_in(bytes, &mut buffer, at);
            copy_indices(r1cs, &mut copy, layout.index_a, layout.index_b)?;
        }
        let scalars = RefCell::new(Scalars::Staged(cx.keep(buffer)));
        Ok(OnDevice { scalars, public_inputs: RefCell::new(Some(public_inputs)) })
    }

    /// Makes the quotient and the multiplications, with the fastest plan that was granted.
    ///
    /// # Errors
    ///
    /// As the device says. It can be called again with the same scalars as long as the device has not begun to compute, and is
    /// [`ProveError::UsedUp`] after that.
    pub fn compute(&self, cx: &mut LeaseCx<'_, D>, staged: &OnDevice<D>) -> Result<Openings, ProveError> {
        let device = cx.device();
        let site = self.site(device).ok_or(ProveError::Stopped)?;
        let grant = cx.grant();
        let granted = |plan: &DevicePlan<D::Plan>| {
            grant.given(points(device)) >= plan.points
                && grant.given(buckets(device)) >= plan.buckets
                && grant.given(workspace(device)) >= plan.workspace
        };
        let plan = site.plans.iter().find(|plan| granted(plan)).or(site.plans.last()).ok_or(ProveError::Stopped)?;
        let resident = site.key.as_ref().and_then(|key| cx.grant().pinned(key)).cloned();
        let passing = cx.allocate(points(device), plan.points)?;
        let bucket_memory = cx.allocate(buckets(device), plan.buckets)?;
        let work_memory = cx.allocate(workspace(device), plan.workspace)?;
        let key = match &resident {
            Some(key) => KeyPoints::Resident(cx.lend(key)?, KeyLayout::new(&self.sizes)),
            None => KeyPoints::Streamed(self.prover.key()),
        };
        let (domain, basis) = (&self.prover.domain, self.prover.key().h.basis);
        let factor = match basis {
            HBasis::PowersOfTau => domain.vanishing_on_coset_inverse(),
            // The points carry it.
            HBasis::OddCosetLagrange => Scalar::ONE,
        };
        // From here on they are this run's.
        let taken = match staged.scalars.replace(Scalars::UsedUp(None)) {
            Scalars::Staged(taken) => taken,
            Scalars::UsedUp(cause) => {
                staged.scalars.replace(Scalars::UsedUp(cause.clone()));
                return Err(ProveError::UsedUp { cause });
            }
        };
        let scalars = cx.adopt(taken).map_err(|NotAdopted { error, staged: back }| {
            staged.scalars.replace(Scalars::Staged(back));
            *error
        })?;
        let work = DeviceWork {
            sizes: self.sizes,
            domain,
            factor: &factor,
            coefficients: basis == HBasis::PowersOfTau,
            scalars: scalars.memory(),
            layout: self.layout,
            key,
            points: passing.memory(),
            buckets: bucket_memory.memory(),
            workspace: work_memory.memory(),
        };
        let sums = cx.call(|lane| D::prove(lane, &plan.plan, work)).inspect_err(|error| {
            staged.scalars.replace(Scalars::UsedUp(Some(error.clone())));
        })?;
        let public_inputs = staged.public_inputs.borrow_mut().take().ok_or(ProveError::Stopped)?;
        Ok(Openings {
            h_and_l: SecretPoint::new(sums.h_and_l),
            a: SecretPoint::new(sums.a),
            b_g1: SecretPoint::new(sums.b_g1),
            b_g2: SecretPoint::new(sums.b_g2),
            public_inputs,
        })
    }
}

/// Copies a key's parts to where they belong.
fn copy_key<D: DeviceBackend, E>(
    key: &ProvingKey,
    r1cs: &R1cs,
    layout: &KeyLayout,
    copy: &mut impl FnMut(&[u8], u64) -> Result<(), E>,
) -> Result<(), E> {
    for (points, at) in [(&key.h.points, layout.h), (&key.l, layout.l), (&key.a, layout.a), (&key.b_g1, layout.b_g1)] {
        copy(&D::g1(points), at)?;
    }
    copy(&D::g2(&key.b_g2), layout.b_g2)?;
    copy_indices(r1cs, copy, layout.index_a, layout.index_b)
}

/// Copies which variables the a and b queries' points are for, unless for all.
fn copy_indices<E>(
    r1cs: &R1cs,
    copy: &mut impl FnMut(&[u8], u64) -> Result<(), E>,
    index_a: u64,
    index_b: u64,
) -> Result<(), E> {
    /// Copied at once.
    const PART: usize = 1 << 16;
    let mut members = |density: &Density, mut at: u64| {
        if density.total() == r1cs.variables() {
            return Ok(());
        }
        let mut part = Vec::with_capacity(4 * PART);
        for member in density.iter() {
            part.extend_from_slice(&u32::try_from(member).unwrap_or(u32::MAX).to_le_bytes());
            if part.len() == 4 * PART {
                copy(&part, at)?;
                at += part.len() as u64;
                part.clear();
            }
        }
        if part.is_empty() { Ok(()) } else { copy(&part, at) }
    };
    members(r1cs.a_density(), index_a)?;
    members(r1cs.b_density(), index_b)
}

impl ProveError {
    /// What kind of failure it is, for [`Builder::failures`].
    pub fn failure(&self) -> Failure {
        match self {
            ProveError::Device(error) => error.failure(),
            _ => Failure::Fatal,
        }
    }
}

mod pipeline;

#[cfg(test)]
mod tests;
