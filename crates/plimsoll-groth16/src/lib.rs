//! Groth16 over BLS12-381, in stages that a memory-accounted scheduler can see.

pub mod backend;
mod circuit;
pub mod domain;
pub mod fixed_base;
pub mod footprint;
pub mod keys;
mod proof;
pub mod prover;
pub mod r1cs;
mod secret;
#[cfg(any(test, feature = "insecure-setup"))]
pub mod setup;
mod verifier;

pub use circuit::Counts;
pub use proof::{Proof, ProofDecodeError, ProofElement};
pub use verifier::{BatchVerifier, PreparedVerifyingKey, VerifyError, first_invalid, verify, verify_batch};

#[cfg(test)]
#[path = "../tests/support/circuits.rs"]
mod test_circuits;
