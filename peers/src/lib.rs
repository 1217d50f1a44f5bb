//! What the tests and measurements against bellperson share: circuits, and keys and proofs carried from one to the other
//! by their bytes.

#[path = "../../crates/plimsoll-groth16/tests/support/circuits.rs"]
pub mod circuits;

use std::io::Cursor;
use std::ops::ControlFlow;

use bellperson::groth16::{Parameters, generate_parameters};
use blstrs::Bls12;
use circuits::TestCircuit;
use plimsoll_groth16::keys::{Checked, HBasis, ProvingKey};
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_groth16::setup::{ToxicWaste, generate_from};

/// bellperson's key for a circuit and secrets.
pub fn peer_key<C: TestCircuit>(circuit: C, toxic: &ToxicWaste) -> Parameters<Bls12> {
    let ToxicWaste { g1, g2, alpha, beta, gamma, delta, tau } = toxic;
    generate_parameters(circuit, *g1, *g2, *alpha, *beta, *gamma, *delta, *tau).expect("bellperson makes a key")
}

/// Our key for a circuit and secrets.
pub fn our_key<C: TestCircuit>(circuit: C, toxic: &ToxicWaste) -> (R1cs, ProvingKey) {
    let r1cs = R1cs::from_circuit(circuit).expect("the circuit has a shape");
    let key = generate_from(&r1cs, toxic, HBasis::PowersOfTau, &|_| ControlFlow::Continue(())).expect("we make a key");
    (r1cs, key)
}

/// The bytes of bellperson's key file.
pub fn peer_key_bytes(key: &Parameters<Bls12>) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.write(&mut bytes).expect("bellperson writes its key");
    bytes
}

/// The bytes of our key file.
pub fn our_key_bytes(key: &ProvingKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.write(&mut bytes).expect("we write our key");
    bytes
}

/// Reads a key file with every check.
pub fn read_key(bytes: &[u8]) -> ProvingKey {
    ProvingKey::scan_and_read(Cursor::new(bytes), Checked::Yes).expect("the key is good")
}
