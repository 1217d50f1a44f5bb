use bellpepper_core::{ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use ff::Field;

use super::*;
use crate::circuit::WitnessCollector;
use crate::test_circuits::{Cubic, InputsOnly, Quirks, Random, Sha256Preimage, Squarings, TestCircuit, rng};

/// Evaluates every linear combination as the circuit is synthesised: the oracle for shape, witness and sparse products.
struct Oracle {
    inputs: Vec<Scalar>,
    aux: Vec<Scalar>,
    rows: Vec<[LinearCombination<Scalar>; 3]>,
}

impl ConstraintSystem<Scalar> for Oracle {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.aux.push(value()?);
        Ok(Variable::new_unchecked(Index::Aux(self.aux.len() - 1)))
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.inputs.push(value()?);
        Ok(Variable::new_unchecked(Index::Input(self.inputs.len() - 1)))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        let zero = LinearCombination::zero;
        self.rows.push([a(zero()), b(zero()), c(zero())]);
    }

    fn push_namespace<NR, N>(&mut self, _: N)
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

fn check<C: TestCircuit>(name: &str, circuit: C) {
    let r1cs = R1cs::from_circuit(circuit.clone()).expect(name);
    let mut oracle = Oracle { inputs: vec![Scalar::ONE], aux: Vec::new(), rows: Vec::new() };
    circuit.clone().synthesize(&mut oracle).expect(name);
    assert_eq!((r1cs.inputs(), r1cs.aux()), (oracle.inputs.len(), oracle.aux.len()), "{name}");
    assert_eq!(r1cs.constraints(), oracle.rows.len() + oracle.inputs.len(), "{name}");
    assert_eq!(oracle.inputs[1..], circuit.public_inputs(), "{name}");

    let mut assignment = vec![Scalar::ZERO; r1cs.variables()];
    let (inputs, aux) = assignment.split_at_mut(r1cs.inputs());
    let mut collector = WitnessCollector::with_one(inputs, aux, Scalar::ONE);
    circuit.clone().synthesize(&mut collector).expect(name);
    let found = collector.counts();
    assert_eq!((found.inputs, found.aux, found.constraints), (r1cs.inputs, r1cs.aux, r1cs.constraints), "{name}");
    assert_eq!(assignment, [&oracle.inputs[..], &oracle.aux].concat(), "{name}");
    // The same with a variable for each value.
    let mut again = vec![Scalar::ZERO; r1cs.variables()];
    let (inputs, aux) = again.split_at_mut(r1cs.inputs());
    let mut collector = WitnessCollector::with_one(inputs, aux, Scalar::ONE).with_distinct_variables(true);
    circuit.synthesize(&mut collector).expect(name);
    assert!(again == assignment, "{name}");

    for (index, matrix) in [r1cs.a(), r1cs.b(), r1cs.c()].into_iter().enumerate() {
        let mut product = vec![Scalar::ZERO; r1cs.constraints()];
        r1cs.evaluate(matrix, &assignment, &mut product);
        let mut expected: Vec<_> = oracle.rows.iter().map(|row| row[index].eval(&oracle.inputs, &oracle.aux)).collect();
        // The constraints that keep the inputs independent: x · 0 = 0.
        expected.extend(oracle.inputs.iter().map(|x| if index == 0 { *x } else { Scalar::ZERO }));
        assert_eq!(product, expected, "{name}, matrix {index}");
    }
    for (index, density) in [r1cs.a_density(), r1cs.b_density()].into_iter().enumerate() {
        let mut expected = vec![false; r1cs.variables()];
        expected[..r1cs.inputs].fill(index == 0);
        for row in &oracle.rows {
            for (variable, coefficient) in row[index].iter().filter(|(_, c)| **c != Scalar::ZERO) {
                assert_ne!(*coefficient, Scalar::ZERO);
                match variable.get_unchecked() {
                    Index::Input(i) => expected[i] = true,
                    Index::Aux(i) => expected[r1cs.inputs + i] = true,
                }
            }
        }
        let found: Vec<_> = (0..r1cs.variables()).map(|v| density.contains(v)).collect();
        assert_eq!(found, expected, "{name}, density {index}");
    }
    assert_eq!(r1cs.first_unsatisfied(&assignment), None, "{name}");
}

#[test]
fn shape_and_witness_agree_with_direct_evaluation() {
    check("cubic", Cubic(Some(Scalar::from(7))));
    check("inputs only", InputsOnly);
    check("quirks", Quirks(Some((Scalar::from(3), Scalar::random(rng(1))))));
    check("squarings", Squarings { start: Some(Scalar::from(2)), steps: 5000 });
    check("sha256", Sha256Preimage { bytes: Some(b"letter".to_vec()), len: 6 });
    for seed in 0..40 {
        check(&format!("random {seed}"), Random::small(seed));
    }
}

#[test]
fn the_shape_needs_no_witness_and_does_not_depend_on_it() {
    let with = R1cs::from_circuit(Sha256Preimage { bytes: Some(b"secret".to_vec()), len: 6 }).expect("shape");
    let without = R1cs::from_circuit(Sha256Preimage { bytes: None, len: 6 }).expect("shape");
    let other = R1cs::from_circuit(Sha256Preimage { bytes: None, len: 7 }).expect("shape");
    assert_eq!(with.digest(), without.digest());
    assert_ne!(with.digest(), other.digest());
}

#[test]
fn equal_sizes_with_another_coefficient_have_another_digest() {
    struct Scaled(u64);
    impl Circuit<Scalar> for Scaled {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
            let x = cs.alloc(|| "x", || Ok(Scalar::ZERO))?;
            cs.enforce(|| "scaled", |lc| lc + (Scalar::from(self.0), x), |lc| lc + x, |lc| lc);
            Ok(())
        }
    }
    let digest = |factor| R1cs::from_circuit(Scaled(factor)).expect("shape").digest();
    assert_eq!(digest(5), digest(5));
    assert_ne!(digest(5), digest(6));
}

