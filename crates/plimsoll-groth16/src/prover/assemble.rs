//! From commitments and blinding factors to the proof.

use std::fmt;

use blstrs::Scalar;
use ff::Field;
use group::Curve;
use rand_core::{CryptoRng, OsRng, RngCore};

use super::Prover;
use super::b_g2::Openings;
use crate::proof::Proof;
use crate::secret::erase;

/// The random r and s that hide the witness. They are used for one proof, and erased where they are kept when that is dropped.
pub struct Blinding {
    r: Scalar,
    s: Scalar,
}

impl Blinding {
    /// From the operating system's generator.
    pub fn from_os() -> Self {
        Self::random(&mut OsRng)
    }

    /// From a given generator.
    pub fn random<R: RngCore + CryptoRng>(rng: &mut R) -> Self {
        Self { r: Scalar::random(&mut *rng), s: Scalar::random(&mut *rng) }
    }

    /// Given values. Whoever knows or guesses them learns about the witness; two proofs of different witnesses must not share
    /// them. This is for tests and for reproducing another prover's proof.
    pub fn from_scalars(r: Scalar, s: Scalar) -> Self {
        Self { r, s }
    }
}

/// A proof and what it proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proved {
    /// The proof.
    pub proof: Proof,
    /// The public inputs, the constant one left out.
    pub public_inputs: Vec<Scalar>,
}

impl Prover {
    /// Assembles the proof, and verifies nothing ([`Prover::finish`] does):
    /// A = α + Σ zᵢuᵢ(τ) + r·δ, B = β + Σ zᵢvᵢ(τ) + s·δ, C = Σ hᵢHᵢ + Σ zᵢLᵢ + s·A + r·B − rs·δ
    /// (Groth, "On the Size of Pairing-Based Non-interactive Arguments", section 3.2).
    pub fn assemble(&self, openings: Openings, blinding: Blinding) -> Proved {
        let vk = &self.key.vk;
        let Openings { h_and_l, a, b_g1, b_g2, public_inputs } = openings;
        let a = *a + vk.alpha_g1 + vk.delta_g1 * blinding.r;
        let b = *b_g2 + vk.beta_g2 + vk.delta_g2 * blinding.s;
        // r·B − rs·δ is r times B without its blinding.
        let c = *h_and_l + a * blinding.s + (*b_g1 + vk.beta_g1) * blinding.r;
        Proved {
            proof: Proof { a: a.to_affine(), b: b.to_affine(), c: c.to_affine() },
            public_inputs: public_inputs.to_vec(),
        }
    }
}

impl Drop for Blinding {
    fn drop(&mut self) {
        for scalar in [&mut self.r, &mut self.s] {
            erase(std::slice::from_mut(scalar));
        }
    }
}

impl fmt::Debug for Blinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blinding(..)")
    }
}
