//! bellperson's calls, made through a pipeline within a budget.
//!
//! Code that proves with bellperson changes one line: what it imports.
//!
//! ```ignore
//! use bellperson::groth16::{Parameters, create_random_proof_batch};        // before
//! use plimsoll_groth16::bellperson::{Parameters, create_random_proof_batch}; // after
//! ```
//!
//! For the same key, circuits and generator the proofs are bellperson's, byte for byte. What is different:
//!
//! - **Memory.** Proofs are made by an [`Engine`]: a ledger and a pool. Circuits wait in the order of their batch until the ledger
//!   grants what their proofs hold; a batch is never synthesised as a whole. Without saying more it is the process's engine
//!   ([`Engine::of_process`]), which is on all cores and within the budget that the environment variable `PLIMSOLL_MEMORY` names.
//! - **Repetition.** The first circuit proved under some [`Parameters`] leaves its matrices there. From then on synthesis is a witness
//!   and three sparse products.
//! - **Circuits** must be `'static`, because they travel a pipeline's threads, and all of one shape, as they must be for bellperson.
//! - **A wrong witness** is an error ([`SynthesisError::Unsatisfiable`], where bellperson makes a proof that nobody accepts).
//!
//! ```
//! # #[cfg(feature = "insecure-setup")] {
//! use std::io::Cursor;
//!
//! use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
//! use blstrs::Scalar;
//! use ff::Field;
//! use plimsoll::{Budget, Bytes, Ledger, Space, pool::{Pool, PoolConfig}};
//! use plimsoll_groth16::bellperson::{Engine, Parameters, create_random_proof_batch, prepare_verifying_key, verify_proof};
//! use rand_core::OsRng;
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
//! // A key file of bellperson's, here one for development.
//! let shape = plimsoll_groth16::r1cs::R1cs::from_circuit(Root(None))?;
//! let key = plimsoll_groth16::setup::generate(&shape, &mut OsRng, &|_| std::ops::ControlFlow::Continue(()))?;
//! let mut file = Vec::new();
//! key.write(&mut file)?;
//!
//! // Eight proofs, of which as many are under way as the budget has room for.
//! let pool = Pool::new(PoolConfig::default())?;
//! let engine = Engine::new(Ledger::new(Budget::new().space(Space::HOST, Bytes(64 << 20))), pool);
//! let params = Parameters::read_in(&engine, Cursor::new(file), true)?;
//! let circuits = (1..=8).map(|x| Root(Some(Scalar::from(x)))).collect();
//! let proofs = create_random_proof_batch(circuits, &params, &mut OsRng)?;
//!
//! let vk = prepare_verifying_key(params.vk());
//! for (proof, x) in proofs.iter().zip(1_u64..) {
//!     assert!(verify_proof(&vk, proof, &[Scalar::from(x * x)])?);
//! }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
use bellpepper_core::{Circuit, SynthesisError};
use blstrs::Scalar;
use ff::Field;
use plimsoll::ledger::ReserveError;
use plimsoll::pipeline::{JobError, Rejection};
use plimsoll::pool::PoolError;
use plimsoll::{Bytes, Grant};
use rand_core::{CryptoRng, RngCore};

use crate::keys::{KeyMismatch, KeyReadError, VerifyingKey};
use crate::prover::{Blinding, ProveError, Prover};
use crate::r1cs::ShapeError;
use crate::secret::SecretScalars;
use crate::{PreparedVerifyingKey, Proof, VerifyError};

mod engine;
mod first;
mod parameters;

pub use engine::Engine;
use first::Values;
pub use parameters::Parameters;