#[test]
fn the_first_unsatisfied_constraint_is_named() {
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 5000 };
    let r1cs = R1cs::from_circuit(circuit.clone()).expect("shape");
    let mut good = vec![Scalar::ZERO; r1cs.variables()];
    let (inputs, aux) = good.split_at_mut(r1cs.inputs());
    circuit.synthesize(&mut WitnessCollector::with_one(inputs, aux, Scalar::ONE)).expect("witness");
    // Private value k > 0 is the result of constraint k − 1.
    for wrong in [1, 2, 2047, 2048, 2049, 4999] {
        let mut assignment = good.clone();
        assignment[r1cs.inputs() + wrong] += Scalar::ONE;
        assert_eq!(r1cs.first_unsatisfied(&assignment), Some(wrong - 1));
    }
}

#[test]
fn a_variable_of_another_system_is_refused() {
    struct Stray;
    impl Circuit<Scalar> for Stray {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
            cs.enforce(|| "fine", |lc| lc + CS::one(), |lc| lc, |lc| lc);
            cs.enforce(|| "stray", |lc| lc + Variable::new_unchecked(Index::Aux(3)), |lc| lc, |lc| lc);
            Ok(())
        }
    }
    assert!(matches!(R1cs::from_circuit(Stray), Err(ShapeError::UnknownVariable { constraint: 1 })));
}

#[test]
fn one_walk_makes_all_three_products_and_finds_the_first_that_is_wrong() {
    fn check<C: TestCircuit>(circuit: C, stride: u32) {
        let r1cs = R1cs::from_circuit(circuit.clone()).expect("shape").with_stride(stride);
        let mut assignment = vec![Scalar::ZERO; r1cs.variables()];
        let (inputs, aux) = assignment.split_at_mut(r1cs.inputs());
        circuit.synthesize(&mut WitnessCollector::with_one(inputs, aux, Scalar::ONE)).expect("witness");
        let n = r1cs.domain().size();
        let product = |matrix, assignment: &[Scalar]| {
            let mut out = vec![Scalar::ZERO; n];
            r1cs.evaluate(matrix, assignment, &mut out);
            out
        };
        for wrong in [None, Some(1), Some(r1cs.variables() / 2), Some(r1cs.variables() - 1)] {
            let mut assignment = assignment.clone();
            wrong.iter().for_each(|&variable| assignment[variable] += Scalar::from(5));
            let expected = [r1cs.a(), r1cs.b(), r1cs.c()].map(|matrix| product(matrix, &assignment));
            let unsatisfied = (0..n).find(|&i| expected[0][i] * expected[1][i] != expected[2][i]);
            assert_eq!(unsatisfied.is_some(), wrong.is_some(), "each variable is constrained");
            let mut found = [(); 3].map(|()| vec![Scalar::ZERO; n]);
            let [a, b, c] = &mut found;
            assert_eq!(r1cs.evaluate_all(&assignment, a, Some(b), Some(c)), unsatisfied);
            assert!(found == expected, "stride {stride}");
            // What has no place is compared all the same, and made later where something else was: as a whole, or some of it.
            let [mut a, mut b] = [(); 2].map(|()| vec![Scalar::ZERO; n]);
            assert_eq!(r1cs.evaluate_all(&assignment, &mut a, Some(&mut b), None), unsatisfied);
            assert!(a == expected[0] && b == expected[1], "stride {stride}");
            a.fill(Scalar::ZERO);
            assert_eq!(r1cs.evaluate_all(&assignment, &mut a, None, None), unsatisfied);
            assert!(a == expected[0], "stride {stride}");
            for (values, expected) in [(Values::Right, &expected[1]), (Values::Product, &expected[2])] {
                for (first, step) in [(0, 1), (1, 2), (3, 4), (0, 64), (63, 64)] {
                    let some: Vec<_> = expected.iter().copied().skip(first).step_by(step).collect();
                    let out = &mut found[0][..some.len()];
                    r1cs.evaluate_every(values, &assignment, first, step, out);
                    assert!(*out == some, "{values:?}, stride {stride}, from {first} every {step}");
                }
            }
        }
    }
    for stride in [1, 0x1234_5677] {
        check(Cubic(Some(Scalar::from(7))), stride);
        check(Squarings { start: Some(Scalar::from(2)), steps: 3 * ROWS_PER_TASK }, stride);
        check(Sha256Preimage { bytes: Some(b"letter".to_vec()), len: 6 }, stride);
    }
}
