//! Keys: ours and bellperson's are the same bytes.

use plimsoll_groth16::setup::{ToxicWaste, generate};
use plimsoll_peers::circuits::{Cubic, TestCircuit, rng};
use plimsoll_peers::{CircuitCheck, for_each_circuit, our_key, our_key_bytes, peer_key, peer_key_bytes, read_key};

#[test]
fn the_same_secrets_make_the_same_key_file() {
    struct SameFile;
    impl CircuitCheck for SameFile {
        fn check<C: TestCircuit>(&mut self, name: &str, circuit: C) {
            let toxic = ToxicWaste::random(&mut rng(name.len() as u64));
            let theirs = peer_key_bytes(&peer_key(circuit.clone(), &toxic));
            let (r1cs, ours) = our_key(circuit, &toxic);
            assert!(our_key_bytes(&ours) == theirs, "{name}: the key files differ");
            let read = read_key(&theirs);
            assert_eq!(read.check_shape(&r1cs), Ok(()), "{name}");
            assert!(read == ours, "{name}: reading changed the key");
        }
    }
    for_each_circuit(&mut SameFile);
}

#[test]
fn the_same_generator_makes_the_same_key() {
    let theirs = bellperson::groth16::generate_random_parameters::<blstrs::Bls12, _, _>(Cubic(None), &mut rng(3));
    let r1cs = plimsoll_groth16::r1cs::R1cs::from_circuit(Cubic(None)).expect("shape");
    let ours = generate(&r1cs, &mut rng(3), &|_| std::ops::ControlFlow::Continue(())).expect("key");
    assert_eq!(our_key_bytes(&ours), peer_key_bytes(&theirs.expect("key")));
}
