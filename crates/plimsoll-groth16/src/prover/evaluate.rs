//! From the assignment to the evaluations of a, b and c on the domain.

use plimsoll::Grant;

use super::synthesise::Witness;
use super::{ProveError, Prover};
use crate::footprint::PROVERS;
use crate::secret::SecretVec;

/// The witness with a, and b and c where somebody takes them: one value for each point of the domain, zero beyond the constraints.
#[derive(Debug)]
pub struct Evaluated {
    pub(super) witness: Witness,
    pub(super) a: SecretVec,
    /// Otherwise it is made in pieces, when it is needed.
    pub(super) b: Option<SecretVec>,
    /// Otherwise it is made when it is needed, where b was, or in pieces.
    pub(super) c: Option<SecretVec>,
}

impl Prover {
    /// Multiplies the matrices by the assignment, and checks that the witness satisfies the constraints: that costs a
    /// multiplication each, and saves the making of a proof that nobody would accept. Where the products are implied
    /// ([`products_implied`](crate::r1cs::R1cs::products_implied)) there is nothing to check.
    ///
    /// Takes the class `provers` from the grant: as many vectors as the backend takes ([`quotient_vectors`]).
    ///
    /// [`quotient_vectors`]: crate::backend::Backend::quotient_vectors
    ///
    /// # Errors
    /// [`ProveError::Unsatisfied`].
    pub fn evaluate(&self, grant: &mut Grant, witness: Witness) -> Result<Evaluated, ProveError> {
        self.evaluate_vectors(grant, witness, self.backend.quotient_vectors())
    }

    /// The same for a device, which makes c for itself.
    ///
    /// # Errors
    /// [`ProveError::Unsatisfied`].
    pub fn evaluate_for_device(&self, grant: &mut Grant, witness: Witness) -> Result<Evaluated, ProveError> {
        self.evaluate_vectors(grant, witness, 2)
    }

    fn evaluate_vectors(&self, grant: &mut Grant, witness: Witness, vectors: usize) -> Result<Evaluated, ProveError> {
        // All at once, as they were granted: so what the ledger has held is what the process has.
        let (mut a, mut b, mut c) = SecretVec::zeroed_vectors(grant, PROVERS, self.domain.size(), vectors)?;
        match self.r1cs.evaluate_all(&witness.assignment, &mut a, b.as_deref_mut(), c.as_deref_mut()) {
            Some(place) => Err(ProveError::Unsatisfied { constraint: self.first_unsatisfied(&witness, place) }),
            None => Ok(Evaluated { witness, a, b, c }),
        }
    }
}

impl Prover {
    /// The first constraint that is not satisfied, where the one at this place is the first in the domain's order.
    fn first_unsatisfied(&self, witness: &Witness, place: usize) -> usize {
        let at_place = self.r1cs.constraint_at(place);
        // In the constraints' own order there may be an earlier one; that is looked for only once it is known that there is any.
        self.r1cs.first_unsatisfied(&witness.assignment).map_or(at_place, |first| first.min(at_place))
    }
}
