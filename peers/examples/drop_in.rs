//! A batch that was proved with bellperson, proved within a budget by changing one line; bellperson verifies it.
//!
//! `cargo run --release -p plimsoll-peers --example drop_in`

use std::error::Error;
use std::io::Cursor;

use bellperson::groth16::{generate_random_parameters, prepare_verifying_key, verify_proof};
use blstrs::{Bls12, Scalar};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Ledger, Space};
// Before: use bellperson::groth16::{Parameters, create_random_proof_batch};
use plimsoll_groth16::bellperson::{Engine, Parameters, create_random_proof_batch};
use plimsoll_peers::circuits::{Squarings, TestCircuit};
use rand_core::OsRng;

fn main() -> Result<(), Box<dyn Error>> {
    let circuit = |x: u64| Squarings { start: Some(Scalar::from(x)), steps: 4000 };

    // bellperson's key, in its file format.
    let key = generate_random_parameters::<Bls12, _, _>(Squarings { start: None, steps: 4000 }, &mut OsRng)?;
    let mut file = Vec::new();
    key.write(&mut file)?;

    // Without an engine of its own, `Parameters::read` uses all cores and what PLIMSOLL_MEMORY says.
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(6 << 20)));
    let engine = Engine::new(ledger.clone(), Pool::new(PoolConfig::default())?);
    let params = Parameters::read_in(&engine, Cursor::new(file), true)?;
    let circuits: Vec<_> = (2..18).map(circuit).collect();
    let inputs: Vec<_> = circuits.iter().map(TestCircuit::public_inputs).collect();

    let proofs = create_random_proof_batch(circuits, &params, &mut OsRng)?;

    let vk = prepare_verifying_key(&key.vk);
    for (proof, inputs) in proofs.iter().zip(&inputs) {
        let proof = bellperson::groth16::Proof::read(&proof.to_bytes()[..])?;
        assert!(verify_proof(&vk, &proof, inputs)?);
    }
    let host = &ledger.snapshot().spaces[0];
    println!("{} proofs, all accepted by bellperson; peak {} of {}", proofs.len(), host.peak, host.limit);
    Ok(())
}
