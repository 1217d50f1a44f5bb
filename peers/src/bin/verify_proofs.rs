//! Verifies proofs that another program has made, with bellperson's verifier: those of `icicle-check stream --write FILE`, which says
//! how the file is written.
//!
//! `cargo run --release -p plimsoll-peers --bin verify_proofs FILE`

use std::io::Read;

use bellperson::groth16::{Proof, VerifyingKey, prepare_verifying_key, verify_proof};
use blstrs::{Bls12, Scalar};
use ff::Field;

type Failure = Box<dyn std::error::Error>;

/// The next so many bytes.
fn take<'a>(file: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], Failure> {
    let (part, rest) = file.split_at_checked(bytes).ok_or("the file ends too early")?;
    *file = rest;
    Ok(part)
}

fn number(file: &mut &[u8]) -> Result<usize, Failure> {
    Ok(u32::from_le_bytes(take(file, 4)?.try_into()?) as usize)
}

fn main() -> Result<(), Failure> {
    let path = std::env::args().nth(1).ok_or("verify_proofs FILE")?;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.read_to_end(&mut bytes)?;
    let mut file = &bytes[..];
    let len = number(&mut file)?;
    let key = prepare_verifying_key(&VerifyingKey::<Bls12>::read(take(&mut file, len)?)?);
    let mut count = 0;
    while !file.is_empty() {
        let mut inputs = Vec::new();
        for _ in 0..number(&mut file)? {
            let input = <[u8; 32]>::try_from(take(&mut file, 32)?)?;
            inputs.push(Option::<Scalar>::from(Scalar::from_bytes_le(&input)).ok_or("an input is no scalar")?);
        }
        let proof = Proof::<Bls12>::read(take(&mut file, 192)?)?;
        if !verify_proof(&key, &proof, &inputs)? {
            return Err(format!("proof {count} is not valid").into());
        }
        // That it can say no.
        inputs[0] += Scalar::ONE;
        if verify_proof(&key, &proof, &inputs)? {
            return Err(format!("proof {count} is valid for other inputs as well").into());
        }
        count += 1;
    }
    println!("bellperson accepts {count} proofs, and none of them for other inputs");
    Ok(())
}
