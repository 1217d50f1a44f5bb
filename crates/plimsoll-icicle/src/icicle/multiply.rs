//! Multi-scalar multiplications: admitted by plan, cut where they have to be, made again once after they were out of memory.

use blstrs::Scalar;
use group::Group;
use plimsoll::{Bytes, Demand, Grant, Reservation};
use plimsoll_groth16::backend::BackendError;

use super::bases::{KeyCurve, Known};
use super::books::taken_since;
use super::{Buffer, DOUBTS_MAX, Failure, Inner, abc, buckets, class, margin, points, workspace};
use crate::abi::SCALAR_BYTES;
use crate::convert::affine_bytes;
use crate::error::{CallError, Fault};
use crate::memory::MsmPlan;
use crate::owner::{MsmCall, Part, Sum};

const WHAT: &str = "msm";
/// How often a multiplication is begun again, with a larger prediction or a smaller plan.
const TRIES: u32 = 3;

impl Inner {
    /// Σ `scalars[i]`·`bases[i]`; as many of the one as of the other.
    pub(super) fn msm<C: KeyCurve>(&self, bases: &[C], scalars: &[Scalar]) -> Result<C::Curve, BackendError> {
        if scalars.is_empty() {
            return Ok(C::Curve::identity());
        }
        let mut known = self.known(bases);
        // What a plan may take. Less after a call that found less free than its plan needs.
        let mut limit = self.limit;
        let (mut tries, mut doubts) = (1, 0);
        loop {
            self.book_leaks();
            let correction = self.account.correction(C::GROUP);
            let terms = scalars.len() as u64;
            let ways = MsmPlan::ways(C::GROUP, terms, known.is_some(), self.scratch, correction, limit);
            if ways.is_empty() {
                let wanted = MsmPlan::smallest(C::GROUP, terms, known.is_some(), self.scratch, correction);
                return Err(BackendError::DeviceOutOfMemory { operation: WHAT, wanted, free: limit });
            }
            let admitted = self.admit(
                WHAT,
                ways.iter().map(|plan| self.demand(plan)),
                |spec| match &known {
                    Some(known) => spec.needs(&known.residency),
                    None => spec,
                },
                |load| match &known {
                    Some(known) => self.load_points(load, known),
                    None => Err(CallError::refused(WHAT, "nothing was to be loaded; this is a bug")),
                },
            );
            let mut admitted = match admitted {
                Ok(admitted) => admitted,
                Err(Failure::OutOfMemory(_)) if tries < TRIES => {
                    tries += 1;
                    continue;
                }
                Err(Failure::NotBegun(_)) if doubts < DOUBTS_MAX => {
                    doubts += 1;
                    continue;
                }
                // The whole vector of points has no room beside what is kept for good, the domain and what has leaked: these
                // pass through.
                Err(Failure::Final(BackendError::DeviceOutOfMemory { .. }))
                    if known.is_some() && !mutant!("icicle-points-stay") =>
                {
                    known = None;
                    continue;
                }
                Err(failure) => return Err(failure.into()),
            };
            let plan = ways[admitted.grant.choice()];
            let made = self.msm_by(&plan, &mut admitted.grant, known.as_ref(), bases, scalars);
            // Everything is given back before the device is looked at.
            drop(admitted);
            let error = match made {
                Ok(sum) => return Ok(sum),
                Err(error) => error,
            };
            if error.is_out_of_memory() && error.operation == WHAT {
                self.account.failed(C::GROUP, plan.correction);
            }
            if let Err(lost) = self.settle(&error) {
                return Err(lost.for_backend(WHAT, 0));
            }
            match &error.fault {
                Fault::OutOfMemory { .. } if tries < TRIES => tries += 1,
                Fault::Squeezed { .. } if tries < TRIES => {
                    tries += 1;
                    limit = plan.bytes() / 2;
                }
                Fault::Doubted if doubts < DOUBTS_MAX => doubts += 1,
                _ => return Err(error.for_backend(WHAT, limit)),
            }
        }
    }

    fn demand(&self, plan: &MsmPlan) -> Demand {
        Demand::new()
            .bytes(abc(self.number), Bytes(plan.scalar_bytes))
            .bytes(points(self.number), Bytes(plan.point_bytes))
            .bytes(workspace(self.number), Bytes(plan.workspace_bytes))
            .bytes(buckets(self.number), Bytes(plan.bucket_bytes))
            .bytes(margin(self.number), Bytes(plan.margin_bytes))
    }

