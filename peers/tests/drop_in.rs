//! The calls that replace bellperson's: for one generator the proofs are bellperson's bytes, and its verifier accepts them.

use std::io::Cursor;

use bellperson::groth16 as theirs;
use blstrs::{Bls12, Scalar};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Ledger, Space};
use plimsoll_groth16::bellperson as ours;
use plimsoll_groth16::setup::ToxicWaste;
use plimsoll_peers::circuits::{Quirks, Sha256Preimage, Squarings, TestCircuit, rng};
use plimsoll_peers::{peer_key, peer_key_bytes};

fn check<C: TestCircuit + 'static>(name: &str, circuits: Vec<C>) {
    let their_params = peer_key(circuits[0].clone(), &ToxicWaste::random(&mut rng(1)));
    let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).expect("pool");
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(64 << 20)));
    let engine = ours::Engine::new(ledger.clone(), pool);
    let file = Cursor::new(peer_key_bytes(&their_params));
    let our_params = ours::Parameters::read_in(&engine, file, true).expect(name);
    // The first batch makes the matrices, the second one has them.
    for seed in [3, 4] {
        let expected =
            theirs::create_random_proof_batch::<Bls12, _, _, _>(circuits.clone(), &their_params, &mut rng(seed));
        let proofs = ours::create_random_proof_batch(circuits.clone(), &our_params, &mut rng(seed)).expect(name);
        let vk = theirs::prepare_verifying_key(&their_params.vk);
        for ((ours, theirs), circuit) in proofs.iter().zip(expected.expect(name)).zip(&circuits) {
            let mut bytes = Vec::new();
            theirs.write(&mut bytes).expect(name);
            assert!(ours.to_bytes()[..] == bytes[..], "{name}: the proofs differ");
            let read = theirs::Proof::read(&ours.to_bytes()[..]).expect(name);
            assert!(theirs::verify_proof(&vk, &read, &circuit.public_inputs()).expect(name), "{name}");
        }
    }
    drop(our_params);
    assert!(ledger.snapshot().is_empty(), "{name}");
}

#[test]
fn a_batch_is_bellpersons_byte_for_byte() {
    check("squarings", (2..6).map(|x| Squarings { start: Some(Scalar::from(x)), steps: 700 }).collect());
    check("quirks", vec![Quirks(Some((Scalar::from(3), Scalar::from(4))))]);
    check("sha256", (0..3).map(|byte| Sha256Preimage { bytes: Some(vec![byte; 6]), len: 6 }).collect());
}