/// Why no proofs were made. Everything that was held for the batch has been given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The process's engine could not be made.
    #[error("the threads that would make proofs could not be started")]
    Threads(#[from] PoolError),
    /// The environment variable is no size.
    #[error("PLIMSOLL_MEMORY is {value:?}; give a size such as 8GiB, or unset it for no limit")]
    Budget {
        /// Its value.
        value: String,
    },
    /// The key, or the circuit's matrices, do not fit into the budget.
    #[error("the {what} take more than the budget has; raise it")]
    Memory {
        /// Which.
        what: &'static str,
        /// What the ledger said.
        #[source]
        source: ReserveError,
    },
    /// The key could not be read.
    #[error(transparent)]
    Key(#[from] KeyReadError),
    /// The key is for another circuit.
    #[error(transparent)]
    Mismatch(#[from] KeyMismatch),
    /// The first circuit's shape could not be built.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// No proof of this circuit can ever fit into the budget beside the keys and matrices that it holds.
    #[error("a proof of this circuit takes {needed}, and the budget has {left} beside keys and matrices; raise it")]
    TooLarge {
        /// The most that one proof holds.
        needed: Bytes,
        /// What the budget has for proofs.
        left: Bytes,
    },
    /// The pipeline cannot work within its budget.
    #[error("the pipeline was not built")]
    Pipeline(#[from] Rejection),
    /// There are not as many r and s as circuits.
    #[error("{circuits} circuits come with {r} r and {s} s; give one of each for each circuit")]
    Blinding {
        /// The circuits given.
        circuits: usize,
        /// The r given.
        r: usize,
        /// The s given.
        s: usize,
    },
    /// A proof failed.
    #[error("circuit {index} of the batch was not proved")]
    Circuit {
        /// Which, counted from 0.
        index: usize,
        /// How it ended.
        #[source]
        source: Box<JobError<ProveError>>,
    },
}

impl From<BatchError> for SynthesisError {
    /// What bellperson's callers expect: the circuit's own error if it was that, and otherwise an error of input and output with
    /// the cause inside.
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Shape(ShapeError::Synthesis { source }) => source,
            BatchError::Circuit { index, source } => match *source {
                JobError::Stage { source: ProveError::Synthesis { source }, .. } => source,
                JobError::Stage { source: ProveError::Unsatisfied { .. }, .. } => Self::Unsatisfiable,
                source => Self::IoError(std::io::Error::other(BatchError::Circuit { index, source: Box::new(source) })),
            },
            BatchError::Mismatch(_) => Self::MalformedVerifyingKey,
            other => Self::IoError(std::io::Error::other(other)),
        }
    }
}

/// What a job of a batch starts from.
enum Work<C> {
    Circuit(C),
    /// The batch's first circuit, when it has already been synthesised for its shape.
    Values(Values),
}

/// Proves the circuits, in one batch; the proofs come in their order.
///
/// # Errors
/// See [`BatchError`]; the first failure ends the batch.
pub fn create_random_proof_batch<C, R>(
    circuits: Vec<C>,
    params: &Parameters,
    rng: &mut R,
) -> Result<Vec<Proof>, BatchError>
where
    C: Circuit<Scalar> + Send + 'static,
    R: RngCore,
{
    let mut draw = || SecretScalars(circuits.iter().map(|_| Scalar::random(&mut *rng)).collect());
    let (r, s) = (draw(), draw());
    prove_batch(circuits, params, &r, &s)
}

/// Proves one circuit.
///
/// # Errors
/// See [`BatchError`].
pub fn create_random_proof<C, R>(circuit: C, params: &Parameters, rng: &mut R) -> Result<Proof, BatchError>
where
    C: Circuit<Scalar> + Send + 'static,
    R: RngCore,
{
    create_proof(circuit, params, Scalar::random(&mut *rng), Scalar::random(&mut *rng))
}

/// Proves one circuit with given blinding factors, which must be random and secret and not be used twice.
///
/// # Errors
/// See [`BatchError`].
pub fn create_proof<C>(circuit: C, params: &Parameters, r: Scalar, s: Scalar) -> Result<Proof, BatchError>
where
    C: Circuit<Scalar> + Send + 'static,
{
    let proofs = create_proof_batch(vec![circuit], params, vec![r], vec![s])?;
    Ok(proofs[0])
}

/// Proves the circuits with given blinding factors, which must be random and secret and not be used twice.
///
/// # Errors
/// See [`BatchError`]; the first failure ends the batch.
pub fn create_proof_batch<C>(
    circuits: Vec<C>,
    params: &Parameters,
    r: Vec<Scalar>,
    s: Vec<Scalar>,
) -> Result<Vec<Proof>, BatchError>
where
    C: Circuit<Scalar> + Send + 'static,
{
    prove_batch(circuits, params, &SecretScalars(r), &SecretScalars(s))
}

fn prove_batch<C>(
    circuits: Vec<C>,
    params: &Parameters,
    SecretScalars(r): &SecretScalars,
    SecretScalars(s): &SecretScalars,
) -> Result<Vec<Proof>, BatchError>
where
    C: Circuit<Scalar> + Send + 'static,
{
    if r.len() != circuits.len() || s.len() != circuits.len() {
        return Err(BatchError::Blinding { circuits: circuits.len(), r: r.len(), s: s.len() });
    }
    let count = circuits.len();
    let mut circuits = circuits.into_iter().map(Work::Circuit);
    let Some(Work::Circuit(circuit)) = circuits.next() else { return Ok(Vec::new()) };
    let (prover, first) = match params.prover()? {
        Some(prover) => (prover, Work::Circuit(circuit)),
        None => {
            let (prover, values) = params.first(circuit)?;
            (prover, Work::Values(values))
        }
    };
    let blindings = r.iter().zip(s).map(|(r, s)| Blinding::from_scalars(*r, *s));
    let works = std::iter::once(first).chain(circuits).zip(blindings);
    params.engine().require_room(&prover.profile(params.engine().pool().threads()))?;
    let begin = |prover: &Prover, grant: &mut Grant, (work, blinding): (Work<C>, Blinding)| {
        let witness = match work {
            Work::Circuit(circuit) => prover.synthesise(grant, circuit)?,
            Work::Values(values) => prover.assign(grant, |inputs, aux| {
                values.copy_to(inputs, aux);
                Ok(())
            })?,
        };
        Ok((witness, blinding))
    };
    let end = |prover: &Prover, openings, blinding| Ok(prover.finish(openings, blinding)?.proof);
    let pipeline = prover.pipeline(params.engine().ledger(), params.engine().pool(), begin, end)?;
    let mut proofs = Vec::with_capacity(count);
    for (index, result) in
        pipeline.run_all(works.enumerate().map(|(i, work)| (format!("circuit {i}"), work))).in_order()
    {
        let proof = result.map_err(|error| BatchError::Circuit { index, source: Box::new(error) })?;
        proofs.push(proof);
    }
    Ok(proofs)
}

/// Prepares a verifying key.
pub fn prepare_verifying_key(vk: &VerifyingKey) -> PreparedVerifyingKey {
    PreparedVerifyingKey::new(vk)
}

/// Whether a proof is valid for these public inputs.
///
/// # Errors
/// [`SynthesisError::MalformedVerifyingKey`] if the key is for another number of inputs.
pub fn verify_proof(vk: &PreparedVerifyingKey, proof: &Proof, inputs: &[Scalar]) -> Result<bool, SynthesisError> {
    verdict(crate::verify(vk, proof, inputs))
}

/// Whether all proofs are valid, each for its public inputs.
///
/// # Errors
/// [`SynthesisError::MalformedVerifyingKey`] if the key is for another number of inputs, or there are not as many vectors of them as
/// proofs.
pub fn verify_proofs_batch<R: RngCore + CryptoRng>(
    vk: &PreparedVerifyingKey,
    rng: &mut R,
    proofs: &[&Proof],
    inputs: &[Vec<Scalar>],
) -> Result<bool, SynthesisError> {
    let proofs: Vec<Proof> = proofs.iter().map(|proof| **proof).collect();
    verdict(crate::verify_batch(vk, &proofs, inputs, rng))
}

fn verdict(result: Result<(), VerifyError>) -> Result<bool, SynthesisError> {
    match result {
        Ok(()) => Ok(true),
        Err(VerifyError::InvalidProof | VerifyError::NotInSubgroup { .. }) => Ok(false),
        Err(VerifyError::InputCount { .. } | VerifyError::BatchLength { .. }) => {
            Err(SynthesisError::MalformedVerifyingKey)
        }
    }
}

#[cfg(test)]
mod tests;
