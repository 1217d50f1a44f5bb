//! The prover: six steps, each of which consumes what the last one made.
//!
//! | step | makes | gives back |
//! |---|---|---|
//! | [`Prover::synthesise`], or [`Prover::assign`] for values from elsewhere | [`Witness`]: the assignment | |
//! | [`Prover::evaluate`] | [`Evaluated`]: a on the domain, and as many of b and c as the backend takes | |
//! | [`Prover::quotient`] | [`Quotient`]: h, made where a was | b and c |
//! | [`Prover::commit`] | [`Committed`]: h, l, a and b in G1 | h |
//! | [`Prover::b_g2`] | [`Openings`]: b in G2 | the assignment |
//! | [`Prover::finish`], or [`Prover::assemble`] for who verifies elsewhere | [`Proved`] | |
//!
//! [`Prover::prove_start`] is quotient and commit, after which the large vectors are gone; [`Prover::prove_finish`] is the
//! rest, which a processor can do while a device starts on the next proof.
//!
//! Every buffer is taken from the stage's [`Grant`], and [`Prover::profile`] says beforehand what the grants must hold. What
//! comes from the witness is erased when it is dropped, before its memory is freed. Time and memory access depend on the
//! witness, as in every prover that skips zeros; do not share the machine with whom you would not tell the witness.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bellpepper_core::{Circuit, SynthesisError};
use blstrs::Scalar;
use plimsoll::device::DeviceError;
use plimsoll::ledger::{EnterError, SubmitError, TakeError, VecError};
use plimsoll::{Bytes, Grant, JobSpec, Ledger, Profile};

use crate::backend::{Backend, BackendError};
use crate::circuit::Counts;
use crate::domain::Domain;
use crate::footprint::Footprint;
use crate::keys::{HBasis, HQuery, KeyMismatch, KeyStream, ProvingKey, StreamError, check_stream_shape};
use crate::r1cs::R1cs;
use crate::verifier::check_subgroups;
use crate::{PreparedVerifyingKey, VerifyError, verify};

mod assemble;
mod assign;
mod b_g2;
mod commit;
mod device;
mod evaluate;
pub(crate) mod pieces;
mod pipeline;
mod quotient;
mod stream;
mod synthesise;

pub use assemble::{Blinding, Proved};
pub use b_g2::Openings;
pub use commit::Committed;
pub use device::{DEVICE_STAGES, DeviceProver, DeviceProverError, OnDevice};
pub use evaluate::Evaluated;
pub use quotient::Quotient;
pub use synthesise::Witness;

/// Makes proofs of one circuit with one key on one backend. Cheap to clone; all stages take `&self`.
#[derive(Clone, Debug)]
pub struct Prover {
    r1cs: Arc<R1cs>,
    /// Without points where it is streamed.
    key: Arc<ProvingKey>,
    streamed: Option<Streamed>,
    backend: Arc<dyn Backend>,
    /// The domain, with the coset on which the key's h points want the quotient.
    domain: Domain,
    synthesis: Option<Bytes>,
    distinct_variables: bool,
    /// The sizes on the number of threads that were asked for first.
    footprint: OnceLock<(usize, Footprint)>,
    stop: Option<Arc<AtomicBool>>,
    /// With which proofs are verified before they are returned.
    verification: Option<Arc<PreparedVerifyingKey>>,
}

/// A key whose points pass through memory, and how many at a time.
#[derive(Clone, Debug)]
struct Streamed {
    key: Arc<dyn KeyStream>,
    piece: usize,
}

impl Streamed {
    /// The longest piece in G1. Here and below the lengths are the shape's, which the key was found to have.
    fn piece_g1(&self, r1cs: &R1cs) -> usize {
        self.piece.min(r1cs.domain().size().max(r1cs.variables()))
    }

    /// The longest piece in G2.
    fn piece_g2(&self, r1cs: &R1cs) -> usize {
        self.piece.min(r1cs.variables())
    }
}

