//! What computes the heavy part of a proof: number-theoretic transforms and multi-scalar multiplications.
//!
//! A [`Backend`] is a value chosen at run time: [`Reference`] is naive and is the oracle, [`Cpu`] is fast on the cores of
//! the current pool, others live in crates of their own. Every one passes the harness in the module `conformance` (feature `conformance`).
//!
//! # Memory
//!
//! An operation works in place on the caller's vectors. What it needs beyond them is its *scratch*: the caller asks for
//! the footprint (`*_scratch_bytes`, a pure function of sizes and threads), reserves so many bytes, and hands the
//! reservation in. The backend splits every buffer off it and merges the bytes back before it returns, so that the
//! caller can use the same reservation for the next operation. A reservation that is too small is an error before any
//! work, never a larger allocation.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod cpu;
mod reference;
mod scratch;

use std::fmt;
use std::sync::Arc;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use plimsoll::Reservation;

pub use self::cpu::Cpu;
pub use self::cpu::curve::AffineCurve;
pub use self::cpu::field::{BASE_MODULUS, Coordinate, base_element};
pub use self::reference::Reference;
use crate::domain::Domain;
use crate::keys::ProvingKey;

pub(crate) use self::cpu::for_each_element;

/// The CPU's building blocks, for the rest of this crate.
pub(crate) mod kernels {
    pub(crate) use super::cpu::curve::{BATCH, Step, add_each};
    pub(crate) use super::cpu::digits::{Limbs, digit, digit_count, limbs};
    pub(crate) use super::cpu::{msm_alone, msm_alone_bytes};
}

/// Which transform [`Backend::ntt`] makes. Coefficients and evaluations are in natural order: index i stands for x^i and
/// for the point ω^i (g·ω^i on the coset).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Coefficients to evaluations on the domain.
    Forward,
    /// Evaluations on the domain to coefficients, with the factor 1/n.
    Inverse,
    /// Coefficients to evaluations on the coset g·⟨ω⟩.
    CosetForward,
    /// Evaluations on the coset to coefficients, with the factor 1/n.
    CosetInverse,
}

/// The two groups in which multi-scalar multiplications are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CurveGroup {
    /// Points over the base field; 96 bytes each.
    G1,
    /// Points over its quadratic extension; 192 bytes each.
    G2,
}

/// Why an operation was not made. The inputs are unchanged unless a variant says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The reservation does not hold the operation's footprint.
    #[error("{operation} needs {needed} bytes of scratch and was handed {held}; reserve the footprint first")]
    ScratchTooSmall {
        /// What was to be done.
        operation: &'static str,
        /// The bytes needed.
        needed: u64,
        /// The bytes in the reservation.
        held: u64,
    },
    /// Vectors that belong together differ in length.
    #[error("{operation} of {left} with {right} elements; give as many of the one as of the other")]
    LengthMismatch {
        /// What was to be done.
        operation: &'static str,
        /// The length of the first vector (the bases, the domain).
        left: usize,
        /// The length of the other.
        right: usize,
    },
    /// The allocator refused a buffer that the scratch pays for.
    #[error("{operation} got no {bytes} bytes from the allocator; lower the memory budget below what the machine has")]
    OutOfMemory {
        /// What was to be done.
        operation: &'static str,
        /// The size of the buffer.
        bytes: u64,
    },
    /// A device has less free memory than was promised: somebody else uses it. It is well otherwise, and the operation can be
    /// tried again when the other user is done, or with a smaller plan.
    #[error(
        "{operation} got no {wanted} bytes from the device, which has {free} free; end what else uses it, or lower its budget"
    )]
    DeviceOutOfMemory {
        /// What was to be done.
        operation: &'static str,
        /// The size that was asked for.
        wanted: u64,
        /// What was free, as far as the device could tell.
        free: u64,
    },
    /// A device was given up: broken or gone. Other devices may serve.
    #[error("{operation} has no device any more: {message}")]
    DeviceLost {
        /// What was to be done.
        operation: &'static str,
        /// What the device said.
        message: String,
    },
    /// A device refused, and is well otherwise.
    #[error("{operation} was refused by the device: {message}")]
    Device {
        /// What was to be done.
        operation: &'static str,
        /// What the device said.
        message: String,
    },
    /// More elements than the backend can index.
    #[error("{operation} of {len} elements; this backend takes at most {max}, split the input")]
    TooLarge {
        /// What was to be done.
        operation: &'static str,
        /// The elements given.
        len: usize,
        /// The most it takes.
        max: usize,
    },
}

