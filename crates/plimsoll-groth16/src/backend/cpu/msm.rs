//! Multi-scalar multiplication by Pippenger's bucket method.

use blstrs::Scalar;
use ff::{Field, PrimeField};
use group::Group;
use group::prime::PrimeCurveAffine;
use plimsoll::pool;

use super::{BackendError, Reservation, ScratchVec, require_same_length, require_scratch};
use crate::backend::scratch::bytes_of;

/// The scratch of one multiplication with `n` terms.
pub(super) fn scratch_bytes<C: PrimeCurveAffine>(n: usize, threads: usize) -> u64 {
    let _ = threads;
    bytes_of::<C::Curve>(windows(n) << window_bits(n))
}

fn window_bits(n: usize) -> usize {
    (n.max(2).ilog2() as usize).saturating_sub(4).clamp(2, 16)
}

fn windows(n: usize) -> usize {
    (Scalar::NUM_BITS as usize).div_ceil(window_bits(n))
}

/// Σ scalars[i] · bases[i].
pub(super) fn msm<C: PrimeCurveAffine<Scalar = Scalar>>(
    bases: &[C],
    scalars: &[Scalar],
    scratch: &mut Reservation,
) -> Result<C::Curve, BackendError> {
    require_same_length("msm", bases.len(), scalars.len())?;
    require_scratch("msm", scratch, scratch_bytes::<C>(bases.len(), pool::current_threads()))?;
    let bits = window_bits(bases.len());
    let windows = windows(bases.len());
    let mut buckets = ScratchVec::filled(scratch, "msm", windows << bits, C::Curve::identity())?;
    pool::for_each_chunk(&mut buckets, 1 << bits, |offset, buckets| {
        let first_bit = (offset >> bits) * bits;
        for (base, scalar) in bases.iter().zip(scalars).filter(|(_, scalar)| !bool::from(scalar.is_zero())) {
            let digit = digit(&scalar.to_repr(), first_bit, bits);
            if digit > 0 {
                buckets[digit] += base;
            }
        }
        // Σ i · bucket[i] as the sum of the suffix sums.
        let (mut suffix, mut sum) = (C::Curve::identity(), C::Curve::identity());
        for bucket in buckets[1..].iter().rev() {
            suffix += bucket;
            sum += suffix;
        }
        buckets[0] = sum;
    });
    let mut total = C::Curve::identity();
    for window in (0..windows).rev() {
        for _ in 0..bits {
            total = total.double();
        }
        total += buckets[window << bits];
    }
    buckets.release(scratch);
    Ok(total)
}

/// `bits` bits of the little-endian number from `first_bit` up.
fn digit(bytes: &[u8; 32], first_bit: usize, bits: usize) -> usize {
    let mut window = [0_u8; 8];
    let first = first_bit / 8;
    let len = 8.min(32 - first);
    window[..len].copy_from_slice(&bytes[first..first + len]);
    (u64::from_le_bytes(window) >> (first_bit % 8)) as usize & ((1 << bits) - 1)
}