/// Why a step of a proof failed. The buffers of the proof have been erased and given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProveError {
    /// The circuit could not compute its witness.
    #[error("the circuit could not be synthesised: {source}")]
    Synthesis {
        /// What the circuit reported.
        #[source]
        source: SynthesisError,
    },
    /// Values that came from elsewhere could not be had ([`Prover::assign`] only).
    #[error("the witness could not be read")]
    Assignment {
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The circuit's shape depends on its witness, or it is another circuit than the shape was built from.
    #[error(
        "the circuit changed shape: it has {found}, its shape was built with {expected}; prove it with its own shape"
    )]
    ShapeChanged {
        /// The counts of the shape.
        expected: Counts,
        /// The counts of this synthesis, which ended at the first variable too many.
        found: Counts,
    },
    /// The witness does not satisfy the circuit, so no valid proof exists.
    #[error("the witness does not satisfy constraint {constraint} of the circuit")]
    Unsatisfied {
        /// The first such constraint, counted from 0.
        constraint: usize,
    },
    /// The backend failed.
    #[error("the {backend} backend failed")]
    Backend {
        /// The backend's name.
        backend: &'static str,
        /// What it reported.
        #[source]
        source: BackendError,
    },
    /// The proof was made, and is not valid: the backend computes wrong results, the key is not the circuit's or has points outside
    /// their groups, or the witness does not satisfy a shape whose products are implied ([`R1cs::products_implied`]).
    #[error(
        "the proof that the {backend} backend made is not valid and was thrown away; its device computes wrongly, the key is \
         unsound, or the witness is wrong where the circuit's shape cannot tell"
    )]
    Unsound {
        /// The backend's name.
        backend: &'static str,
        /// What the verifier said.
        #[source]
        source: VerifyError,
    },
    /// The key's points, which are read anew for each proof ([`Prover::streamed`] only), could not be.
    #[error("the key's points could not be read")]
    Key {
        /// Why.
        #[source]
        source: StreamError,
    },
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A stage was run again on scalars that a run before it, which failed, has used up on the device.
    #[error(
        "the proof's scalars on the device were used up by a run that failed; the job can only begin again from its start \
         (`Builder::from_start`)"
    )]
    UsedUp {
        /// Why that run failed; `None` where it went well, and the device failed when it was waited for.
        #[source]
        cause: Option<DeviceError>,
    },
    /// The flag of [`Prover::with_stop`] is set.
    #[error("the proof was stopped")]
    Stopped,
    /// The stage's grant does not hold what the profile says.
    #[error(transparent)]
    Grant(#[from] TakeError),
    /// A buffer could not be had.
    #[error(transparent)]
    Buffer(#[from] VecError),
    /// The ledger refused the job ([`Prover::prove`] only).
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// The ledger refused a stage ([`Prover::prove`] only).
    #[error(transparent)]
    Enter(#[from] EnterError),
}

impl Prover {
    /// A prover of the circuit with this shape.
    ///
    /// # Errors
    /// The key is for another circuit.
    pub fn new(r1cs: Arc<R1cs>, key: Arc<ProvingKey>, backend: Arc<dyn Backend>) -> Result<Self, KeyMismatch> {
        key.check_shape(&r1cs)?;
        backend.adopt_key(&key);
        Ok(Self::with_key(r1cs, key, None, backend))
    }

    /// A prover whose key stays where it is: at most `piece` of its points, rounded up to whole windows of the stream's, are in memory at
    /// a time. That takes a fraction of the memory and reads the whole key for each proof.
    ///
    /// Such a prover multiplies through its [`Backend`]; a [`DeviceProver`] refuses it.
    ///
    /// # Errors
    /// The key is for another circuit.
    pub fn streamed(
        r1cs: Arc<R1cs>,
        key: Arc<dyn KeyStream>,
        piece: usize,
        backend: Arc<dyn Backend>,
    ) -> Result<Self, KeyMismatch> {
        check_stream_shape(&*key, &r1cs)?;
        let piece = piece.max(1).next_multiple_of(key.window_points());
        let (vk, h) = (key.verifying_key().clone(), HQuery { basis: key.basis(), points: Vec::new() });
        let without = ProvingKey { vk, h, l: Vec::new(), a: Vec::new(), b_g1: Vec::new(), b_g2: Vec::new() };
        Ok(Self::with_key(r1cs, Arc::new(without), Some(Streamed { key, piece }), backend))
    }

    fn with_key(r1cs: Arc<R1cs>, key: Arc<ProvingKey>, streamed: Option<Streamed>, backend: Arc<dyn Backend>) -> Self {
        let domain = match key.h.basis {
            HBasis::PowersOfTau => r1cs.domain().clone(),
            HBasis::OddCosetLagrange => r1cs.domain().clone().with_odd_coset(),
        };
        let verification = backend.wants_verification().then(|| Arc::new(PreparedVerifyingKey::new(&key.vk)));
        let footprint = OnceLock::new();
        Self {
            r1cs,
            key,
            streamed,
            backend,
            domain,
            synthesis: None,
            distinct_variables: false,
            footprint,
            stop: None,
            verification,
        }
    }

    /// Has each proof verified before it is returned, whatever the backend says ([`Backend::wants_verification`]).
    #[must_use]
    pub fn with_verification(mut self) -> Self {
        self.verification.get_or_insert_with(|| Arc::new(PreparedVerifyingKey::new(&self.key.vk)));
        self.footprint = OnceLock::new();
        self
    }

    /// Returns proofs as they were made: for who verifies them elsewhere, many at once.
    #[must_use]
    pub fn without_verification(mut self) -> Self {
        self.verification = None;
        self.footprint = OnceLock::new();
        self
    }

    /// Replaces the estimate of what the circuit allocates for itself while it is synthesised, for circuits that were
    /// measured; see [`crate::footprint`].
    #[must_use]
    pub fn with_synthesis_scratch(mut self, bytes: Bytes) -> Self {
        self.synthesis = Some(bytes);
        self.footprint = OnceLock::new();
        self
    }

    /// Gives circuits a variable of its own for each value while they are synthesised for a proof, as other provers do. Without it they
    /// get one and the same for all, because its place in the constraints is known from the shape, and what a circuit adds up of it
    /// costs time and memory for nothing. Only a circuit that looks at its variables (compares them, or takes their indices, which
    /// `bellpepper-core` advises against) sees a difference; it would end with [`ProveError::ShapeChanged`] or
    /// [`ProveError::Unsatisfied`].
    #[must_use]
    pub fn with_distinct_variables(mut self) -> Self {
        self.distinct_variables = true;
        self
    }

    /// Lets proofs end early with [`ProveError::Stopped`] once `flag` is set: the longest step, [`Prover::commit`], looks before
    /// each of its multiplications, and a [pipeline](Prover::pipeline) before each step.
    #[must_use]
    pub fn with_stop(mut self, flag: Arc<AtomicBool>) -> Self {
        self.stop = Some(flag);
        self
    }

    /// The shape.
    pub fn r1cs(&self) -> &Arc<R1cs> {
        &self.r1cs
    }

    /// Whether the key's points pass through memory ([`Prover::streamed`]).
    pub fn is_streamed(&self) -> bool {
        self.streamed.is_some()
    }

    /// The key; without its points if it [is streamed](Prover::is_streamed).
    pub fn key(&self) -> &Arc<ProvingKey> {
        &self.key
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The sizes of one proof's stages on a pool of `threads` threads.
    pub fn footprint(&self, threads: usize) -> Footprint {
        let make = || {
            let footprint = Footprint::new(&self.r1cs, &*self.backend, threads);
            let footprint = match &self.streamed {
                Some(Streamed { key, piece }) => {
                    let reading = Bytes(key.scratch_bytes());
                    footprint.with_stream(&self.r1cs, key.basis(), &*self.backend, threads, reading, *piece)
                }
                None => footprint,
            };
            let footprint = if self.verification.is_some() { footprint.with_verification(threads) } else { footprint };
            match self.synthesis {
                Some(bytes) => footprint.with_synthesis(bytes),
                None => footprint,
            }
        };
        // Each stage of each proof asks, nearly always on the same pool.
        match self.footprint.get_or_init(|| (threads, make())) {
            (known, footprint) if *known == threads => footprint.clone(),
            _ => make(),
        }
    }

    /// What one proof needs, stage by stage, on a pool of `threads` threads. The key and the shape are shared and not in it.
    pub fn profile(&self, threads: usize) -> Profile {
        self.footprint(threads).profile()
    }

    /// Makes one proof on the calling thread and its pool, as a job of its own.
    ///
    /// # Errors
    /// See [`ProveError`].
    pub fn prove<C: Circuit<Scalar>>(
        &self,
        ledger: &Ledger,
        circuit: C,
        blinding: Blinding,
    ) -> Result<Proved, ProveError> {
        self.prove_witness(ledger, blinding, |grant| self.synthesise(grant, circuit))
    }

    /// Makes one proof of values that were computed elsewhere ([`Prover::assign`]), as [`Prover::prove`] does of a circuit's.
    ///
    /// # Errors
    /// See [`ProveError`].
    pub fn prove_assigned(
        &self,
        ledger: &Ledger,
        fill: impl FnOnce(&mut [Scalar], &mut [Scalar]) -> Result<(), ProveError>,
        blinding: Blinding,
    ) -> Result<Proved, ProveError> {
        self.prove_witness(ledger, blinding, |grant| self.assign(grant, fill))
    }

    fn prove_witness(
        &self,
        ledger: &Ledger,
        blinding: Blinding,
        witness: impl FnOnce(&mut Grant) -> Result<Witness, ProveError>,
    ) -> Result<Proved, ProveError> {
        let mut job = ledger.submit(JobSpec::new("proof", self.profile(plimsoll::pool::current_threads())))?;
        let witness = witness(&mut job.enter(0).wait()?)?;
        let evaluated = self.evaluate(&mut job.enter(1).wait()?, witness)?;
        let quotient = self.quotient(&mut job.enter(2).wait()?, evaluated)?;
        let committed = self.commit(&mut job.enter(3).wait()?, quotient)?;
        let openings = self.b_g2(&mut job.enter(4).wait()?, committed)?;
        let _assembling = job.enter(5).wait()?;
        self.finish(openings, blinding)
    }

    /// Assembles the proof, and verifies it where the backend wants that; that its elements are in their groups is looked at always,
    /// because one that is not could tell something about the witness.
    ///
    /// # Errors
    /// [`ProveError::Unsound`].
    pub fn finish(&self, openings: Openings, blinding: Blinding) -> Result<Proved, ProveError> {
        let proved = self.assemble(openings, blinding);
        let verified = match &self.verification {
            Some(key) => verify(key, &proved.proof, &proved.public_inputs),
            None => check_subgroups(0, &proved.proof),
        };
        let backend = self.backend.name();
        verified.map_err(|source| ProveError::Unsound { backend, source })?;
        Ok(proved)
    }

    /// The early part: after it a, b and c are gone. The grant must hold what the profile says for `quotient` and `commit`.
    ///
    /// # Errors
    /// See [`ProveError`].
    pub fn prove_start(&self, grant: &mut Grant, evaluated: Evaluated) -> Result<Committed, ProveError> {
        let quotient = self.quotient(grant, evaluated)?;
        self.commit(grant, quotient)
    }

    /// The late part. The grant must hold what the profile says for `b in G2` and `assemble`.
    ///
    /// # Errors
    /// See [`ProveError`].
    pub fn prove_finish(
        &self,
        grant: &mut Grant,
        committed: Committed,
        blinding: Blinding,
    ) -> Result<Proved, ProveError> {
        let openings = self.b_g2(grant, committed)?;
        self.finish(openings, blinding)
    }

    fn check_stop(&self) -> Result<(), ProveError> {
        // Acquire: who set the flag may have said why before.
        match &self.stop {
            Some(stop) if stop.load(Ordering::Acquire) => Err(ProveError::Stopped),
            _ => Ok(()),
        }
    }

    fn backend_error(&self) -> impl Fn(BackendError) -> ProveError + use<> {
        let backend = self.backend.name();
        move |source| ProveError::Backend { backend, source }
    }
}

#[cfg(test)]
pub(crate) mod tests;
