//! Multiplications on a lane, as their plan says: sort, accumulate, reduce, and the windows' sums put together here.

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective};
use group::Group;
use plimsoll::device::DriverError;
use plimsoll_groth16::backend::CurveGroup;

use crate::driver::{CudaLane, Part, Piece};
use crate::error::CudaError;
use crate::ffi::{self, Accumulate, Reduce, Sort};
use crate::kernels::Scalars;
use crate::plan::SCALAR_BYTES;
use crate::plan::msm::{MsmPlan, Points, bucket_bytes, jacobian_bytes, point_bytes};
use crate::plan::proof::BUFFERS_MAX;
use crate::raw::{Plain, Stream, bytes_of, bytes_of_mut, check};

/// Points as the kernels take them: blst's affine points, as they lie in memory.
pub trait DevicePoint: sealed::Sealed + Sized + Send + Sync + 'static {
    /// The same point in Jacobian coordinates.
    type Projective: Group + Copy;
    /// Which group it is of.
    const GROUP: CurveGroup;
    /// The points as bytes.
    fn as_bytes(points: &[Self]) -> &[u8];
    /// So many points from the bytes of Jacobian coordinates.
    fn projective_from(
        count: usize,
        read: &mut dyn FnMut(&mut [u8]) -> Result<(), DriverError>,
    ) -> Result<Vec<Self::Projective>, DriverError>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for blstrs::G1Affine {}
    impl Sealed for blstrs::G2Affine {}
}

impl DevicePoint for G1Affine {
    type Projective = G1Projective;
    const GROUP: CurveGroup = CurveGroup::G1;

    fn as_bytes(points: &[Self]) -> &[u8] {
        bytes_of(points)
    }

    fn projective_from(
        count: usize,
        read: &mut dyn FnMut(&mut [u8]) -> Result<(), DriverError>,
    ) -> Result<Vec<G1Projective>, DriverError> {
        read_points(count, read)
    }
}

impl DevicePoint for G2Affine {
    type Projective = G2Projective;
    const GROUP: CurveGroup = CurveGroup::G2;

    fn as_bytes(points: &[Self]) -> &[u8] {
        bytes_of(points)
    }

    fn projective_from(
        count: usize,
        read: &mut dyn FnMut(&mut [u8]) -> Result<(), DriverError>,
    ) -> Result<Vec<G2Projective>, DriverError> {
        read_points(count, read)
    }
}

fn read_points<P: Plain + Group>(
    count: usize,
    read: &mut dyn FnMut(&mut [u8]) -> Result<(), DriverError>,
) -> Result<Vec<P>, DriverError> {
    let mut points = vec![P::identity(); count];
    read(bytes_of_mut(&mut points))?;
    Ok(points)
}

/// Where a multiplication's points are.
#[derive(Clone, Copy, Debug)]
pub enum PointSource<'a, P> {
    /// On the device, from an offset in bytes on.
    Resident(&'a Piece, u64),
    /// In host memory: they pass through buffers.
    Streamed(&'a [P], Passing<'a>),
}

/// Buffers that points pass through in turn. Multiplications one after the other may share them: then the first points of the next
/// come while the last ones of the one before are computed with.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'a> {
    /// The first. The others follow.
    pub first: Part<'a>,
    /// From the beginning of one to the beginning of the next.
    pub each: u64,
    /// How many: at most [`BUFFERS_MAX`].
    pub count: usize,
    /// The one that the first chunk comes to, from 0 on.
    pub turn: usize,
}

/// Where they are on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buffers {
    base: u64,
    each: u64,
    count: usize,
}

impl<'a> Passing<'a> {
    /// For one multiplication by itself, in a piece of the plan's `point_bytes`.
    pub fn of(piece: &'a Piece, plan: &MsmPlan) -> Self {
        let count = if plan.chunks() > 1 { 2 } else { 1 };
        Self { first: piece.into(), each: plan.second_points(), count, turn: 0 }
    }

    /// The buffers, if each chunk of the plan fits where it is to come.
    fn buffers(&self, plan: &MsmPlan) -> Result<Buffers, DriverError> {
        let &Self { first, each, count, turn } = self;
        let refuse = |what: &str| Err(DriverError::Failed { message: format!("buffers for points: {what}") });
        if count == 0 || count > BUFFERS_MAX || turn >= count {
            return refuse("there are not so many");
        }
        for chunk in 0..plan.chunks().min(count as u64) {
            let at = (turn as u64 + chunk) % count as u64 * each;
            let len = plan.choice.chunk.min(plan.terms - chunk * plan.choice.chunk);
            let bytes = len * point_bytes(plan.group);
            if count > 1 && bytes > each {
                return refuse("they overlap");
            }
            first.piece.address(first.at + at, bytes)?;
        }
        Ok(Buffers { base: first.address(0)?, each, count })
    }
}

