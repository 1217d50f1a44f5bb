//! Circuits written for `bellpepper-core` 0.4, proved as those of 0.2.
//!
//! The two versions have the same traits under different names to the compiler. [`Newer`] translates while the circuit is
//! synthesised: calls one by one, and linear combinations term by term, which happens only when a shape is built.

use bellpepper_core::{Circuit, ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use bellpepper_core_0_4 as newer;
use blstrs::Scalar;

/// A circuit for `bellpepper-core` 0.4 as one for 0.2.
///
/// ```
/// use bellpepper_core_0_4::{Circuit, ConstraintSystem, SynthesisError};
/// use blstrs::Scalar;
/// use plimsoll_groth16::{bellpepper_0_4::Newer, r1cs::R1cs};
///
/// struct Square;
///
/// impl Circuit<Scalar> for Square {
///     fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
///         let x = cs.alloc(|| "x", || Ok(Scalar::from(3)))?;
///         let y = cs.alloc_input(|| "y", || Ok(Scalar::from(9)))?;
///         cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + y);
///         Ok(())
///     }
/// }
///
/// assert_eq!(R1cs::from_circuit(Newer(Square))?.constraints(), 3);
/// # Ok::<(), plimsoll_groth16::r1cs::ShapeError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Newer<C>(pub C);

impl<C: newer::Circuit<Scalar>> Circuit<Scalar> for Newer<C> {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        self.0.synthesize(&mut Translator(cs)).map_err(error_to_older)
    }
}

/// Takes the calls of a newer circuit.
struct Translator<'a, CS>(&'a mut CS);

impl<CS: ConstraintSystem<Scalar>> newer::ConstraintSystem<Scalar> for Translator<'_, CS> {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, annotation: A, value: F) -> Result<newer::Variable, newer::SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, newer::SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        let variable = self.0.alloc(annotation, || value().map_err(error_to_older)).map_err(error_to_newer)?;
        Ok(variable_to_newer(variable))
    }

    fn alloc_input<F, A, AR>(&mut self, annotation: A, value: F) -> Result<newer::Variable, newer::SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, newer::SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        let variable = self.0.alloc_input(annotation, || value().map_err(error_to_older)).map_err(error_to_newer)?;
        Ok(variable_to_newer(variable))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, annotation: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(newer::LinearCombination<Scalar>) -> newer::LinearCombination<Scalar>,
        LB: FnOnce(newer::LinearCombination<Scalar>) -> newer::LinearCombination<Scalar>,
        LC: FnOnce(newer::LinearCombination<Scalar>) -> newer::LinearCombination<Scalar>,
    {
        self.0.enforce(annotation, |lc| translate(lc, a), |lc| translate(lc, b), |lc| translate(lc, c));
    }

    fn push_namespace<NR, N>(&mut self, name: N)
    where
        NR: Into<String>,
        N: FnOnce() -> NR,
    {
        self.0.get_root().push_namespace(name);
    }

    fn pop_namespace(&mut self) {
        self.0.get_root().pop_namespace();
    }

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}

/// What the newer closure adds to nothing, added to `sum`.
fn translate(
    sum: LinearCombination<Scalar>,
    build: impl FnOnce(newer::LinearCombination<Scalar>) -> newer::LinearCombination<Scalar>,
) -> LinearCombination<Scalar> {
    build(newer::LinearCombination::zero())
        .iter()
        .fold(sum, |sum, (variable, coefficient)| sum + (*coefficient, variable_to_older(variable)))
}

fn variable_to_newer(variable: Variable) -> newer::Variable {
    newer::Variable::new_unchecked(match variable.get_unchecked() {
        Index::Input(index) => newer::Index::Input(index),
        Index::Aux(index) => newer::Index::Aux(index),
    })
}

fn variable_to_older(variable: newer::Variable) -> Variable {
    Variable::new_unchecked(match variable.get_unchecked() {
        newer::Index::Input(index) => Index::Input(index),
        newer::Index::Aux(index) => Index::Aux(index),
    })
}

macro_rules! translate_errors {
    ($name:ident, $from:ty, $to:ty) => {
        fn $name(error: $from) -> $to {
            type From = $from;
            type To = $to;
            match error {
                From::AssignmentMissing => To::AssignmentMissing,
                From::DivisionByZero => To::DivisionByZero,
                From::Unsatisfiable => To::Unsatisfiable,
                From::PolynomialDegreeTooLarge => To::PolynomialDegreeTooLarge,
                From::UnexpectedIdentity => To::UnexpectedIdentity,
                From::IoError(error) => To::IoError(error),
                From::MalformedVerifyingKey => To::MalformedVerifyingKey,
                From::UnconstrainedVariable => To::UnconstrainedVariable,
                From::MalformedProofs(text) => To::MalformedProofs(text),
                From::MalformedSrs => To::MalformedSrs,
                From::NonPowerOfTwo => To::NonPowerOfTwo,
                From::IncompatibleLengthVector(text) => To::IncompatibleLengthVector(text),
                From::InvalidPairing => To::InvalidPairing,
            }
        }
    };
}

translate_errors!(error_to_older, newer::SynthesisError, SynthesisError);
translate_errors!(error_to_newer, SynthesisError, newer::SynthesisError);

#[cfg(test)]
mod tests;
