//! The pipeline that proves a batch of witnesses: read → evaluate → quotient → commit → b in G2 → assemble, several under way.
//!
//! A witness is read when there is room for it, by windows from its file into a buffer that a grant paid for. A witness that is wrong
//! does not hold up the others; a key that is wrong ends the batch.

use std::path::Path;
use std::time::Instant;

use blstrs::Scalar;
use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::pipeline::{JobError, Pipeline, StageStats};
use plimsoll::pool::Pool;
use plimsoll::{Grant, Ledger};
use plimsoll_circom::map::MappedFile;
use plimsoll_circom::wtns::WtnsFile;
use plimsoll_groth16::footprint::SHELLS;
use plimsoll_groth16::prover::{Blinding, ProveError, Proved, Prover, Witness};
use plimsoll_groth16::{BatchVerifier, PreparedVerifyingKey, VerifyError, verify};
use rand_core::OsRng;

use super::waiting::Waiting;
use super::witnesses::WitnessFile;
use crate::cards::{Cards, PipelineError};
use crate::proving::chain_of;
use crate::signals::Interrupt;

/// Why there is no proof of a witness.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessError {
    /// Its file cannot be used.
    #[error("{0}")]
    File(String),
    /// It breaks a constraint.
    #[error("the witness does not satisfy the circuit")]
    Unsatisfied {
        /// Which, from 0.
        constraint: usize,
    },
    /// Its proof does not verify, and nobody has looked whether it satisfies the circuit.
    #[error(
        "its proof does not verify: the witness does not satisfy the circuit, the key is for another circuit, or the {backend} \
         backend computes wrongly"
    )]
    Invalid {
        /// What computed.
        backend: &'static str,
    },
    /// It satisfies the circuit, and its proof does not verify.
    #[error(
        "its proof does not verify though the witness satisfies the circuit: the key is damaged or another circuit's, or the \
         {backend} backend computes wrongly"
    )]
    Unsound {
        /// What computed.
        backend: &'static str,
    },
    /// The key cannot be used any more: no proof can be made with it.
    #[error("{0}")]
    Key(String),
    /// Its job was cancelled, over the socket.
    #[error("cancelled")]
    Cancelled,
    /// The work failed.
    #[error("{0}")]
    Work(String),
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
}

/// What a run says about itself.
#[derive(Clone, Debug)]
pub struct BatchRun {
    /// Each stage's count and times.
    pub stages: Vec<StageStats>,
    /// The ledger when the last witness was done.
    pub ledger: Snapshot,
    /// The most witnesses that were under way at once.
    pub in_flight_peak: usize,
    /// Seconds spent verifying.
    pub verify_seconds: f64,
}

/// Everything that proving needs.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Makes the proofs; its flag to stop is the interrupt's.
    pub prover: &'a Prover,
    /// Where, if not by the prover's backend.
    pub cards: &'a Cards,
    /// Where bytes are counted.
    pub ledger: &'a Ledger,
    /// Where stages run.
    pub pool: &'a Pool,
    /// When to stop.
    pub interrupt: &'a Interrupt,
    /// How many results may wait; its bytes are reserved for as long as the batch runs.
    pub waiting: Waiting,
}

type BatchPipeline = Pipeline<WitnessFile, Proved, ProveError>;

