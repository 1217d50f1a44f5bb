use blstrs::Scalar;
use plimsoll::Ledger;

use super::*;
use crate::prover::tests::{blinding, prover};
use crate::test_circuits::Cubic;
use crate::{PreparedVerifyingKey, VerifyError, verify};

#[test]
fn no_flipped_bit_and_no_other_length_passes_for_a_proof() {
    let circuit = Cubic(Some(Scalar::from(7)));
    let prover = prover(circuit.clone());
    let proved = prover.prove(&Ledger::unlimited(), circuit, blinding()).expect("proof");
    let vk = PreparedVerifyingKey::new(&prover.key().vk);
    let bytes = proved.proof.to_bytes();
    assert_eq!(Proof::from_bytes(&bytes), Ok(proved.proof));
    let mut well_formed = 0;
    for bit in 0..8 * Proof::BYTES {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Ok(other) = Proof::from_bytes(&damaged) {
            well_formed += 1;
            assert_ne!(other, proved.proof, "bit {bit}: two encodings of one proof");
            assert_eq!(verify(&vk, &other, &proved.public_inputs), Err(VerifyError::InvalidProof), "bit {bit}");
        }
    }
    // The signs of the three y coordinates: the negated points are well-formed.
    assert_eq!(well_formed, 3);
    for len in (0..Proof::BYTES).chain([Proof::BYTES + 1]) {
        let other = [&bytes[..], &[0]].concat();
        assert_eq!(Proof::from_bytes(&other[..len]), Err(ProofDecodeError::Length { found: len }));
    }
}

#[test]
fn points_that_are_not_of_the_groups_are_named() {
    let circuit = Cubic(Some(Scalar::from(7)));
    let prover = prover(circuit.clone());
    let good = prover.prove(&Ledger::unlimited(), circuit, blinding()).expect("proof").proof.to_bytes();
    let elements = [(ProofElement::A, 0, 48), (ProofElement::B, 48, 96), (ProofElement::C, 144, 48)];
    for (element, start, len) in elements {
        let with = |first: u8, last: u8| {
            let mut bytes = good;
            bytes[start..start + len].fill(0);
            (bytes[start], bytes[start + len - 1]) = (first, last);
            Proof::from_bytes(&bytes)
        };
        let fault = |fault| Err(ProofDecodeError::Element { element, fault });
        assert_eq!(with(0xc0, 0), fault(PointFault::Infinity));
        assert_eq!(with(0x00, 1), fault(PointFault::NotCanonical), "not marked as compressed");
        assert!((0..=255).any(|x| with(0x80, x) == fault(PointFault::NotInSubgroup)), "{element}");
        assert!((0..=255).any(|x| with(0x80, x) == fault(PointFault::NotOnCurve)), "{element}");
        // Points with such a small x are never in the subgroup.
        assert!((0..=255).all(|x| with(0x80, x).is_err()), "{element}");
    }
}
