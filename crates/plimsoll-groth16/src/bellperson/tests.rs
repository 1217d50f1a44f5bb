use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::Arc;

use bellpepper_core::ConstraintSystem;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Ledger, Space};

use super::*;
use crate::footprint::{AUX, MATRICES, SRS};
use crate::keys::ProvingKey;
use crate::r1cs::R1cs;
use crate::setup;
use crate::test_circuits::{Cubic, Random, Squarings, TestCircuit, rng};

fn key_of<C: TestCircuit>(circuit: C) -> (R1cs, ProvingKey) {
    let r1cs = R1cs::from_circuit(circuit).expect("shape");
    let key = setup::generate(&r1cs, &mut rng(1), &|_| ControlFlow::Continue(())).expect("key");
    (r1cs, key)
}

fn engine(ledger: Ledger) -> Engine {
    Engine::new(ledger, Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).expect("pool"))
}

fn squarings(start: u64) -> Squarings {
    Squarings { start: Some(Scalar::from(start)), steps: 700 }
}

#[test]
fn a_batch_is_proved_within_the_budget_for_two_and_is_what_the_prover_makes() {
    let (r1cs, key) = key_of(squarings(2));
    let key = Arc::new(key);
    let prover = Prover::new(Arc::new(r1cs), key.clone(), Arc::new(crate::backend::Cpu::new())).expect("prover");
    let claim = prover
        .profile(2)
        .stages()
        .iter()
        .map(|stage| stage.peak.iter().map(|(_, bytes)| bytes).sum::<u64>())
        .max()
        .unwrap_or(0);
    let shared = key.resident_bytes() + prover.r1cs().resident_bytes();
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(shared + 2 * claim)));
    let params = Parameters::new(&engine(ledger.clone()), key).expect("params");
    // The first call takes the matrices from its first circuit, the second one has them.
    for seed in [5, 6] {
        let circuits: Vec<_> = (2..8).map(squarings).collect();
        let proofs = create_random_proof_batch(circuits.clone(), &params, &mut rng(seed)).expect("proofs");
        let mut rng = rng(seed);
        let mut draw = || circuits.iter().map(|_| Scalar::random(&mut rng)).collect::<Vec<_>>();
        let (r, s) = (draw(), draw());
        for (i, circuit) in circuits.iter().enumerate() {
            let blinding = Blinding::from_scalars(r[i], s[i]);
            let expected = prover.prove(&Ledger::unlimited(), circuit.clone(), blinding).expect("proof");
            assert_eq!(proofs[i], expected.proof, "circuit {i} of seed {seed}");
        }
        let inputs: Vec<_> = circuits.iter().map(TestCircuit::public_inputs).collect();
        let vk = prepare_verifying_key(params.vk());
        let borrowed: Vec<&Proof> = proofs.iter().collect();
        assert!(verify_proofs_batch(&vk, &mut rand_core::OsRng, &borrowed, &inputs).expect("well-formed"));
        assert!(verify_proof(&vk, &proofs[0], &inputs[0]).expect("well-formed"));
        assert!(!verify_proof(&vk, &proofs[0], &inputs[1]).expect("well-formed"));
    }
    let snapshot = ledger.snapshot();
    assert!(snapshot.spaces[0].peak <= snapshot.spaces[0].limit, "{snapshot:?}");
    assert_eq!(snapshot.class(AUX).map_or(0, |class| class.totals.held), 0);
    assert_eq!(snapshot.class(SRS).map_or(0, |class| class.totals.held), params.key().resident_bytes());
    assert_eq!(snapshot.class(MATRICES).map_or(0, |class| class.totals.held), prover.r1cs().resident_bytes());
    drop(params);
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_key_file_is_read_and_random_circuits_are_proved_from_their_first_synthesis() {
    for seed in 0..8 {
        let circuit = Random::small(seed);
        let (_, key) = key_of(circuit.clone());
        let mut file = Vec::new();
        key.write(&mut file).expect("written");
        let params = Parameters::read_in(&engine(Ledger::unlimited()), Cursor::new(file), true).expect("read");
        let proof = create_random_proof(circuit.clone(), &params, &mut rng(seed)).expect("proof");
        let vk = prepare_verifying_key(params.vk());
        assert!(verify_proof(&vk, &proof, &circuit.public_inputs()).expect("well-formed"), "{seed}");
    }
}

