use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};

use super::*;
use crate::test_circuits::{Cubic, Random, Squarings, rng};

fn shape<C: Circuit<Scalar>>(circuit: C) -> R1cs {
    R1cs::from_circuit(circuit).expect("shape")
}

#[test]
fn the_key_is_a_function_of_the_generator_and_fits_the_shape() {
    let r1cs = shape(Random::small(5));
    let key = |seed| generate(&r1cs, &mut rng(seed), &|_| ControlFlow::Continue(())).expect("key");
    assert_eq!(key(1), key(1));
    assert_ne!(key(1), key(2));
    assert_eq!(key(1).check_shape(&r1cs), Ok(()));
    assert!(key(1).check_shape(&shape(Cubic(None))).is_err());
}

#[test]
fn progress_ends_at_the_total_of_each_phase() {
    let r1cs = shape(Squarings { start: None, steps: 3000 });
    let furthest = [const { AtomicUsize::new(0) }; 3];
    let totals = [const { AtomicUsize::new(0) }; 3];
    generate(&r1cs, &mut rng(1), &|progress| {
        furthest[progress.phase as usize].fetch_max(progress.done, Ordering::Relaxed);
        totals[progress.phase as usize].store(progress.total, Ordering::Relaxed);
        ControlFlow::Continue(())
    })
    .expect("key");
    for (furthest, total) in furthest.iter().zip(&totals) {
        assert_eq!(furthest.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
        assert_ne!(total.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_set_up_ends_when_the_callback_says_so() {
    let r1cs = shape(Squarings { start: None, steps: 3000 });
    let calls = AtomicUsize::new(0);
    let result = generate(&r1cs, &mut rng(1), &|_| match calls.fetch_add(1, Ordering::Relaxed) {
        4 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert_eq!(result, Err(SetupError::Cancelled));
}

#[test]
fn an_unconstrained_variable_is_named() {
    struct Loose;
    impl Circuit<Scalar> for Loose {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
            let used = cs.alloc(|| "used", || Ok(Scalar::ONE))?;
            let _loose = cs.alloc(|| "loose", || Ok(Scalar::ONE))?;
            cs.enforce(|| "used", |lc| lc + used, |lc| lc + used, |lc| lc + used);
            Ok(())
        }
    }
    let result = generate(&shape(Loose), &mut rng(1), &|_| ControlFlow::Continue(()));
    assert_eq!(result, Err(SetupError::Unconstrained { variable: 1 }));
}

#[test]
fn degenerate_secrets_are_refused() {
    let r1cs = shape(Cubic(None));
    let spoil: [fn(&mut ToxicWaste, &R1cs); 5] = [
        |toxic, _| toxic.alpha = Scalar::ZERO,
        |toxic, _| toxic.gamma = Scalar::ZERO,
        |toxic, _| toxic.delta = Scalar::ZERO,
        |toxic, _| toxic.g1 = G1Projective::identity(),
        |toxic, r1cs| toxic.tau = r1cs.domain().omega(),
    ];
    for (case, spoil) in spoil.iter().enumerate() {
        let mut toxic = ToxicWaste::random(&mut rng(1));
        spoil(&mut toxic, &r1cs);
        let result = generate_from(&r1cs, &toxic, HBasis::PowersOfTau, &|_| ControlFlow::Continue(()));
        assert_eq!(result, Err(SetupError::Degenerate), "case {case}");
    }
}

#[test]
fn secrets_are_not_printed() {
    assert_eq!(format!("{:?}", ToxicWaste::random(&mut rng(1))), "ToxicWaste(..)");
}
