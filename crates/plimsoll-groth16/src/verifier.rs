//! Verification: e(A, B) = e(α, β) · e(Σ xᵢ·icᵢ, γ) · e(C, δ), for one proof or for many at once.

use std::fmt;

use blstrs::{Bls12, G1Affine, G1Projective, G2Affine, G2Prepared, Gt, Scalar};
use ff::Field;
use group::{Curve, Group};
use pairing::{MillerLoopResult, MultiMillerLoop};
use plimsoll::pool;
use rand_core::{CryptoRng, RngCore};

use crate::backend::kernels::{msm_alone, msm_alone_bytes};
use crate::keys::VerifyingKey;
use crate::proof::{Proof, ProofElement};

/// A verifying key with the parts that every verification needs computed once.
pub struct PreparedVerifyingKey {
    ic: Vec<G1Affine>,
    alpha_g1: G1Affine,
    beta_g2: G2Affine,
    alpha_beta: Gt,
    minus_gamma: G2Prepared,
    minus_delta: G2Prepared,
}

/// Why a verification did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Everything is well-formed, and the equation does not hold: the proof proves nothing about these inputs.
    #[error("the proof is not valid for these public inputs")]
    InvalidProof,
    /// An element is outside the group of prime order. The equation does not see that, and such a proof could tell something about
    /// its witness: it comes of a key whose points are outside, or of a device that computes wrongly.
    #[error(
        "element {element} of proof {index} is not in the group of prime order; the key is unsound, or a device computed wrongly"
    )]
    NotInSubgroup {
        /// The proof, counted from 0.
        index: usize,
        /// The element.
        element: ProofElement,
    },
    /// A proof came with another number of inputs than the key is for: the caller's fault, not the proof's.
    #[error("proof {index} comes with {found} public inputs, the key is for {expected}")]
    InputCount {
        /// The proof, counted from 0.
        index: usize,
        /// The inputs given.
        found: usize,
        /// The inputs that the key is for, the constant one not counted.
        expected: usize,
    },
    /// A batch has another number of proofs than of input vectors.
    #[error("{proofs} proofs come with {inputs} vectors of public inputs")]
    BatchLength {
        /// The proofs given.
        proofs: usize,
        /// The input vectors given.
        inputs: usize,
    },
}

impl PreparedVerifyingKey {
    /// Prepares a key.
    pub fn new(vk: &VerifyingKey) -> Self {
        Self::from_elements(vk.alpha_g1, vk.beta_g2, vk.gamma_g2, vk.delta_g2, vk.ic.clone())
    }

    /// Prepares a key of which only the verifier's part is known. `ic` has a point for the constant one and each input.
    ///
    /// # Panics
    /// When `ic` is empty.
    pub fn from_elements(
        alpha_g1: G1Affine,
        beta_g2: G2Affine,
        gamma_g2: G2Affine,
        delta_g2: G2Affine,
        ic: Vec<G1Affine>,
    ) -> Self {
        assert!(!ic.is_empty(), "there is a point for the constant one");
        Self {
            ic,
            alpha_g1,
            beta_g2,
            alpha_beta: blstrs::pairing(&alpha_g1, &beta_g2),
            minus_gamma: (-gamma_g2).into(),
            minus_delta: (-delta_g2).into(),
        }
    }

    /// The public inputs that proofs come with, the constant one not counted.
    pub fn inputs(&self) -> usize {
        self.ic.len() - 1
    }

    fn check_inputs(&self, index: usize, inputs: &[Scalar]) -> Result<(), VerifyError> {
        if inputs.len() == self.inputs() {
            Ok(())
        } else {
            Err(VerifyError::InputCount { index, found: inputs.len(), expected: self.inputs() })
        }
    }

    /// What a key for so many inputs holds.
    pub fn bytes_for(inputs: usize) -> u64 {
        (inputs as u64 + 1) * size_of::<G1Affine>() as u64
    }

