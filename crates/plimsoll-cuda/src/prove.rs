//! A whole proof on a lane: what [`DeviceBackend`] asks for.

use std::borrow::Cow;

use blstrs::{G1Affine, G1Projective, G2Affine, Scalar};
use group::Group;
use plimsoll::Bytes;
use plimsoll::device::DriverError;
use plimsoll_groth16::device::{DeviceBackend, DevicePlan, DeviceSizes, DeviceSums, DeviceWork, KeyPoints, Residence};

use crate::driver::{CudaDriver, CudaLane, Part, Piece};
use crate::kernels::Scalars;
use crate::msm::{DevicePoint, MsmMemory, Passing, PendingMsm, PointSource};
use crate::plan::SCALAR_BYTES;
use crate::plan::proof::{A, B_G1, B_G2, H, L, ProofPlan};
use crate::raw::bytes_of;

impl DeviceBackend for CudaDriver {
    type Plan = ProofPlan;

    fn name(&self) -> &'static str {
        "cuda"
    }

    fn plans(&self, sizes: &DeviceSizes, residence: Residence, memory: Bytes) -> Vec<DevicePlan<ProofPlan>> {
        ProofPlan::ways(sizes, residence, memory, self.shape())
    }

    fn scalars(values: &[Scalar]) -> Cow<'_, [u8]> {
        Cow::Borrowed(bytes_of(values))
    }

    fn g1(points: &[G1Affine]) -> Cow<'_, [u8]> {
        Cow::Borrowed(bytes_of(points))
    }

    fn g2(points: &[G2Affine]) -> Cow<'_, [u8]> {
        Cow::Borrowed(bytes_of(points))
    }

    fn prove(lane: &mut CudaLane, plan: &ProofPlan, work: DeviceWork<'_, Self>) -> Result<DeviceSums, DriverError> {
        let sums = Proof { plan, work: &work }.make(lane);
        // The witness does not stay in the device's memory.
        let erased = lane.fill(work.scalars, 0);
        sums.and_then(|sums| erased.map(|()| sums))
    }
}

struct Proof<'a> {
    plan: &'a ProofPlan,
    work: &'a DeviceWork<'a, CudaDriver>,
}

impl<'a> Proof<'a> {
    fn make(&self, lane: &mut CudaLane) -> Result<DeviceSums, DriverError> {
        let work = self.work;
        lane.clock_begins().map_err(|e| lane.failed(e))?;
        let [a, b] = work.layout.factors.map(|at| self.scalars(at, work.sizes.domain));
        let c = Scalars { piece: work.workspace, at: self.plan.product, len: work.sizes.domain };
        lane.mul(c, a, b)?;
        lane.quotient(work.domain, [a, b, c], work.factor, work.coefficients, work.workspace)?;
        self.gather(lane)?;
        lane.fork().map_err(|e| lane.failed(e))?;
        // Begun in turn, so that both streams have work from the start.
        let members = ProofPlan::members(self.plan.two_streams);
        let mut pending = [const { None }; 5];
        for round in 0..members[0].len().max(members[1].len()) {
            for (stream, members) in members.iter().enumerate() {
                if let Some(&msm) = members.get(round) {
                    pending[msm] = self.begin(lane, msm, stream)?;
                }
            }
        }
        lane.join().and_then(|()| lane.clock_ends()).map_err(|e| lane.failed(e))?;
        let [h, l, a, b_g1, b_g2] = pending;
        let mut g1 = |pending: Option<PendingMsm>| match pending {
            Some(pending) => lane.msm_finish::<G1Affine>(pending),
            None => Ok(G1Projective::identity()),
        };
        let (h, l, a, b_g1) = (g1(h)?, g1(l)?, g1(a)?, g1(b_g1)?);
        let b_g2 = match b_g2 {
            Some(pending) => lane.msm_finish::<G2Affine>(pending)?,
            None => blstrs::G2Projective::identity(),
        };
        lane.clock_counts().map_err(|e| lane.failed(e))?;
        Ok(DeviceSums { h_and_l: h + l, a, b_g1, b_g2 })
    }

    fn scalars(&self, at: u64, len: u64) -> Scalars<'a> {
        Scalars { piece: self.work.scalars, at, len }
    }

    /// Gathers the scalars of the variables that occur in a and in b, where b was.
    fn gather(&self, lane: &mut CudaLane) -> Result<(), DriverError> {
        let DeviceWork { sizes, layout, key, scalars, .. } = *self.work;
        let (piece, index_a, index_b): (&Piece, u64, u64) = match key {
            KeyPoints::Resident(piece, layout) => (piece, layout.index_a, layout.index_b),
            KeyPoints::Streamed(_) => (scalars, layout.index_a, layout.index_b),
        };
        let assignment = self.scalars(layout.assignment, sizes.variables);
        if !sizes.a_is_dense() {
            lane.gather(self.scalars(layout.gathered_a, sizes.a), assignment, piece, index_a)?;
        }
        if !sizes.b_is_dense() {
            lane.gather(self.scalars(layout.gathered_b, sizes.b), assignment, piece, index_b)?;
        }
        Ok(())
    }

    fn begin(&self, lane: &mut CudaLane, msm: usize, stream: usize) -> Result<Option<PendingMsm>, DriverError> {
        let DeviceWork { sizes, layout, key, .. } = self.work;
        let scalars = match msm {
            H => self.scalars(layout.factors[0], sizes.h),
            L => self.scalars(layout.assignment + sizes.inputs * SCALAR_BYTES, sizes.l),
            A => self.scalars(layout.gathered_a, sizes.a),
            _ => self.scalars(layout.gathered_b, sizes.b),
        };
        if msm == B_G2 {
            let points = match key {
                KeyPoints::Resident(piece, at) => PointSource::<G2Affine>::Resident(piece, at.b_g2),
                KeyPoints::Streamed(key) => PointSource::Streamed(&key.b_g2, self.passing(msm)),
            };
            return self.start(lane, msm, stream, points, scalars);
        }
        let points = match key {
            KeyPoints::Resident(piece, at) => {
                let at = match msm {
                    H => at.h,
                    L => at.l,
                    A => at.a,
                    _ => at.b_g1,
                };
                PointSource::<G1Affine>::Resident(piece, at)
            }
            KeyPoints::Streamed(key) => {
                let points = match msm {
                    H => &key.h.points,
                    L => &key.l,
                    A => &key.a,
                    _ => &key.b_g1,
                };
                PointSource::Streamed(points, self.passing(msm))
            }
        };
        debug_assert!(msm == H || msm == L || msm == A || msm == B_G1);
        self.start(lane, msm, stream, points, scalars)
    }

    fn passing(&self, msm: usize) -> Passing<'a> {
        let &ProofPlan { buffers: (count, each), turns, .. } = self.plan;
        Passing { first: self.work.points.into(), each, count, turn: turns[msm] }
    }

    fn start<P: DevicePoint>(
        &self,
        lane: &mut CudaLane,
        msm: usize,
        stream: usize,
        points: PointSource<'_, P>,
        scalars: Scalars<'_>,
    ) -> Result<Option<PendingMsm>, DriverError> {
        let Some(plan) = &self.plan.msms[msm] else { return Ok(None) };
        let at = &self.plan.streams[stream];
        let memory = MsmMemory {
            buckets: Part { piece: self.work.buckets, at: at.buckets },
            workspace: Part { piece: self.work.workspace, at: at.workspace },
            result: Some(Part { piece: self.work.workspace, at: self.plan.results[msm] }),
        };
        lane.msm_start(plan, points, scalars, memory, stream).map(Some)
    }
}