/// A maker of transforms and multi-scalar multiplications.
///
/// The footprints are what `scratch` must hold when the operation is called from a pool with `threads` threads
/// ([`plimsoll::pool::current_threads`]); they depend on sizes alone, never on values.
pub trait Backend: Send + Sync + fmt::Debug {
    /// A short name for reports: `cpu`.
    fn name(&self) -> &'static str;

    /// Tells that multiplications with this key's points are to come, again and again: a backend that computes elsewhere may keep
    /// them there, for as long as others have the key. It recognises them when it is handed slices of the key's own vectors.
    fn adopt_key(&self, _key: &Arc<ProvingKey>) {}

    /// Whether its results may be wrong without an error, so that a proof is to be verified before it is returned
    /// ([`Prover::finish`](crate::prover::Prover::finish)): others' devices and drivers.
    fn wants_verification(&self) -> bool {
        false
    }

    /// What went otherwise than foreseen so far and was made up for, in words, for reports.
    fn remarks(&self) -> Option<String> {
        None
    }

    /// The scratch of [`Backend::ntt`] over a domain of `n` points.
    fn ntt_scratch_bytes(&self, n: usize, threads: usize) -> u64;

    /// The scratch of [`Backend::quotient_on_coset`] over a domain of `n` points.
    fn quotient_scratch_bytes(&self, n: usize, threads: usize) -> u64;

    /// The scratch of [`Backend::msm_g1`] and [`Backend::msm_g2`] with `n` terms.
    fn msm_scratch_bytes(&self, group: CurveGroup, n: usize, threads: usize) -> u64;

    /// Transforms `data` in place.
    ///
    /// # Errors
    ///
    /// [`BackendError::LengthMismatch`] when `data` is not as long as the domain; scratch too small.
    fn ntt(
        &self,
        domain: &Domain,
        data: &mut [Scalar],
        transform: Transform,
        scratch: &mut Reservation,
    ) -> Result<(), BackendError>;

    /// From the evaluations of a, b, c on the domain, makes those of (a·b − c) · `factor` on the coset, in `a`.
    ///
    /// With 1/t(g) as the factor this is the quotient by the vanishing polynomial t, and [`Transform::CosetInverse`]
    /// then makes its coefficients; b and c (whose contents are used up) can be freed in between.
    ///
    /// # Errors
    ///
    /// [`BackendError::LengthMismatch`] when a vector is not as long as the domain; scratch too small.
    fn quotient_on_coset(
        &self,
        domain: &Domain,
        a: &mut [Scalar],
        b: &mut [Scalar],
        c: &mut [Scalar],
        factor: &Scalar,
        scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        for vector in [&mut *a, &mut *b, &mut *c] {
            self.ntt(domain, vector, Transform::Inverse, scratch)?;
            self.ntt(domain, vector, Transform::CosetForward, scratch)?;
        }
        self.mul_sub_scale(a, b, c, factor)
    }

    /// How many vectors of the domain's size the prover holds for the quotient: 3 for [`Backend::quotient_on_coset`]; 2 where it is to
    /// call [`Backend::product_on_coset`] and, with c in the place of b, [`Backend::subtract_on_coset`]; 1 where it is to make b and c in
    /// pieces, with [`Backend::ntt`] alone. Fewer take less memory, and one takes more transforms than two.
    fn quotient_vectors(&self) -> usize {
        3
    }

    /// From the evaluations of a and b on the domain, makes those of a·b on the coset, in `a`. The contents of `b` are used up.
    ///
    /// # Errors
    ///
    /// [`BackendError::LengthMismatch`] when a vector is not as long as the domain; scratch too small.
    fn product_on_coset(
        &self,
        domain: &Domain,
        a: &mut [Scalar],
        b: &mut [Scalar],
        scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        for vector in [&mut *a, &mut *b] {
            self.ntt(domain, vector, Transform::Inverse, scratch)?;
            self.ntt(domain, vector, Transform::CosetForward, scratch)?;
        }
        for_each_element(a, |i, a| *a *= b[i]);
        Ok(())
    }