    /// What verifying holds for itself, with a key for so many inputs on a pool of so many threads, however many proofs at a time: the
    /// sums of their inputs, and what multiplying the key's points by them takes.
    pub fn verification_bytes(inputs: usize, threads: usize) -> u64 {
        let scalars = (inputs as u64 + 1) * size_of::<Scalar>() as u64;
        scalars + msm_alone_bytes::<G1Affine>(inputs + 1, threads)
    }

    /// Σ scalarsᵢ · icᵢ, on the threads of the current pool.
    fn combine_inputs(&self, scalars: &[Scalar]) -> G1Affine {
        msm_alone(&self.ic, scalars).to_affine()
    }
}

/// Verifies one proof against its public inputs (the constant one left out).
///
/// # Errors
/// [`VerifyError::InvalidProof`], [`VerifyError::NotInSubgroup`], or [`VerifyError::InputCount`].
pub fn verify(vk: &PreparedVerifyingKey, proof: &Proof, inputs: &[Scalar]) -> Result<(), VerifyError> {
    vk.check_inputs(0, inputs)?;
    check_subgroups(0, proof)?;
    let mut scalars = Vec::with_capacity(1 + inputs.len());
    scalars.push(Scalar::ONE);
    scalars.extend_from_slice(inputs);
    let combined = vk.combine_inputs(&scalars);
    let terms = [(&proof.a, &proof.b.into()), (&combined, &vk.minus_gamma), (&proof.c, &vk.minus_delta)];
    let left = Bls12::multi_miller_loop(&terms).final_exponentiation();
    if left == vk.alpha_beta { Ok(()) } else { Err(VerifyError::InvalidProof) }
}

/// Verifies many proofs of one key with one product of pairings: each proof's equation is raised to a random power of 128
/// bits, and the product of all is checked. A batch with an invalid proof passes with probability at most 2⁻¹²⁸.
///
/// An empty batch is valid. Which proof of a rejected batch is to blame, [`first_invalid`] finds.
///
/// # Errors
/// As [`verify`], and [`VerifyError::BatchLength`].
pub fn verify_batch<R: RngCore + CryptoRng>(
    vk: &PreparedVerifyingKey,
    proofs: &[Proof],
    inputs: &[Vec<Scalar>],
    rng: &mut R,
) -> Result<(), VerifyError> {
    let mut batch = BatchVerifier::new(vk);
    batch.add(proofs, inputs, rng)?;
    batch.finish()
}

/// A batch that grows: [`verify_batch`] for proofs that come in portions, of which only sums are kept.
pub struct BatchVerifier<'a> {
    vk: &'a PreparedVerifyingKey,
    /// Proofs added so far.
    count: usize,
    /// The product of the left sides' Miller loops.
    product: MillerLoop,
    /// Σ factor · C.
    c: G1Projective,
    /// Σ factor · input for each input, the constant one first.
    scalars: Vec<Scalar>,
}

type MillerLoop = <Bls12 as MultiMillerLoop>::Result;

impl<'a> BatchVerifier<'a> {
    /// An empty batch, which is valid.
    pub fn new(vk: &'a PreparedVerifyingKey) -> Self {
        let scalars = vec![Scalar::ZERO; vk.ic.len()];
        Self { vk, count: 0, product: MillerLoop::default(), c: G1Projective::identity(), scalars }
    }

