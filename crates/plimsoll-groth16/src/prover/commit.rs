//! The commitments in G1: multi-scalar multiplications of the quotient and the assignment with the key's points.

use blstrs::{G1Affine, G1Projective, Scalar};
use group::Group;
use plimsoll::{Charged, Grant, Reservation};

use super::quotient::Quotient;
use super::{ProveError, Prover};
use crate::footprint::SCRATCH;
use crate::secret::{SecretPoint, SecretVec, erase};

/// The four commitments in G1, and the scalars that b in G2 still needs.
pub struct Committed {
    /// Σ hᵢ·Hᵢ + Σ zᵢ·Lᵢ: the two only occur together.
    pub(super) h_and_l: SecretPoint<G1Projective>,
    pub(super) a: SecretPoint<G1Projective>,
    pub(super) b_g1: SecretPoint<G1Projective>,
    /// In the first places of the assignment's buffer: the values of the variables that occur in B. The rest is erased. With a
    /// streamed key all values, in their places.
    pub(super) b_scalars: SecretVec,
    pub(super) public_inputs: Charged<Vec<Scalar>>,
}

impl Prover {
    /// Makes the commitments in G1. The quotient's bytes are given back once its buffer has served to gather a's values.
    ///
    /// Holds `scratch` from the grant.
    ///
    /// # Errors
    /// [`ProveError::Backend`], [`ProveError::Stopped`]; [`ProveError::Key`].
    pub fn commit(&self, grant: &mut Grant, quotient: Quotient) -> Result<Committed, ProveError> {
        if let Some(streamed) = &self.streamed {
            return self.commit_streamed(grant, quotient, streamed);
        }
        let Quotient { witness, mut h } = quotient;
        let (mut assignment, public_inputs) = (witness.assignment, witness.public_inputs);
        let footprint = self.footprint(plimsoll::pool::current_threads());
        let mut scratch = grant.take(SCRATCH, footprint.commit_scratch())?;
        let (r1cs, key) = (&*self.r1cs, &*self.key);

        let h_points = &key.h.points;
        let mut h_and_l = SecretPoint::new(self.msm_g1(h_points, &mut h[..h_points.len()], &mut scratch)?);

        // The key has no points for variables that do not occur in A: the others' values are gathered where h was, in pieces
        // if there are more variables than points of the domain.
        let mut a = SecretPoint::new(G1Projective::identity());
        let mut first = 0;
        while first < key.a.len() {
            let len = h.len().min(key.a.len() - first);
            r1cs.a_density().gather_from(first, &assignment, &mut h[..len]);
            *a += self.msm_g1(&key.a[first..first + len], &mut h[..len], &mut scratch)?;
            first += len;
        }
        drop(h);

        *h_and_l += self.msm_g1(&key.l, &mut assignment[r1cs.inputs()..], &mut scratch)?;

        // From here on only the values of the variables in B are needed.
        let len = r1cs.b_density().compact(&mut assignment);
        erase(&mut assignment[len..]);
        let b_g1 = SecretPoint::new(self.msm_g1(&key.b_g1, &mut assignment[..len], &mut scratch)?);
        Ok(Committed { h_and_l, a, b_g1, b_scalars: assignment, public_inputs })
    }

    fn msm_g1(
        &self,
        bases: &[G1Affine],
        scalars: &mut [Scalar],
        scratch: &mut Reservation,
    ) -> Result<G1Projective, ProveError> {
        self.check_stop()?;
        if bases.is_empty() {
            return Ok(G1Projective::identity());
        }
        self.backend.msm_g1_mut(bases, scalars, scratch).map_err(self.backend_error())
    }
}

impl std::fmt::Debug for Committed {
    /// Unblinded commitments tell something about the witness.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committed").finish_non_exhaustive()
    }
}
