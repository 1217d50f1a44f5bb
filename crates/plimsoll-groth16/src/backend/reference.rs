//! The naive backend: short enough to be believed, and the oracle for the others. One thread.

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::{Field, PrimeField};
use group::Group;
use group::prime::PrimeCurveAffine;

use plimsoll::Reservation;

use super::scratch::{ScratchVec, bytes_of};
use super::{Backend, BackendError, CurveGroup, Transform, require_same_length, require_scratch};
use crate::domain::Domain;

/// The recursive transform of the textbook and double-and-add.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn ntt_scratch_bytes(&self, n: usize, _threads: usize) -> u64 {
        bytes_of::<Scalar>(n)
    }

    fn quotient_scratch_bytes(&self, n: usize, threads: usize) -> u64 {
        self.ntt_scratch_bytes(n, threads)
    }

    fn quotient_vectors(&self) -> usize {
        2
    }

    fn msm_scratch_bytes(&self, _group: CurveGroup, n: usize, _threads: usize) -> u64 {
        bytes_of::<[u8; 32]>(n)
    }

    fn ntt(
        &self,
        domain: &Domain,
        data: &mut [Scalar],
        transform: Transform,
        scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_same_length("ntt", domain.size(), data.len())?;
        require_scratch("ntt", scratch, self.ntt_scratch_bytes(data.len(), 1))?;
        let mut buffer = ScratchVec::filled(scratch, "ntt", data.len(), Scalar::ZERO)?;
        match transform {
            Transform::Forward => evaluate(data, &mut buffer, &domain.omega()),
            Transform::CosetForward => {
                scale_by_powers(data, &Scalar::ONE, &domain.coset_shift());
                evaluate(data, &mut buffer, &domain.omega());
            }
            Transform::Inverse => {
                evaluate(data, &mut buffer, &domain.omega_inverse());
                scale_by_powers(data, &domain.size_inverse(), &Scalar::ONE);
            }
            Transform::CosetInverse => {
                evaluate(data, &mut buffer, &domain.omega_inverse());
                scale_by_powers(data, &domain.size_inverse(), &domain.coset_shift_inverse());
            }
        }
        buffer.release(scratch);
        Ok(())
    }

    fn mul_sub_scale(&self, a: &mut [Scalar], b: &[Scalar], c: &[Scalar], factor: &Scalar) -> Result<(), BackendError> {
        require_same_length("mul_sub_scale", a.len(), b.len())?;
        require_same_length("mul_sub_scale", a.len(), c.len())?;
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            *a = (*a * b - c) * factor;
        }
        Ok(())
    }

    fn msm_g1(
        &self,
        bases: &[G1Affine],
        scalars: &[Scalar],
        scratch: &mut Reservation,
    ) -> Result<G1Projective, BackendError> {
        double_and_add(bases, scalars, scratch)
    }

    fn msm_g2(
        &self,
        bases: &[G2Affine],
        scalars: &[Scalar],
        scratch: &mut Reservation,
    ) -> Result<G2Projective, BackendError> {
        double_and_add(bases, scalars, scratch)
    }
}

/// Evaluates the polynomial at the powers of `omega`: even and odd coefficients apart, then
/// p(x) = even(x²) + x·odd(x²). `buffer` is as long as `data`.
fn evaluate(data: &mut [Scalar], buffer: &mut [Scalar], omega: &Scalar) {
    if data.len() <= 1 {
        return;
    }
    let half = data.len() / 2;
    for i in 0..half {
        buffer[i] = data[2 * i];
        buffer[half + i] = data[2 * i + 1];
    }
    let (even, odd) = buffer.split_at_mut(half);
    let (data_even, data_odd) = data.split_at_mut(half);
    evaluate(even, data_even, &omega.square());
    evaluate(odd, data_odd, &omega.square());
    let mut x = Scalar::ONE;
    for i in 0..half {
        let odd_term = x * odd[i];
        data_even[i] = even[i] + odd_term;
        data_odd[i] = even[i] - odd_term;
        x *= omega;
    }
}

/// Multiplies element i by `first` · `ratio`^i.
fn scale_by_powers(data: &mut [Scalar], first: &Scalar, ratio: &Scalar) {
    let mut power = *first;
    for value in data {
        *value *= power;
        power *= ratio;
    }
}

/// One doubling per bit for all the terms together, one addition per set bit.
fn double_and_add<C: PrimeCurveAffine<Scalar = Scalar>>(
    bases: &[C],
    scalars: &[Scalar],
    scratch: &mut Reservation,
) -> Result<C::Curve, BackendError> {
    require_same_length("msm", bases.len(), scalars.len())?;
    require_scratch("msm", scratch, bytes_of::<[u8; 32]>(scalars.len()))?;
    let mut bytes = ScratchVec::filled(scratch, "msm", scalars.len(), [0_u8; 32])?;
    for (bytes, scalar) in bytes.iter_mut().zip(scalars) {
        *bytes = scalar.to_repr();
    }
    let mut sum = C::Curve::identity();
    for bit in (0..Scalar::NUM_BITS as usize).rev() {
        sum = sum.double();
        for (base, bytes) in bases.iter().zip(&*bytes) {
            if bytes[bit / 8] >> (bit % 8) & 1 == 1 {
                sum += base;
            }
        }
    }
    bytes.release(scratch);
    Ok(sum)
}
