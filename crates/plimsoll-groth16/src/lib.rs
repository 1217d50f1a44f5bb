//! Groth16 over BLS12-381, in stages that a memory-accounted scheduler can see.
//!
//! A circuit is turned into its [`r1cs::R1cs`] once. With a [`keys::ProvingKey`] and a [`backend::Backend`] that makes a
//! [`prover::Prover`], whose six steps each take a grant of a ledger, and whose profile says what the grants must hold.
//!
//! ```
//! # #[cfg(feature = "insecure-setup")] {
//! use std::{ops::ControlFlow, sync::Arc};
//!
//! use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
//! use blstrs::Scalar;
//! use ff::Field;
//! use plimsoll::{Budget, Bytes, Ledger, Space};
//! use plimsoll_groth16::prover::{Blinding, Prover};
//! use plimsoll_groth16::{PreparedVerifyingKey, backend::Cpu, r1cs::R1cs, setup, verify};
//!
//! /// "I know a square root of y."
//! struct Root(Option<Scalar>);
//!
//! impl Circuit<Scalar> for Root {
//!     fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
//!         let x = cs.alloc(|| "x", || self.0.ok_or(SynthesisError::AssignmentMissing))?;
//!         let y = cs.alloc_input(|| "y", || self.0.map(|x| x.square()).ok_or(SynthesisError::AssignmentMissing))?;
//!         cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + y);
//!         Ok(())
//!     }
//! }
//!
//! // Once for the circuit. A development key: whoever makes one can forge proofs under it.
//! let r1cs = Arc::new(R1cs::from_circuit(Root(None))?);
//! let key = Arc::new(setup::generate(&r1cs, &mut rand_core::OsRng, &|_| ControlFlow::Continue(()))?);
//! let prover = Prover::new(r1cs, key, Arc::new(Cpu::new()))?;
//!
//! // For each proof. One that does not fit into the budget is refused before it starts.
//! let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::MIB));
//! let proved = prover.prove(&ledger, Root(Some(Scalar::from(3))), Blinding::from_os())?;
//!
//! let vk = PreparedVerifyingKey::new(&prover.key().vk);
//! verify(&vk, &proved.proof, &[Scalar::from(9)])?;
//! assert!(verify(&vk, &proved.proof, &[Scalar::from(10)]).is_err());
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[macro_use(mutant)]
extern crate plimsoll;

pub mod backend;
#[cfg(feature = "bellpepper-core-0-4")]
pub mod bellpepper_0_4;
pub mod bellperson;
mod circuit;
pub mod device;
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
