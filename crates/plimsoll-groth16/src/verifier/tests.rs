use group::prime::PrimeCurveAffine;
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

/// A point of the curve outside the group of prime order: of one of the small orders that divide the curve's.
fn torsion() -> G1Affine {
    let outside = (1_u8..).find_map(|x| {
        let mut bytes = [0; 48];
        (bytes[0], bytes[47]) = (0x80, x);
        Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
    });
    let outside = outside.expect("half of the numbers are an x").to_curve();
    // The order of the group times the point, bit by bit: multiplication by a scalar knows only points of the group.
    let order = (-Scalar::ONE).to_bytes_be();
    let times = order.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let product = times.fold(G1Projective::identity(), |sum, bit| {
        sum.double() + if bit == 1 { outside } else { G1Projective::identity() }
    });
    (product + outside).to_affine()
}

#[test]
fn a_proof_outside_the_group_is_refused_though_the_equation_holds() {
    let (vk, good, inputs) = proofs(3);
    let torsion = torsion();
    assert!(bool::from(torsion.is_on_curve()) && !bool::from(torsion.is_torsion_free()));
    for (element, index) in [(ProofElement::A, 0), (ProofElement::C, 2)] {
        let mut proofs = good.clone();
        let proof = &mut proofs[index];
        let place = if element == ProofElement::A { &mut proof.a } else { &mut proof.c };
        *place = (*place + torsion.to_curve()).to_affine();
        let refused = Err(VerifyError::NotInSubgroup { index, element });
        assert_eq!(verify(&vk, &proofs[index], &inputs[index]), Err(VerifyError::NotInSubgroup { index: 0, element }));
        assert_eq!(verify_batch(&vk, &proofs, &inputs, &mut OsRng), refused);
        assert_eq!(first_invalid(&vk, &proofs, &inputs).map(|(_, error)| Err(error)), Some(refused));
    }
}
