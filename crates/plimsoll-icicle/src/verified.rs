//! Proofs that are verified before they are returned.
//!
//! A device that gave every known answer can still compute a wrong sum later: users report proofs that do not verify after an
//! out-of-memory, without an error. A proof is verified in milliseconds, so it is, unless that is switched off.

use bellpepper_core::Circuit;
use blstrs::Scalar;
use plimsoll::Ledger;
use plimsoll_groth16::prover::{Blinding, ProveError, Proved, Prover};
use plimsoll_groth16::{PreparedVerifyingKey, VerifyError, verify};

/// Makes proofs, and returns those that verify.
pub struct VerifiedProver {
    prover: Prover,
    key: Option<PreparedVerifyingKey>,
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifiedError {
    /// It was not made.
    #[error(transparent)]
    Prove(#[from] ProveError),
    /// It was made, and is not valid: the device computes wrong results.
    #[error(
        "the proof that {backend} made is not valid ({source}); it was thrown away, and the device is not to be trusted"
    )]
    Unsound {
        /// The backend's name.
        backend: &'static str,
        /// What the verifier said.
        source: VerifyError,
    },
}

impl VerifiedProver {
    /// With the prover's own key.
    pub fn new(prover: Prover) -> Self {
        let key = Some(PreparedVerifyingKey::new(&prover.key().vk));
        Self { prover, key }
    }

    /// Returns proofs as they were made: for who verifies them elsewhere, many at once.
    #[must_use]
    pub fn without_verification(mut self) -> Self {
        self.key = None;
        self
    }

    /// The prover.
    pub fn prover(&self) -> &Prover {
        &self.prover
    }

    /// Makes a proof as [`Prover::prove`] does, and verifies it.
    ///
    /// # Errors
    ///
    /// See [`VerifiedError`].
    pub fn prove<C: Circuit<Scalar>>(
        &self,
        ledger: &Ledger,
        circuit: C,
        blinding: Blinding,
    ) -> Result<Proved, VerifiedError> {
        let proved = self.prover.prove(ledger, circuit, blinding)?;
        if let Some(key) = &self.key {
            let backend = self.prover.backend().name();
            verify(key, &proved.proof, &proved.public_inputs)
                .map_err(|source| VerifiedError::Unsound { backend, source })?;
        }
        Ok(proved)
    }
}

impl std::fmt::Debug for VerifiedProver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifiedProver").field("verifies", &self.key.is_some()).finish_non_exhaustive()
    }
}
