//! b in G2: the last multiplication, after which the assignment is gone.

use blstrs::{G1Projective, G2Projective, Scalar};
use group::Group;
use plimsoll::{Charged, Grant};

use super::commit::Committed;
use super::{ProveError, Prover};
use crate::footprint::SCRATCH;
use crate::secret::SecretPoint;

/// All that a proof is assembled from.
pub struct Openings {
    pub(super) h_and_l: SecretPoint<G1Projective>,
    pub(super) a: SecretPoint<G1Projective>,
    pub(super) b_g1: SecretPoint<G1Projective>,
    pub(super) b_g2: SecretPoint<G2Projective>,
    pub(super) public_inputs: Charged<Vec<Scalar>>,
}

impl Prover {
    /// Makes the commitment in G2 and gives the assignment back.
    ///
    /// Holds `scratch` from the grant.
    ///
    /// # Errors
    /// [`ProveError::Backend`]; [`ProveError::Key`].
    pub fn b_g2(&self, grant: &mut Grant, committed: Committed) -> Result<Openings, ProveError> {
        let Committed { h_and_l, a, b_g1, mut b_scalars, public_inputs } = committed;
        if let Some(streamed) = &self.streamed {
            let b_g2 = self.b_g2_streamed(grant, &mut b_scalars, streamed)?;
            return Ok(Openings { h_and_l, a, b_g1, b_g2, public_inputs });
        }
        let footprint = self.footprint(plimsoll::pool::current_threads());
        let mut scratch = grant.take(SCRATCH, footprint.b_g2_scratch())?;
        let bases = &self.key.b_g2[..];
        let b_g2 = if bases.is_empty() {
            G2Projective::identity()
        } else {
            self.backend.msm_g2_mut(bases, &mut b_scalars[..bases.len()], &mut scratch).map_err(self.backend_error())?
        };
        let b_g2 = SecretPoint::new(b_g2);
        drop(b_scalars);
        Ok(Openings { h_and_l, a, b_g1, b_g2, public_inputs })
    }
}

impl std::fmt::Debug for Openings {
    /// Unblinded commitments tell something about the witness.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Openings").finish_non_exhaustive()
    }
}
