//! From a circuit to its assignment.

use bellpepper_core::Circuit;
use blstrs::Scalar;
use ff::Field;
use plimsoll::pool;
use plimsoll::{Charged, Grant};

use super::{ProveError, Prover};
use crate::circuit::{Counts, WitnessCollector};
use crate::footprint::{AUX, SCRATCH};
use crate::secret::SecretVec;

/// A circuit's values: the constant one, the public inputs and the private values.
#[derive(Debug)]
pub struct Witness {
    pub(super) assignment: SecretVec,
    pub(super) public_inputs: Charged<Vec<Scalar>>,
}

impl Witness {
    /// The public inputs, the constant one left out.
    pub fn public_inputs(&self) -> &[Scalar] {
        &self.public_inputs
    }
}

impl Prover {
    /// Computes the circuit's values. Its constraints are not built again, and the circuit gets the same variable for all of its values
    /// ([`Prover::with_distinct_variables`]).
    ///
    /// Takes the classes `aux` and `shells` from the grant, and holds `scratch` for what the circuit allocates by itself.
    ///
    /// # Errors
    /// [`ProveError::Synthesis`] and [`ProveError::ShapeChanged`].
    pub fn synthesise<C: Circuit<Scalar>>(&self, grant: &mut Grant, circuit: C) -> Result<Witness, ProveError> {
        let r1cs = &*self.r1cs;
        // Held for the circuit, which allocates behind our back.
        let scratch = grant.take(SCRATCH, self.footprint(pool::current_threads()).synthesis_scratch())?;
        let mut assignment = SecretVec::zeroed(grant, AUX, r1cs.variables())?;
        let (inputs, aux) = assignment.split_at_mut(r1cs.inputs());
        let mut collector =
            WitnessCollector::with_one(inputs, aux, Scalar::ONE).with_distinct_variables(self.distinct_variables);
        let outcome = circuit.synthesize(&mut collector);
        let (found, overflowed) = (collector.counts(), collector.overflowed());
        let expected = Counts { inputs: r1cs.inputs(), aux: r1cs.aux(), constraints: r1cs.constraints() };
        if overflowed || (outcome.is_ok() && !collector.has_shape(&expected)) {
            return Err(ProveError::ShapeChanged { expected, found });
        }
        outcome.map_err(|source| ProveError::Synthesis { source })?;
        drop(scratch);
        Witness::of(grant, assignment, r1cs.inputs())
    }
}
