//! What a key's points must have to do with one another, as far as that can be seen without the ceremony.

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use plimsoll::pool;
use rand_core::{CryptoRng, RngCore};

use super::ProvingKey;
use crate::backend::kernels::msm_alone;

/// Points combined at a time, so that little is held beside the key.
const POINTS_TOGETHER: usize = 1 << 14;
/// Factors that a task makes.
const FACTORS_PER_TASK: usize = 1 << 9;

/// A relation of a key's points that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{relation} does not hold; the key was put together from different ones, or is damaged")]
pub struct BrokenEquation {
    /// Which.
    pub relation: &'static str,
}

impl ProvingKey {
    /// Checks that β and δ, and the b query, are the same in both groups: each by the pairing with δ in the other group, the query
    /// for a random combination of its points, which a wrong point passes with probability 2⁻¹²⁸. So it does not matter from
    /// which generators the key was made. Runs on all threads of the current pool.
    ///
    /// Every point must be in its subgroup. That the queries are those of a circuit, only a proof shows.
    ///
    /// # Errors
    /// The first relation that does not hold.
    pub fn check_equations<R: RngCore + CryptoRng>(&self, rng: &mut R) -> Result<(), BrokenEquation> {
        let vk = &self.vk;
        let same = |relation, g1: &G1Affine, g2: &G2Affine| {
            // A key without δ proves nothing, and would pass for any.
            let degenerate = bool::from(vk.delta_g1.is_identity()) || bool::from(vk.delta_g2.is_identity());
            let (left, right) = (blstrs::pairing(g1, &vk.delta_g2), blstrs::pairing(&vk.delta_g1, g2));
            if left == right && !degenerate { Ok(()) } else { Err(BrokenEquation { relation }) }
        };
        if self.b_g1.len() != self.b_g2.len() {
            return Err(BrokenEquation { relation: "that B has as many points in G1 as in G2" });
        }
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let mut sum = (G1Projective::identity(), G2Projective::identity());
        let mut factors = vec![Scalar::default(); POINTS_TOGETHER.min(self.b_g1.len())];
        for first in (0..self.b_g1.len()).step_by(POINTS_TOGETHER) {
            let range = first..(first + POINTS_TOGETHER).min(self.b_g1.len());
            let factors = &mut factors[..range.len()];
            pool::for_each_chunk(factors, FACTORS_PER_TASK, |offset, factors| {
                for (i, place) in factors.iter_mut().enumerate() {
                    *place = factor(&seed, first + offset + i);
                }
            });
            sum.0 += msm_alone(&self.b_g1[range.clone()], factors);
            sum.1 += msm_alone(&self.b_g2[range], factors);
        }
        same("that beta and delta are the same in both groups", &vk.beta_g1, &vk.beta_g2)?;
        same("that B is the same in both groups", &sum.0.to_affine(), &sum.1.to_affine())
    }
}

/// 128 random bits for each point, from a seed that nobody knew when the key was made.
fn factor(seed: &[u8; 32], index: usize) -> Scalar {
    use sha2::{Digest, Sha256};
    let digest = Sha256::new().chain_update(seed).chain_update((index as u64).to_le_bytes()).finalize();
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&digest[..16]);
    Option::from(Scalar::from_bytes_le(&bytes)).unwrap_or_default()
}