    /// Makes it by this plan, piece by piece.
    fn msm_by<C: KeyCurve>(
        &self,
        plan: &MsmPlan,
        grant: &mut Grant,
        known: Option<&Known<C>>,
        bases: &[C],
        scalars: &[Scalar],
    ) -> Result<C::Curve, CallError> {
        let resident = known.and_then(|known| Some((grant.pinned(&known.residency)?.clone(), known.at)));
        let scalar_room = self.buffer(grant, abc(self.number), plan.scalar_bytes)?;
        let point_room = match plan.point_bytes {
            0 => None,
            bytes => Some(self.buffer(grant, points(self.number), bytes)?),
        };
        let mut margin = grant.take_all(margin(self.number));
        let mut sum = C::Curve::identity();
        let piece = plan.piece as usize;
        let mut outcome = Ok(());
        for (index, (bases, scalars)) in bases.chunks(piece).zip(scalars.chunks(piece)).enumerate() {
            let bytes = scalars.len() as u64 * affine_bytes(C::GROUP);
            let on_device: Part<'_> = match (&resident, &point_room) {
                (Some((buffer, at)), _) => buffer.memory.part(at + (index * piece * size_of::<C>()) as u64, bytes),
                (None, Some(room)) => room.memory.part(0, bytes),
                (None, None) => {
                    return Err(CallError::refused(WHAT, "there is no room for points; this is a bug"));
                }
            };
            let is_last = index as u64 + 1 == plan.calls();
            let pass_through = resident.is_none().then_some(bases);
            let one = self.msm_piece(plan, &scalar_room, on_device, pass_through, scalars, &mut margin, is_last);
            match one {
                Ok(one) => sum += one,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.erased(&scalar_room, outcome).map(|()| sum)
    }

    /// One call. The margin is given back, after the last one, as soon as ICICLE has made up its mind, which is when the call
    /// returns and its work begins. What it has allocated beyond the prediction is booked then and there, and as long as it runs:
    /// out of the margin, and beyond that as far as the ledger has room.
    #[expect(clippy::too_many_arguments, reason = "the pieces of one call")]
    fn msm_piece<C: KeyCurve>(
        &self,
        plan: &MsmPlan,
        scalar_room: &Buffer,
        on_device: Part<'_>,
        bases: Option<&[C]>,
        scalars: &[Scalar],
        margin: &mut Reservation,
        is_last: bool,
    ) -> Result<C::Curve, CallError> {
        let group = C::GROUP;
        let room = scalar_room.memory.part(0, scalars.len() as u64 * SCALAR_BYTES);
        self.owner.call("copy to the device", |scope| {
            scope.copy_in(scalars, room)?;
            if let Some(bases) = bases {
                scope.copy_in(bases, on_device)?;
                // Synchronised before they are used.
                scope.points_to_standard(group, on_device)?;
            }
            Ok(())
        })?;
        let mut room_for_sum = Sum::new();
        let predicted = plan.scratch_bytes();
        let (sum, needed) = (&mut room_for_sum, plan.free_bytes_needed());
        let (used, booked) = self.owner.call(WHAT, move |scope| {
            scope.require_free(WHAT, needed)?;
            let before = self.free_before(scope);
            let (scalars, points, window, threads) = (room, on_device, plan.window, plan.threads);
            scope.msm(MsmCall { group, scalars, points, window, threads, scratch_bytes: predicted, sum })?;
            let used = taken_since(scope, before);
            Ok((used, self.book_overrun(margin, is_last, used.saturating_sub(predicted))))
        })?;
        // It is over, and with it what was allocated.
        drop(booked);
        self.account.saw(group, predicted, plan.correction, used);
        C::sum(room_for_sum.bytes(group)).ok_or_else(|| {
            // Whatever computes that is asked for known answers before it computes again.
            self.owner.doubt();
            CallError { operation: WHAT, fault: Fault::Nonsense }
        })
    }

    /// Books what a call has allocated beyond its prediction. Never waits: it has happened.
    fn book_overrun(&self, margin: &mut Reservation, is_last: bool, over: u64) -> [Option<Reservation>; 2] {
        let covered = margin.bytes().min(Bytes(over));
        let overrun = class("device.overrun", self.number);
        let moved = match covered {
            Bytes::ZERO => None,
            bytes => margin.split(bytes).ok().and_then(|part| part.into_class(overrun).ok()),
        };
        if is_last {
            // It holds that much, and less is always granted.
            let _ = margin.shrink_to(Bytes::ZERO);
        }
        [moved, self.book_over("device.overrun", over - covered.0)]
    }
}
