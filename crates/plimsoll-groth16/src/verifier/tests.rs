use plimsoll::Ledger;
use rand_core::OsRng;

use super::*;
use crate::prover::Blinding;
use crate::prover::tests::prover;
use crate::test_circuits::Cubic;

/// A key, and proofs of different statements.
fn proofs(count: u64) -> (PreparedVerifyingKey, Vec<Proof>, Vec<Vec<Scalar>>) {
    let prover = prover(Cubic(None));
    let proved = |i: u64| {
        let circuit = Cubic(Some(Scalar::from(i + 2)));
        prover.prove(&Ledger::unlimited(), circuit, Blinding::from_os()).expect("proof")
    };
    let (proofs, inputs) = (0..count).map(proved).map(|proved| (proved.proof, proved.public_inputs)).unzip();
    (PreparedVerifyingKey::new(&prover.key().vk), proofs, inputs)
}

#[test]
fn a_batch_is_valid_when_each_proof_is() {
    let (vk, proofs, inputs) = proofs(5);
    for len in 0..=5 {
        assert_eq!(verify_batch(&vk, &proofs[..len], &inputs[..len], &mut OsRng), Ok(()), "{len} proofs");
    }
    assert_eq!(first_invalid(&vk, &proofs, &inputs), None);
}

#[test]
fn one_bad_proof_spoils_the_batch_and_is_found() {
    let (vk, good, inputs) = proofs(5);
    for index in 0..5 {
        let mut wrong_inputs = inputs.clone();
        wrong_inputs[index][0] += Scalar::ONE;
        assert_eq!(verify_batch(&vk, &good, &wrong_inputs, &mut OsRng), Err(VerifyError::InvalidProof));
        assert_eq!(first_invalid(&vk, &good, &wrong_inputs), Some((index, VerifyError::InvalidProof)));
    }
    // Errors that cancel each other without the random factors.
    let mut cancelling = good.clone();
    let shift = G1Affine::generator();
    cancelling[1].c = (good[1].c + shift.to_curve()).to_affine();
    cancelling[3].c = (good[3].c - shift.to_curve()).to_affine();
    assert_eq!(verify_batch(&vk, &cancelling, &inputs, &mut OsRng), Err(VerifyError::InvalidProof));
    let mut swapped = good.clone();
    swapped.swap(0, 4);
    assert_eq!(verify_batch(&vk, &swapped, &inputs, &mut OsRng), Err(VerifyError::InvalidProof));
    assert_eq!(first_invalid(&vk, &swapped, &inputs), Some((0, VerifyError::InvalidProof)));
}

#[test]
fn a_wrong_number_of_inputs_is_not_called_an_invalid_proof() {
    let (vk, good, inputs) = proofs(2);
    for wrong in [vec![], vec![Scalar::ONE; 2]] {
        let (found, expected) = (wrong.len(), 1);
        let count = |index| VerifyError::InputCount { index, found, expected };
        assert_eq!(verify(&vk, &good[0], &wrong), Err(count(0)));
        let batch = [inputs[0].clone(), wrong];
        assert_eq!(verify_batch(&vk, &good, &batch, &mut OsRng), Err(count(1)));
        assert_eq!(first_invalid(&vk, &good, &batch), Some((1, count(1))));
    }
    let error = VerifyError::BatchLength { proofs: 2, inputs: 1 };
    assert_eq!(verify_batch(&vk, &good, &inputs[..1], &mut OsRng), Err(error));
}

#[test]
fn a_proof_is_not_valid_under_another_key() {
    let (_, proofs, inputs) = proofs(1);
    let r1cs = crate::r1cs::R1cs::from_circuit(Cubic(None)).expect("shape");
    let other = crate::setup::generate(&r1cs, &mut OsRng, &|_| std::ops::ControlFlow::Continue(())).expect("key");
    let other = PreparedVerifyingKey::new(&other.vk);
    assert_eq!(verify(&other, &proofs[0], &inputs[0]), Err(VerifyError::InvalidProof));
}
