//! The fast backend for the cores of the current pool.
//!
//! Field arithmetic is blst's assembly, behind the safe functions of [`field`]; everything else is safe code that forks
//! through [`plimsoll::pool`] and runs on the caller's thread outside a pool.

mod buckets;
pub(crate) mod curve;
pub(crate) mod digits;
pub(crate) mod field;
mod msm;
mod ntt;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::Group;

use plimsoll::{Bytes, Ledger, Reservation, pool};

use self::curve::AffineCurve;
pub(crate) use self::ntt::for_each_element;
use super::scratch::ScratchVec;
use super::{Backend, BackendError, CurveGroup, Transform, require_same_length, require_scratch, require_vectors_of};
use crate::domain::Domain;

/// The backend for the cores of the current pool.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Cpu;

impl Cpu {
    /// The backend. It keeps nothing between operations.
    pub fn new() -> Self {
        Self
    }
}

/// Fewer terms are multiplied one by one.
const ALONE_MIN: usize = 32;

/// A multiplication apart from any proof, on the threads of the current pool: what it takes is on nobody's ledger, and the caller's to
/// say ([`msm_alone_bytes`]). Nothing of it is secret.
pub(crate) fn msm_alone<C: AffineCurve>(bases: &[C], scalars: &[Scalar]) -> C::Curve {
    assert_eq!(bases.len(), scalars.len(), "a scalar for each point");
    let one_by_one =
        || bases.iter().zip(scalars).fold(C::Curve::identity(), |sum, (base, scalar)| sum + *base * *scalar);
    if bases.len() < ALONE_MIN {
        return one_by_one();
    }
    let bytes = Bytes(msm::scratch_bytes::<C>(bases.len(), pool::current_threads()));
    let multiplied = Ledger::unlimited().reserve(crate::footprint::SCRATCH, bytes).try_now().ok();
    let multiplied = multiplied.and_then(|mut scratch| msm::msm(bases, scalars, &mut scratch).ok());
    // What is left to fail is the allocator.
    multiplied.unwrap_or_else(one_by_one)
}

/// What [`msm_alone`] takes for so many terms on so many threads.
pub(crate) fn msm_alone_bytes<C: AffineCurve>(n: usize, threads: usize) -> u64 {
    if n < ALONE_MIN { 0 } else { msm::scratch_bytes::<C>(n, threads) }
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn ntt_scratch_bytes(&self, n: usize, _threads: usize) -> u64 {
        ntt::scratch_bytes(n)
    }

    fn quotient_scratch_bytes(&self, n: usize, _threads: usize) -> u64 {
        ntt::extension_scratch_bytes(n)
    }

    fn quotient_vectors(&self) -> usize {
        1
    }

    fn msm_scratch_bytes(&self, group: CurveGroup, n: usize, threads: usize) -> u64 {
        match group {
            CurveGroup::G1 => msm::scratch_bytes::<G1Affine>(n, threads),
            CurveGroup::G2 => msm::scratch_bytes::<G2Affine>(n, threads),
        }
    }

    fn ntt(
        &self,
        domain: &Domain,
        data: &mut [Scalar],
        transform: Transform,
        scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_same_length("ntt", domain.size(), data.len())?;
        require_scratch("ntt", scratch, ntt::scratch_bytes(data.len()))?;
        ntt::transform(domain, data, transform, scratch)
    }

    fn quotient_on_coset(
        &self,
        domain: &Domain,
        a: &mut [Scalar],
        b: &mut [Scalar],
        c: &mut [Scalar],
        factor: &Scalar,
        scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_vectors_of(domain, [a, b, c])?;
        require_scratch("quotient", scratch, ntt::extension_scratch_bytes(a.len()))?;
        ntt::extend_to_coset(domain, [&mut *a, &mut *b, &mut *c], scratch)?;
        self.mul_sub_scale(a, b, c, factor)
    }

    fn product_on_coset(
        &self,
        domain: &Domain,
        a: &mut [Scalar],
        b: &mut [Scalar],
        scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_vectors_of(domain, [a, b, b])?;
        require_scratch("quotient", scratch, ntt::extension_scratch_bytes(a.len()))?;
        ntt::extend_to_coset(domain, [&mut *a, &mut *b], scratch)?;
        for_each_element(a, |i, value| *value *= b[i]);
        Ok(())
    }

    fn subtract_on_coset(
        &self,
        domain: &Domain,
        a: &mut [Scalar],
        c: &mut [Scalar],
        factor: &Scalar,
        scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_vectors_of(domain, [a, c, c])?;
        require_scratch("quotient", scratch, ntt::extension_scratch_bytes(a.len()))?;
        ntt::extend_to_coset(domain, [&mut *c], scratch)?;
        for_each_element(a, |i, value| *value = (*value - c[i]) * factor);
        Ok(())
    }

    fn mul_sub_scale(&self, a: &mut [Scalar], b: &[Scalar], c: &[Scalar], factor: &Scalar) -> Result<(), BackendError> {
        require_same_length("mul_sub_scale", a.len(), b.len())?;
        require_same_length("mul_sub_scale", a.len(), c.len())?;
        for_each_element(a, |i, value| *value = (*value * b[i] - c[i]) * factor);
        Ok(())
    }

    fn msm_g1(
        &self,
        bases: &[G1Affine],
        scalars: &[Scalar],
        scratch: &mut Reservation,
    ) -> Result<G1Projective, BackendError> {
        msm::msm(bases, scalars, scratch)
    }

    fn msm_g2(
        &self,
        bases: &[G2Affine],
        scalars: &[Scalar],
        scratch: &mut Reservation,
    ) -> Result<G2Projective, BackendError> {
        msm::msm(bases, scalars, scratch)
    }

    fn msm_g1_mut(
        &self,
        bases: &[G1Affine],
        scalars: &mut [Scalar],
        scratch: &mut Reservation,
    ) -> Result<G1Projective, BackendError> {
        msm::msm_mut(bases, scalars, scratch)
    }

    fn msm_g2_mut(
        &self,
        bases: &[G2Affine],
        scalars: &mut [Scalar],
        scratch: &mut Reservation,
    ) -> Result<G2Projective, BackendError> {
        msm::msm_mut(bases, scalars, scratch)
    }
}