impl Batch<'_> {
    /// Proves all witnesses, verifies the proofs, and gives each result to `deliver`, in order, with the witness's index.
    ///
    /// However it ends, no job is left and all bytes of proofs are back.
    ///
    /// # Errors
    /// The pipeline cannot work within its ledger; what `deliver` says, after which nothing more is begun.
    pub fn run<E: From<PipelineError>>(
        &self,
        witnesses: &[WitnessFile],
        mut deliver: impl FnMut(usize, Result<Proved, WitnessError>) -> Result<(), E>,
    ) -> Result<BatchRun, E> {
        let results = self.ledger.reserve(SHELLS, self.waiting.bytes).name("results that wait").retained().try_now();
        let _results = results.map_err(|e| PipelineError::Beside(format!("the results of a batch: {e}")))?;
        let pipeline = self.pipeline()?;
        let verify_seconds = self.deliver(&pipeline, witnesses, &mut deliver);
        pipeline.cancel_all();
        pipeline.drain();
        Ok(BatchRun {
            verify_seconds: verify_seconds?,
            stages: pipeline.stats(),
            ledger: self.ledger.snapshot(),
            in_flight_peak: pipeline.begun_peak(),
        })
    }

    fn pipeline(&self) -> Result<BatchPipeline, PipelineError> {
        let begin =
            |prover: &Prover, grant: &mut Grant, file: WitnessFile| Ok((read_witness(prover, grant, &file.path)?, ()));
        let end = |prover: &Prover, openings, ()| Ok(prover.assemble(openings, Blinding::from_os()));
        self.cards.pipeline(self.prover, self.ledger, self.pool, begin, end)
    }

    fn deliver<E: From<PipelineError>>(
        &self,
        pipeline: &BatchPipeline,
        witnesses: &[WitnessFile],
        deliver: &mut impl FnMut(usize, Result<Proved, WitnessError>) -> Result<(), E>,
    ) -> Result<f64, E> {
        let key = PreparedVerifyingKey::new(&self.prover.key().vk);
        let mut waiting = Vec::with_capacity(self.waiting.together);
        let mut seconds = 0.0;
        let inputs = witnesses.iter().cloned().take_while(|_| !self.interrupt.is_set());
        let inputs = inputs.enumerate().map(|(index, file)| (format!("witness {index}"), file));
        for (index, result) in pipeline.run_all(inputs).in_order().at_most(self.waiting.at_most) {
            if self.interrupt.is_set() {
                break;
            }
            match result {
                Ok(proved) => waiting.push((index, proved)),
                Err(error) => {
                    // What was proved before comes before.
                    seconds += self.flush(&key, &mut waiting, deliver)?;
                    deliver(index, Err(self.witness_error(&error)))?;
                }
            }
            if waiting.len() >= self.waiting.together {
                seconds += self.flush(&key, &mut waiting, deliver)?;
            }
        }
        if !self.interrupt.is_set() {
            seconds += self.flush(&key, &mut waiting, deliver)?;
        }
        Ok(seconds)
    }

    fn flush<E>(
        &self,
        key: &PreparedVerifyingKey,
        waiting: &mut Vec<(usize, Proved)>,
        deliver: &mut impl FnMut(usize, Result<Proved, WitnessError>) -> Result<(), E>,
    ) -> Result<f64, E> {
        let started = Instant::now();
        let proofs: Vec<_> = waiting.iter().map(|(_, proved)| proved.proof).collect();
        let inputs: Vec<&[Scalar]> = waiting.iter().map(|(_, proved)| &proved.public_inputs[..]).collect();
        let all = self.pool.install(|| {
            let mut batch = BatchVerifier::new(key);
            batch.add(&proofs, &inputs, &mut OsRng)?;
            batch.finish()
        });
        let verdicts: Vec<Result<(), VerifyError>> = match all {
            Ok(()) => vec![Ok(()); proofs.len()],
            // Some are not: which, each tells by itself.
            Err(_) => proofs.iter().zip(&inputs).map(|(proof, inputs)| verify(key, proof, inputs)).collect(),
        };
        let seconds = started.elapsed().as_secs_f64();
        for ((index, proved), verdict) in waiting.drain(..).zip(verdicts) {
            deliver(index, verdict.map(|()| proved).map_err(|error| self.refused(error)))?;
        }
        Ok(seconds)
    }

    /// Whose fault it is that a proof is not valid, as far as can be told.
    fn refused(&self, error: VerifyError) -> WitnessError {
        let backend = self.prover.backend().name();
        match error {
            // It would tell something about the witness.
            VerifyError::NotInSubgroup { .. } => WitnessError::Key(format!(
                "a proof made with it is outside of its group, and was thrown away: its points are not what was vouched for (`plimsoll \
                 setup check` looks at all of them), or the {backend} backend computes wrongly"
            )),
            _ if self.prover.r1cs().products_implied() => WitnessError::Invalid { backend },
            _ => WitnessError::Unsound { backend },
        }
    }

    fn witness_error(&self, error: &JobError<ProveError>) -> WitnessError {
        match error {
            _ if self.interrupt.is_set() => WitnessError::Interrupted,
            JobError::Stage { source: ProveError::Unsatisfied { constraint }, .. } => {
                WitnessError::Unsatisfied { constraint: *constraint }
            }
            JobError::Stage { source: ProveError::Assignment { source }, .. } => WitnessError::File(source.to_string()),
            JobError::Stage { source: ProveError::Key { source }, .. } => WitnessError::Key(source.to_string()),
            JobError::Cancelled { .. } => WitnessError::Cancelled,
            error => WitnessError::Work(chain_of(error)),
        }
    }
}

/// Reads a witness into the buffer that the grant pays for, a window of its file at a time.
fn read_witness(prover: &Prover, grant: &mut Grant, path: &Path) -> Result<Witness, ProveError> {
    prover.assign(grant, |inputs, aux| {
        let assignment = |source: Box<dyn std::error::Error + Send + Sync>| ProveError::Assignment { source };
        let bytes = MappedFile::open(path).map_err(|e| assignment(e.into()))?;
        // Copied, never looked at in the map: who shortens the file meanwhile spoils this witness alone.
        let file = WtnsFile::parse_in(&bytes, &bytes).map_err(|e| assignment(e.into()))?;
        let (found, expected) = (file.len(), 1 + inputs.len() + aux.len());
        if found != expected {
            let text = format!("it has {found} values, the circuit has {expected} signals; is it another circuit's?");
            return Err(assignment(text.into()));
        }
        let (first_input, first_aux) = (1, 1 + inputs.len());
        file.read(0, &mut [Scalar::from(0)]).map_err(|e| assignment(e.into()))?;
        file.read(first_input, inputs).map_err(|e| assignment(e.into()))?;
        file.read(first_aux, aux).map_err(|e| assignment(e.into()))
    })
}

#[cfg(test)]
mod tests;