    /// Adds proofs, each raised to a random power of its own from `rng`, on all threads of the current pool.
    ///
    /// # Errors
    /// [`VerifyError::BatchLength`], [`VerifyError::InputCount`] or [`VerifyError::NotInSubgroup`], with the proof's index in the
    /// whole batch; nothing was added then. That a proof is invalid is found at the end.
    pub fn add<R: RngCore + CryptoRng>(
        &mut self,
        proofs: &[Proof],
        inputs: &[impl AsRef<[Scalar]>],
        rng: &mut R,
    ) -> Result<(), VerifyError> {
        if proofs.len() != inputs.len() {
            return Err(VerifyError::BatchLength { proofs: proofs.len(), inputs: inputs.len() });
        }
        for (index, inputs) in inputs.iter().enumerate() {
            self.vk.check_inputs(self.count + index, inputs.as_ref())?;
        }
        let outside = pool::map_indices(proofs.len(), |index| check_subgroups(self.count + index, &proofs[index]));
        outside.into_iter().collect::<Result<(), _>>()?;
        let factors: Vec<Scalar> = proofs.iter().map(|_| random_factor(rng)).collect();
        for (factor, inputs) in factors.iter().zip(inputs) {
            self.scalars[0] += factor;
            for (sum, input) in self.scalars[1..].iter_mut().zip(inputs.as_ref()) {
                *sum += *factor * input;
            }
        }

        let tasks = pool::current_threads().max(1).min(proofs.len().max(1));
        let per_task = proofs.len().div_ceil(tasks).max(1);
        let partial = pool::map_indices(tasks, |task| {
            let range = |len: usize| (task * per_task).min(len)..((task + 1) * per_task).min(len);
            let (proofs, factors) = (&proofs[range(proofs.len())], &factors[range(factors.len())]);
            let mut product = MillerLoop::default();
            let mut c = G1Projective::identity();
            for (proof, factor) in proofs.iter().zip(factors) {
                let a = (proof.a * factor).to_affine();
                product += Bls12::multi_miller_loop(&[(&a, &proof.b.into())]);
                c += proof.c * factor;
            }
            (product, c)
        });
        for (product, c) in &partial {
            self.product += product;
            self.c += c;
        }
        self.count += proofs.len();
        Ok(())
    }

    /// Multiplies in the three Miller loops that all proofs share, and checks the product.
    ///
    /// # Errors
    /// [`VerifyError::InvalidProof`] when some proof of the batch is not valid.
    pub fn finish(self) -> Result<(), VerifyError> {
        let Self { vk, mut product, c, scalars, .. } = self;
        let (c, minus_alpha) = (c.to_affine(), (vk.alpha_g1 * -scalars[0]).to_affine());
        let shared = [
            (&minus_alpha, &vk.beta_g2.into()),
            (&vk.combine_inputs(&scalars), &vk.minus_gamma),
            (&c, &vk.minus_delta),
        ];
        product += Bls12::multi_miller_loop(&shared);
        if bool::from(product.final_exponentiation().is_identity()) { Ok(()) } else { Err(VerifyError::InvalidProof) }
    }
}

impl fmt::Debug for BatchVerifier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchVerifier").field("count", &self.count).finish_non_exhaustive()
    }
}

/// The first of a batch's proofs that [`verify`] does not accept, and why.
///
/// # Panics
/// When there are fewer input vectors than proofs.
pub fn first_invalid(
    vk: &PreparedVerifyingKey,
    proofs: &[Proof],
    inputs: &[Vec<Scalar>],
) -> Option<(usize, VerifyError)> {
    let results = pool::map_indices(proofs.len(), |index| verify(vk, &proofs[index], &inputs[index]));
    results.into_iter().enumerate().find_map(|(index, result)| {
        let error = result.err()?;
        Some(match error {
            VerifyError::InputCount { found, expected, .. } => {
                (index, VerifyError::InputCount { index, found, expected })
            }
            VerifyError::NotInSubgroup { element, .. } => (index, VerifyError::NotInSubgroup { index, element }),
            error => (index, error),
        })
    })
}

/// Fails unless the elements are in the groups of prime order, which the pairings do not see.
pub(crate) fn check_subgroups(index: usize, proof: &Proof) -> Result<(), VerifyError> {
    match proof.outside_subgroup() {
        Some(element) if !mutant!("proof-outside-the-subgroup-verified") => {
            Err(VerifyError::NotInSubgroup { index, element })
        }
        _ => Ok(()),
    }
}

/// 128 random bits, not all zero.
fn random_factor<R: RngCore>(rng: &mut R) -> Scalar {
    loop {
        let (low, high) = (rng.next_u64(), rng.next_u64());
        if let Some(factor) = Option::<Scalar>::from(Scalar::from_u64s_le(&[low, high, 0, 0]))
            && !factor.is_zero_vartime()
        {
            return factor;
        }
    }
}

impl fmt::Debug for PreparedVerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedVerifyingKey").field("inputs", &self.inputs()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
