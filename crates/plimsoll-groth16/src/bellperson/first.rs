//! The first circuit that is proved under a key is synthesised for its matrices and for its values in one pass, because it is
//! consumed by it.
//!
//! Nobody knows before how large the matrices are, so they are charged only when they are done, here and where the circuit's shape is
//! given beforehand ([`super::Parameters::with_circuit`]). Who does that has the values at least counted: those of this one pass
//! are not.

use std::fmt;

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use ff::Field;

use crate::circuit::{ShapeBuilder, WitnessCollector};
use crate::r1cs::{R1cs, ShapeError};
use crate::secret::erase;

/// A circuit's values on their way to the job that will prove it. Erased when dropped.
pub(super) struct Values {
    inputs: Vec<Scalar>,
    aux: Vec<Scalar>,
}

impl Values {
    /// To where the prover wants them: the inputs without the constant one, and the private values.
    pub(super) fn copy_to(self, inputs: &mut [Scalar], aux: &mut [Scalar]) {
        inputs.copy_from_slice(&self.inputs[1..]);
        aux.copy_from_slice(&self.aux);
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        erase(&mut self.inputs);
        erase(&mut self.aux);
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} secret scalars]", self.inputs.len() + self.aux.len())
    }
}

/// Shape and values of a circuit that should have so many variables.
pub(super) fn synthesise<C: Circuit<Scalar>>(
    circuit: C,
    inputs: usize,
    aux: usize,
) -> Result<(R1cs, Values), ShapeError> {
    let mut values = Values { inputs: vec![Scalar::ZERO; inputs], aux: vec![Scalar::ZERO; aux] };
    let mut both = Both {
        shape: ShapeBuilder::with_one(),
        witness: WitnessCollector::with_one(&mut values.inputs, &mut values.aux, Scalar::ONE),
    };
    let outcome = circuit.synthesize(&mut both);
    let Both { shape, witness } = both;
    if witness.overflowed() {
        // The key is for a smaller circuit. What the circuit says about it is not the cause.
        return Err(ShapeError::TooManyVariables { inputs, aux });
    }
    outcome.map_err(|source| ShapeError::Synthesis { source })?;
    Ok((shape.finish()?, values))
}

/// Passes everything on to both.
struct Both<'a> {
    shape: ShapeBuilder,
    witness: WitnessCollector<'a>,
}

impl ConstraintSystem<Scalar> for Both<'_> {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, annotation: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.witness.alloc(annotation, value)?;
        self.shape.alloc(|| "", || Ok(Scalar::ZERO))
    }

    fn alloc_input<F, A, AR>(&mut self, annotation: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.witness.alloc_input(annotation, value)?;
        self.shape.alloc_input(|| "", || Ok(Scalar::ZERO))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, annotation: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        self.shape.enforce(annotation, a, b, c);
    }

    fn push_namespace<NR, N>(&mut self, _name: N)
    where
        NR: Into<String>,
        N: FnOnce() -> NR,
    {
    }

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}