/// The memory of one multiplication.
#[derive(Clone, Copy, Debug)]
pub struct MsmMemory<'a> {
    /// Of the plan's `bucket_bytes`.
    pub buckets: Part<'a>,
    /// Of the plan's `workspace_bytes`.
    pub workspace: Part<'a>,
    /// A point for each window, where the result is to outlast the workspace: more is computed there before it is read.
    pub result: Option<Part<'a>>,
}

impl<'a> MsmMemory<'a> {
    /// Two pieces, for a multiplication whose result is read before anything else is done there.
    pub fn of(buckets: &'a Piece, workspace: &'a Piece) -> Self {
        Self { buckets: buckets.into(), workspace: workspace.into(), result: None }
    }
}

/// A multiplication that has been begun; [`CudaLane::msm_finish`] waits for it.
#[derive(Debug)]
#[must_use = "the sum is still on the device"]
pub struct PendingMsm {
    stream: usize,
    result: u64,
    windows: u32,
    window_bits: u32,
}

impl CudaLane {
    /// Begins Σ `scalars[i]`·`points[i]` on one of the lane's two streams.
    ///
    /// # Errors
    ///
    /// If a piece is smaller than the plan says, or the device says no.
    pub fn msm_start<P: DevicePoint>(
        &mut self,
        plan: &MsmPlan,
        points: PointSource<'_, P>,
        scalars: Scalars<'_>,
        memory: MsmMemory<'_>,
        stream: usize,
    ) -> Result<PendingMsm, DriverError> {
        let refuse = |what: &str| Err(DriverError::Failed { message: format!("the plan is for {what}") });
        if plan.group != P::GROUP {
            return refuse("the other group");
        }
        if plan.terms != scalars.len {
            return refuse("another number of terms");
        }
        let work = Work {
            plan,
            scalars: scalars.address()?,
            buckets: memory.buckets.address(plan.bucket_bytes)?,
            workspace: memory.workspace.address(plan.workspace_bytes)?,
            group: match plan.group {
                CurveGroup::G1 => 1,
                CurveGroup::G2 => 2,
            },
        };
        let each = point_bytes(plan.group);
        match (points, plan.choice.points) {
            (PointSource::Resident(piece, at), Points::Resident) => {
                let base = piece.address(at, plan.terms * each)?;
                let stream = &self.streams[stream];
                work.begin(stream).map_err(|e| self.failed(e))?;
                for chunk in 0..plan.chunks() {
                    let points = base + chunk * plan.choice.chunk * each;
                    work.chunk(stream, chunk, points).map_err(|e| self.failed(e))?;
                }
            }
            (PointSource::Streamed(points, passing), Points::Streamed) if points.len() as u64 == plan.terms => {
                self.streamed(&work, P::as_bytes(points), &passing, stream)?;
            }
            (PointSource::Streamed(..), Points::Streamed) => return refuse("another number of points"),
            _ => return refuse("points elsewhere"),
        }
        let mut result = work.end(&self.streams[stream]).map_err(|e| self.failed(e))?;
        if let Some(place) = memory.result {
            let bytes = u64::from(plan.windows) * jacobian_bytes(plan.group);
            let place = place.address(bytes)?;
            self.streams[stream].copy_within(place, result, bytes).map_err(|e| self.failed(e))?;
            result = place;
        }
        Ok(PendingMsm { stream, result, windows: plan.windows, window_bits: plan.choice.window_bits })
    }

    /// Waits for a multiplication and puts its windows together.
    ///
    /// # Errors
    ///
    /// As the device says.
    pub fn msm_finish<P: DevicePoint>(&mut self, pending: PendingMsm) -> Result<P::Projective, DriverError> {
        let PendingMsm { stream, result, windows, window_bits } = pending;
        let stream = &self.streams[stream];
        let mut sums = P::projective_from(windows as usize, &mut |bytes| {
            stream.copy_out(bytes, result).map_err(|e| self.failed(e))
        })?;
        let mut sum = P::Projective::identity();
        for window in sums.iter().rev() {
            for _ in 0..window_bits {
                sum = sum.double();
            }
            sum += window;
        }
        // They tell of the scalars.
        sums.fill(P::Projective::identity());
        zeroize::optimization_barrier(&*sums);
        Ok(sum)
    }

    /// Both at once, on the first stream.
    ///
    /// # Errors
    ///
    /// As both.
    pub fn msm<P: DevicePoint>(
        &mut self,
        plan: &MsmPlan,
        points: PointSource<'_, P>,
        scalars: Scalars<'_>,
        memory: MsmMemory<'_>,
    ) -> Result<P::Projective, DriverError> {
        let pending = self.msm_start(plan, points, scalars, memory, 0)?;
        self.msm_finish::<P>(pending)
    }