    /// From the evaluations of c on the domain, and those of a·b on the coset in `a`, makes those of (a·b − c) · `factor` on the coset,
    /// in `a`. The contents of `c` are used up.
    ///
    /// # Errors
    ///
    /// As [`Backend::product_on_coset`].
    fn subtract_on_coset(
        &self,
        domain: &Domain,
        a: &mut [Scalar],
        c: &mut [Scalar],
        factor: &Scalar,
        scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_same_length("quotient", domain.size(), a.len())?;
        self.ntt(domain, c, Transform::Inverse, scratch)?;
        self.ntt(domain, c, Transform::CosetForward, scratch)?;
        for_each_element(a, |i, a| *a = (*a - c[i]) * factor);
        Ok(())
    }

    /// `a[i] = (a[i]·b[i] − c[i]) · factor`.
    ///
    /// # Errors
    ///
    /// [`BackendError::LengthMismatch`].
    fn mul_sub_scale(&self, a: &mut [Scalar], b: &[Scalar], c: &[Scalar], factor: &Scalar) -> Result<(), BackendError>;

    /// Σ `scalars[i]` · `bases[i]` in G1. The bases are on the curve and in the subgroup, or infinity.
    ///
    /// # Errors
    ///
    /// [`BackendError::LengthMismatch`], [`BackendError::TooLarge`]; scratch too small.
    fn msm_g1(
        &self,
        bases: &[G1Affine],
        scalars: &[Scalar],
        scratch: &mut Reservation,
    ) -> Result<G1Projective, BackendError>;

    /// Σ `scalars[i]` · `bases[i]` in G2, as [`Backend::msm_g1`].
    fn msm_g2(
        &self,
        bases: &[G2Affine],
        scalars: &[Scalar],
        scratch: &mut Reservation,
    ) -> Result<G2Projective, BackendError>;

    /// [`Backend::msm_g1`] of scalars that nobody else looks at meanwhile: they may have another form while it runs, which saves a
    /// copy of them, and are as they were when it returns.
    ///
    /// # Errors
    ///
    /// As [`Backend::msm_g1`].
    fn msm_g1_mut(
        &self,
        bases: &[G1Affine],
        scalars: &mut [Scalar],
        scratch: &mut Reservation,
    ) -> Result<G1Projective, BackendError> {
        self.msm_g1(bases, scalars, scratch)
    }

    /// [`Backend::msm_g2`] of scalars that nobody else looks at meanwhile, as [`Backend::msm_g1_mut`].
    ///
    /// # Errors
    ///
    /// As [`Backend::msm_g1`].
    fn msm_g2_mut(
        &self,
        bases: &[G2Affine],
        scalars: &mut [Scalar],
        scratch: &mut Reservation,
    ) -> Result<G2Projective, BackendError> {
        self.msm_g2(bases, scalars, scratch)
    }
}

/// Fails unless both lengths are the same.
///
/// # Errors
///
/// [`BackendError::LengthMismatch`].
pub fn require_same_length(operation: &'static str, left: usize, right: usize) -> Result<(), BackendError> {
    if left == right { Ok(()) } else { Err(BackendError::LengthMismatch { operation, left, right }) }
}

/// Fails unless a, b and c are as long as the domain.
///
/// # Errors
///
/// [`BackendError::LengthMismatch`].
pub fn require_vectors_of(domain: &Domain, vectors: [&[Scalar]; 3]) -> Result<(), BackendError> {
    vectors.into_iter().try_for_each(|vector| require_same_length("quotient", domain.size(), vector.len()))
}

/// Fails unless the reservation holds the footprint.
fn require_scratch(operation: &'static str, scratch: &Reservation, needed: u64) -> Result<(), BackendError> {
    let held = scratch.bytes().0;
    if held >= needed { Ok(()) } else { Err(BackendError::ScratchTooSmall { operation, needed, held }) }
}
