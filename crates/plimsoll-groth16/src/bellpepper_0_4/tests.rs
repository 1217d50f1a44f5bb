use std::sync::Arc;

use ff::Field;
use plimsoll::Ledger;
use rand_core::RngCore;

use super::*;
use crate::backend::Cpu;
use crate::prover::{Blinding, ProveError, Prover};
use crate::r1cs::{R1cs, ShapeError};
use crate::test_circuits::rng;

/// The same gadgets and the same random combinations, in the words of one version and of the other.
macro_rules! twin {
    ($name:ident, $core:path) => {
        mod $name {
            use $core as core;

            use blstrs::Scalar;
            use core::boolean::{AllocatedBit, Boolean};
            use core::num::AllocatedNum;
            use core::{Circuit, ConstraintSystem, SynthesisError};

            use super::*;

            #[derive(Clone, Debug)]
            pub(super) struct Twin(pub(super) Option<Scalar>);

            impl Circuit<Scalar> for Twin {
                fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
                    let value = || self.0.ok_or(SynthesisError::AssignmentMissing);
                    let x = AllocatedNum::alloc(cs.namespace(|| "x"), value)?;
                    let square = x.square(cs.namespace(|| "square"))?;
                    let cube = x.mul(cs.namespace(|| "cube"), &square)?;
                    cube.inputize(cs.namespace(|| "public cube"))?;
                    let bit = Boolean::from(AllocatedBit::alloc(cs.namespace(|| "bit"), Some(true))?);
                    let not = Boolean::xor(cs.namespace(|| "xor"), &bit, &Boolean::constant(true))?;
                    let both = Boolean::and(cs.namespace(|| "and"), &bit, &not)?;
                    let mut rng = rng(3);
                    for _ in 0..40 {
                        let coefficient = Scalar::from(rng.next_u64());
                        // The bits' product is zero, so that anything may be multiplied by it.
                        cs.enforce(
                            || "zero",
                            |lc| lc + &both.lc(CS::one(), Scalar::ONE),
                            |lc| lc + (coefficient, x.get_variable()) - (coefficient, cube.get_variable()) + CS::one(),
                            |lc| lc + (coefficient, CS::one()) - (coefficient, CS::one()),
                        );
                    }
                    Ok(())
                }
            }
        }
    };
}

twin!(older, bellpepper_core);
twin!(newest, bellpepper_core_0_4);

#[test]
fn the_same_circuit_has_the_same_shape_and_the_same_proof() {
    let shape = R1cs::from_circuit(Newer(newest::Twin(None))).expect("shape");
    assert_eq!(shape.digest(), R1cs::from_circuit(older::Twin(None)).expect("shape").digest());
    let key = crate::setup::generate(&shape, &mut rng(1), &|_| std::ops::ControlFlow::Continue(())).expect("key");
    let prover = Prover::new(Arc::new(shape), Arc::new(key), Arc::new(Cpu::new())).expect("prover");
    let blinding = || Blinding::from_scalars(Scalar::from(1), Scalar::from(2));
    let value = Some(Scalar::from(5));
    let ledger = Ledger::unlimited();
    let expected = prover.prove(&ledger, older::Twin(value), blinding()).expect("proof");
    assert_eq!(prover.prove(&ledger, Newer(newest::Twin(value)), blinding()).expect("proof"), expected);
    assert_eq!(expected.public_inputs, [Scalar::from(125)]);
    let missing = prover.prove(&ledger, Newer(newest::Twin(None)), blinding());
    let error = missing.expect_err("it has no witness");
    assert!(matches!(error, ProveError::Synthesis { source: SynthesisError::AssignmentMissing }), "{error:?}");
}

#[test]
fn its_errors_come_through() {
    struct Fails;
    impl newer::Circuit<Scalar> for Fails {
        fn synthesize<CS: newer::ConstraintSystem<Scalar>>(self, _: &mut CS) -> Result<(), newer::SynthesisError> {
            Err(newer::SynthesisError::DivisionByZero)
        }
    }
    let error = R1cs::from_circuit(Newer(Fails)).expect_err("it fails");
    assert!(matches!(error, ShapeError::Synthesis { source: SynthesisError::DivisionByZero }), "{error:?}");
}
