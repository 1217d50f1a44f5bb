//! `plimsoll verify --vkey`: a proof of snarkjs's.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use plimsoll_circom::json::{JsonError, VerificationKey, read_proof, read_public};
use plimsoll_groth16::{VerifyError, verify};
use serde_json::json;

use crate::args::Verify;
use crate::console::{self, GOOD, Rows};
use crate::exit::{Exit, Failure};
use crate::inspect::JSON_BYTES_MAX;
use crate::key_cache::open_regular;

/// Runs it.
pub(super) fn run(args: &Verify, key_path: &Path) -> Result<(), Failure> {
    let started = Instant::now();
    let (Some(proof_path), Some(public_path)) = (&args.snarkjs.proof, &args.snarkjs.public) else {
        return Err(Failure::new(Exit::Usage, "--vkey wants --proof and --public"));
    };
    if args.file.is_some() || args.key.is_some() {
        return Err(Failure::new(Exit::Usage, "--file and --key are about plimsoll's own proof files, not snarkjs's"));
    }
    let key = parse(key_path, VerificationKey::read)?;
    let proof = parse(proof_path, read_proof)?;
    let inputs = parse(public_path, read_public)?;
    verify(&key.prepare(), &proof, &inputs).map_err(|e| {
        let shown = proof_path.display();
        match e {
            VerifyError::InputCount { found, expected, .. } => {
                let public = public_path.display();
                let text = format!("{public}: it has {found} public inputs, the key is for {expected}");
                Failure::new(Exit::ProofInvalid, text)
            }
            e => Failure::new(Exit::ProofInvalid, format!("{shown}: {e}")),
        }
    })?;
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        return console::print(json!({
            "command": "verify",
            "ok": true,
            "proof": proof_path.display().to_string(),
            "public": public_path.display().to_string(),
            "vkey": key_path.display().to_string(),
            "public_inputs": inputs.len(),
            "seconds": seconds,
        }));
    }
    let mut rows = Rows::default();
    rows.add("proof", format!("{}, {GOOD}valid{GOOD:#}, {seconds:.2} s", proof_path.display()))
        .add("public inputs", format!("{}, {}", inputs.len(), public_path.display()))
        .add("key", key_path.display().to_string());
    console::print(rows)
}

fn parse<T>(path: &Path, read: impl FnOnce(&[u8]) -> Result<T, JsonError>) -> Result<T, Failure> {
    let failure = |e: &dyn std::fmt::Display| Failure::new(Exit::BadInput, format!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    let file: File = open_regular(path).map_err(|e| failure(&e))?;
    let read_bytes = file.take(JSON_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| failure(&e))?;
    if read_bytes as u64 > JSON_BYTES_MAX {
        return Err(failure(&"it is longer than any file of snarkjs's that is known here (64 MiB)"));
    }
    read(&bytes).map_err(|e| failure(&e))
}
