//! Keys, proofs and verdicts: ours and bellperson's, compared for every kind of circuit.

use std::sync::Arc;

use bellperson::groth16::{
    Proof as PeerProof, create_proof, create_random_proof, generate_random_parameters, prepare_verifying_key,
    verify_proof, verify_proofs_batch,
};
use blstrs::{Bls12, Scalar};
use ff::Field;
use plimsoll::Ledger;
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::prover::{Blinding, Prover};
use plimsoll_groth16::setup::{ToxicWaste, generate};
use plimsoll_groth16::{PreparedVerifyingKey, Proof, VerifyError, verify, verify_batch};
use plimsoll_peers::circuits::{self, Cubic, Random, TestCircuit, rng};
use plimsoll_peers::{our_key, our_key_bytes, peer_key, peer_key_bytes, read_key};
use rand_core::OsRng;

fn peer_bytes(proof: &PeerProof<Bls12>) -> Vec<u8> {
    let mut bytes = Vec::new();
    proof.write(&mut bytes).expect("bellperson writes its proof");
    bytes
}

/// Everything that can be compared for one circuit.
fn check<C: TestCircuit>(name: &str, circuit: C) {
    let seed = name.bytes().map(u64::from).sum();
    let toxic = ToxicWaste::random(&mut rng(seed));
    let their_key = peer_key(circuit.clone(), &toxic);
    let their_vk = prepare_verifying_key(&their_key.vk);
    let (r1cs, our_key) = our_key(circuit.clone(), &toxic);
    let key_file = peer_key_bytes(&their_key);

    assert!(our_key_bytes(&our_key) == key_file, "{name}: the key files differ");
    let read = read_key(&key_file);
    assert!(read == our_key, "{name}: reading changed the key");
    let our_vk = PreparedVerifyingKey::new(&read.vk);
    let prover = Prover::new(Arc::new(r1cs), Arc::new(read), Arc::new(Cpu::new())).expect(name);
    let inputs = circuit.public_inputs();

    // For fixed r and s the proofs are the same bytes.
    for (r, s) in [(Scalar::random(rng(seed)), Scalar::random(rng(seed + 1))), (Scalar::ZERO, Scalar::ZERO)] {
        let theirs = create_proof::<Bls12, _, _>(circuit.clone(), &their_key, r, s).expect(name);
        let ours = prover.prove(&Ledger::unlimited(), circuit.clone(), Blinding::from_scalars(r, s)).expect(name);
        assert_eq!(ours.public_inputs, inputs, "{name}");
        assert!(ours.proof.to_bytes()[..] == peer_bytes(&theirs)[..], "{name}: the proofs differ");
    }

    // Each verifies the other's, and refuses it for other inputs.
    let ours = prover.prove(&Ledger::unlimited(), circuit.clone(), Blinding::from_os()).expect(name).proof;
    let ours_for_them = PeerProof::<Bls12>::read(&ours.to_bytes()[..]).expect(name);
    assert!(verify_proof(&their_vk, &ours_for_them, &inputs).expect(name), "{name}: bellperson rejects our proof");
    let theirs = create_random_proof::<Bls12, _, _, _>(circuit, &their_key, &mut OsRng).expect(name);
    let theirs_for_us = Proof::from_bytes(&peer_bytes(&theirs)).expect(name);
    assert_eq!(verify(&our_vk, &theirs_for_us, &inputs), Ok(()), "{name}: we reject bellperson's proof");
    assert_eq!(
        verify_batch(&our_vk, &[ours, theirs_for_us], &[inputs.clone(), inputs.clone()], &mut OsRng),
        Ok(()),
        "{name}"
    );
    assert!(
        verify_proofs_batch(&their_vk, &mut OsRng, &[&ours_for_them, &theirs], &[inputs.clone(), inputs.clone()])
            .expect(name),
        "{name}"
    );
    for changed in 0..inputs.len() {
        let mut inputs = inputs.clone();
        inputs[changed] += Scalar::ONE;
        assert_eq!(verify(&our_vk, &theirs_for_us, &inputs), Err(VerifyError::InvalidProof), "{name}");
        assert!(!verify_proof(&their_vk, &ours_for_them, &inputs).expect(name), "{name}");
    }
}

#[test]
fn the_smallest_circuits() {
    let seven = Scalar::from(7);
    check("cubic", Cubic(Some(seven)));
    check("inputs only", circuits::InputsOnly);
    check("quirks", circuits::Quirks(Some((seven, -seven.square()))));
}

#[test]
fn a_dense_circuit() {
    check("squarings", circuits::Squarings { start: Some(Scalar::from(7)), steps: 700 });
}

#[test]
fn a_sha256_circuit() {
    check("sha256", circuits::Sha256Preimage { bytes: Some(b"letter".to_vec()), len: 6 });
}

#[test]
fn random_circuits() {
    for seed in 0..48 {
        check(&format!("random {seed}"), Random::small(seed));
    }
}

#[test]
fn the_same_generator_makes_the_same_key() {
    let theirs = generate_random_parameters::<Bls12, _, _>(Cubic(None), &mut rng(3));
    let r1cs = plimsoll_groth16::r1cs::R1cs::from_circuit(Cubic(None)).expect("shape");
    let ours = generate(&r1cs, &mut rng(3), &|_| std::ops::ControlFlow::Continue(())).expect("key");
    assert_eq!(our_key_bytes(&ours), peer_key_bytes(&theirs.expect("key")));
}