    /// Chunk by chunk: while one is computed with, the next one comes.
    fn streamed(
        &mut self,
        work: &Work<'_>,
        points: &[u8],
        passing: &Passing<'_>,
        stream: usize,
    ) -> Result<(), DriverError> {
        let plan = work.plan;
        let each = point_bytes(plan.group);
        let buffers = passing.buffers(plan)?;
        let others = std::mem::replace(&mut self.passed, buffers) != buffers;
        work.begin(&self.streams[stream]).map_err(|e| self.failed(e))?;
        for chunk in 0..plan.chunks() {
            let turn = (passing.turn + chunk as usize) % buffers.count;
            let buffer = buffers.base + turn as u64 * buffers.each;
            let first = chunk * plan.choice.chunk;
            let len = plan.choice.chunk.min(plan.terms - first);
            let bytes = &points[(first * each) as usize..((first + len) * each) as usize];
            let mut step = || {
                if chunk == 0 && others {
                    // The last chunks of an earlier multiplication may lie across any buffers of this one.
                    self.consumed.iter().try_for_each(|consumed| self.copies.wait(consumed))?;
                }
                // What was there before, of this multiplication or of the one before; what came after that is still computed with.
                self.copies.wait(&self.consumed[turn])?;
                let stream = &self.streams[stream];
                // From here on the stream has nothing to do but wait, also while this thread fills staging memory.
                self.clock.marks(stream)?;
                // Points are no secret.
                self.send(buffer, bytes, false, &self.copies)?;
                self.arrived[turn].record(&self.copies)?;
                stream.wait(&self.arrived[turn])?;
                self.clock.marks(stream)?;
                work.chunk(stream, chunk, buffer)?;
                self.consumed[turn].record(stream)
            };
            step().map_err(|e: CudaError| self.failed(e))?;
        }
        Ok(())
    }
}

/// A multiplication's addresses.
struct Work<'a> {
    plan: &'a MsmPlan,
    scalars: u64,
    buckets: u64,
    workspace: u64,
    group: i32,
}

impl Work<'_> {
    fn at(&self, offset: u64) -> ffi::Pointer {
        (self.workspace + offset) as ffi::Pointer
    }

    /// Empties the buckets.
    fn begin(&self, stream: &Stream) -> Result<(), CudaError> {
        stream.fill(self.buckets, 0, self.plan.bucket_bytes)
    }

    /// Adds the terms of a chunk, whose points are at `points`, to the buckets.
    fn chunk(&self, stream: &Stream, chunk: u64, points: u64) -> Result<(), CudaError> {
        let MsmPlan { choice, regions, windows, slices, group, .. } = self.plan;
        let first = chunk * choice.chunk;
        let n = choice.chunk.min(self.plan.terms - first) as u32;
        let scalars = self.scalars + first * SCALAR_BYTES;
        // SAFETY: device memory of the planned sizes.
        let code = unsafe { ffi::pc_msm_canonical(self.at(regions.canonical), scalars as _, n, stream.raw()) };
        check("reading scalars", code)?;
        let each = 1_u32 << (choice.window_bits - 1);
        let mut first_window = 0;
        while first_window < *windows {
            let pass = choice.windows_per_pass.min(windows - first_window);
            let sort = Sort {
                scalars: self.at(regions.canonical),
                ends: self.at(regions.ends),
                sums: self.at(regions.sums),
                entries: self.at(regions.entries),
                n,
                window_bits: choice.window_bits,
                first_window,
                windows: pass,
            };
            // SAFETY: device memory of the planned sizes.
            check("sorting", unsafe { ffi::pc_msm_sort(&sort, stream.raw()) })?;
            let buckets = self.buckets + u64::from(first_window * each) * bucket_bytes(*group);
            let accumulate = Accumulate {
                buckets_at: buckets as _,
                points: points as _,
                ends: self.at(regions.ends),
                entries: self.at(regions.entries),
                carry: regions.carries.map(|at| self.at(at)),
                carry_key: regions.carry_keys.map(|at| self.at(at)),
                buckets: pass * each,
                slices: *slices,
                merge: (chunk > 0).into(),
            };
            // SAFETY: device memory of the planned sizes.
            check("adding up", unsafe { ffi::pc_msm_accumulate(self.group, &accumulate, stream.raw()) })?;
            first_window += pass;
        }
        Ok(())
    }

    /// Adds up the buckets; says where the windows' sums will be.
    fn end(&self, stream: &Stream) -> Result<u64, CudaError> {
        let MsmPlan { choice, regions, windows, .. } = self.plan;
        let reduce = Reduce {
            buckets: self.buckets as _,
            sum: regions.reduce_sums.map(|at| self.at(at)),
            weighted: regions.reduce_weighted.map(|at| self.at(at)),
            result: self.at(regions.result),
            windows: *windows,
            window_bits: choice.window_bits,
        };
        // SAFETY: device memory of the planned sizes.
        check("adding up buckets", unsafe { ffi::pc_msm_reduce(self.group, &reduce, stream.raw()) })?;
        Ok(self.workspace + regions.result)
    }
}
