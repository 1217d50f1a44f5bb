//! "I know x with x · x = y", written for arkworks with arkworks' key: proved here, verified there.
//!
//! `cargo run --release --example square_root`, in the folder `arkworks`.

use std::error::Error;
use std::sync::Arc;

use ark_bls12_381::{Bls12_381, Fr};
use ark_crypto_primitives::snark::{CircuitSpecificSetupSNARK, SNARK};
use ark_groth16::Groth16;
use ark_relations::gr1cs::{
    ConstraintSynthesizer, ConstraintSystem, ConstraintSystemRef, LinearCombination, SynthesisError,
};
use ark_std::rand::SeedableRng;
use plimsoll::{Budget, Bytes, Ledger, Space};
use plimsoll_arkworks::{fr, proof, prove, proving_key, shape};
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::prover::{Blinding, Prover};

#[derive(Clone)]
struct Root(Option<Fr>);

impl ConstraintSynthesizer<Fr> for Root {
    fn generate_constraints(self, cs: ConstraintSystemRef<Fr>) -> Result<(), SynthesisError> {
        let x = cs.new_witness_variable(|| self.0.ok_or(SynthesisError::AssignmentMissing))?;
        let y = cs.new_input_variable(|| self.0.map(|x| x * x).ok_or(SynthesisError::AssignmentMissing))?;
        cs.enforce_r1cs_constraint(
            || LinearCombination::from(x),
            || LinearCombination::from(x),
            || LinearCombination::from(y),
        )
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // A key of arkworks, here one for development: whoever knows this seed can forge proofs.
    let mut rng = ark_std::rand::rngs::StdRng::seed_from_u64(1);
    let (key, vk) = Groth16::<Bls12_381>::setup(Root(None), &mut rng)?;

    // The constraint system as arkworks synthesises it.
    let cs = ConstraintSystem::new_ref();
    Root(Some(Fr::from(12))).generate_constraints(cs.clone())?;
    cs.finalize();
    let cs = cs.into_inner().ok_or("somebody else holds the constraint system")?;

    // Once for the circuit; then each proof within a budget.
    let r1cs = Arc::new(shape(&cs)?);
    let key = Arc::new(proving_key(&key, &r1cs)?);
    let prover = Prover::new(r1cs, key, Arc::new(Cpu::new()))?;
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::MIB));
    let proved = prove(&prover, &ledger, &cs, Blinding::from_os())?;

    let inputs: Vec<Fr> = proved.public_inputs.iter().map(fr).collect();
    assert!(Groth16::<Bls12_381>::verify(&vk, &inputs, &proof(&proved.proof))?);
    println!("arkworks accepts the proof that somebody knows a square root of {}", inputs[0]);
    Ok(())
}
