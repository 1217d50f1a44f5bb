//! An assignment from values that were computed elsewhere: a witness file, another library's constraint system.

use blstrs::Scalar;
use ff::Field;
use plimsoll::{Grant, pool};

use super::synthesise::Witness;
use super::{ProveError, Prover};
use crate::footprint::{AUX, SCRATCH, SHELLS};
use crate::secret::SecretVec;

impl Prover {
    /// An assignment whose values `fill` puts in their places: first the public inputs, the constant one left out, then the private
    /// values.
    ///
    /// Takes the classes `aux` and `shells` from the grant, and holds `scratch` for what `fill` allocates by itself
    /// ([`Prover::with_synthesis_scratch`] says how much).
    ///
    /// # Errors
    /// Those of `fill`, which can use [`ProveError::Assignment`].
    pub fn assign(
        &self,
        grant: &mut Grant,
        fill: impl FnOnce(&mut [Scalar], &mut [Scalar]) -> Result<(), ProveError>,
    ) -> Result<Witness, ProveError> {
        let scratch = grant.take(SCRATCH, self.footprint(pool::current_threads()).synthesis_scratch())?;
        let mut assignment = SecretVec::zeroed(grant, AUX, self.r1cs.variables())?;
        let (inputs, aux) = assignment.split_at_mut(self.r1cs.inputs());
        inputs[0] = Scalar::ONE;
        fill(&mut inputs[1..], aux)?;
        drop(scratch);
        Witness::of(grant, assignment, self.r1cs.inputs())
    }
}

impl Witness {
    /// The assignment with a copy of its public inputs.
    pub(super) fn of(grant: &mut Grant, assignment: SecretVec, inputs: usize) -> Result<Self, ProveError> {
        let mut public_inputs = grant.vec(SHELLS, inputs - 1)?;
        match public_inputs.extend_from_slice(&assignment[1..inputs]) {
            Ok(()) => Ok(Self { assignment, public_inputs }),
            Err(_) => unreachable!("the capacity is the number of public inputs"),
        }
    }
}