#[test]
fn circuits_that_compare_their_variables_get_distinct_ones_where_it_is_said() {
    use crate::prover::tests::Compares;
    let key = Arc::new(key_of(Compares).1);
    let params = || Parameters::new(&engine(Ledger::unlimited()), key.clone()).expect("params");
    // The first is synthesised for its shape as well.
    let alike = create_random_proof_batch(vec![Compares, Compares], &params(), &mut rng(1));
    assert!(matches!(alike, Err(BatchError::Circuit { index: 1, .. })), "{alike:?}");
    let params = params().with_distinct_variables();
    assert_eq!(create_random_proof_batch(vec![Compares, Compares], &params, &mut rng(1)).expect("proofs").len(), 2);
}

#[test]
fn failures_are_named_and_nothing_is_kept() {
    let (_, key) = key_of(squarings(2));
    let key = Arc::new(key);
    let ledger = Ledger::unlimited();
    let params = Parameters::new(&engine(ledger.clone()), key.clone()).expect("params");
    let error =
        |circuits: Vec<Squarings>| create_random_proof_batch(circuits, &params, &mut rng(1)).expect_err("refused");

    // Another circuit, as the first one and later.
    let longer = Squarings { steps: 701, ..squarings(2) };
    let first = error(vec![longer.clone()]);
    assert!(matches!(first, BatchError::Shape(ShapeError::TooManyVariables { .. })), "{first:?}");
    let first = error(vec![Squarings { steps: 699, ..squarings(2) }]);
    assert!(matches!(first, BatchError::Mismatch(_)), "{first:?}");
    let later = error(vec![squarings(2), longer]);
    assert!(matches!(&later, BatchError::Circuit { index: 1, .. }), "{later:?}");
    assert!(matches!(SynthesisError::from(later), SynthesisError::IoError(_)));

    // No witness.
    let missing = error(vec![squarings(2), Squarings { start: None, steps: 700 }]);
    assert!(matches!(SynthesisError::from(missing), SynthesisError::AssignmentMissing));

    let counts = create_proof_batch(vec![squarings(2)], &params, vec![], vec![Scalar::ONE]).expect_err("refused");
    assert!(matches!(counts, BatchError::Blinding { circuits: 1, r: 0, s: 1 }), "{counts:?}");
    assert!(create_random_proof_batch(Vec::<Cubic>::new(), &params, &mut rng(1)).expect("none").is_empty());
    drop(params);
    assert!(ledger.snapshot().is_empty(), "{:?}", ledger.snapshot());

    // A budget in which the key does not fit, and one in which it fits and no proof does.
    let budget = |bytes: u64| engine(Ledger::new(Budget::new().space(Space::HOST, Bytes(bytes))));
    let small = Parameters::new(&budget(key.resident_bytes() - 1), key.clone()).expect_err("refused");
    assert!(matches!(small, BatchError::Memory { what: "key", .. }), "{small:?}");
    let params = Parameters::new(&budget(key.resident_bytes() + (200 << 10)), key.clone()).expect("params");
    let never = create_random_proof(squarings(2), &params, &mut rng(1)).expect_err("refused");
    assert!(matches!(never, BatchError::TooLarge { .. }), "{never:?}");
}

#[test]
fn a_wrong_witness_is_unsatisfiable() {
    /// x · x = y with the wrong y.
    #[derive(Clone)]
    struct Wrong(u64);
    impl Circuit<Scalar> for Wrong {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
            let x = cs.alloc(|| "x", || Ok(Scalar::from(3)))?;
            let y = cs.alloc_input(|| "y", || Ok(Scalar::from(self.0)))?;
            cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + y);
            Ok(())
        }
    }
    impl TestCircuit for Wrong {
        fn public_inputs(&self) -> Vec<Scalar> {
            vec![Scalar::from(self.0)]
        }
    }
    let (_, key) = key_of(Wrong(9));
    let params = Parameters::new(&engine(Ledger::unlimited()), Arc::new(key)).expect("params");
    let wrong = create_random_proof_batch(vec![Wrong(9), Wrong(10)], &params, &mut rng(1)).expect_err("refused");
    assert!(matches!(wrong, BatchError::Circuit { index: 1, .. }), "{wrong:?}");
    assert!(matches!(SynthesisError::from(wrong), SynthesisError::Unsatisfiable));
}
