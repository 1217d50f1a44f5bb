//! The pipeline that proves a batch of witnesses: read → evaluate → quotient → commit → b in G2 → assemble, several under way.
//!
//! A witness is read when there is room for it, from its mapped file into a buffer that a grant paid for, and nowhere else. A
//! witness that is wrong does not hold up the others.

use std::path::Path;
use std::time::Instant;

use blstrs::Scalar;
use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::pipeline::{JobError, Pipeline, StageStats};
use plimsoll::pool::Pool;
use plimsoll::{Grant, Ledger};
use plimsoll_circom::json::VerificationKey;
use plimsoll_circom::map::{MappedFile, Pages};
use plimsoll_circom::wtns::WtnsFile;
use plimsoll_groth16::prover::{Blinding, ProveError, Proved, Prover, Witness};
use plimsoll_groth16::{BatchVerifier, PreparedVerifyingKey, verify};
use rand_core::OsRng;

use super::load::WITNESS_WINDOW;
use super::witnesses::WitnessFile;
use crate::cards::{Cards, PipelineError};
use crate::proving::{RESULTS_WAITING_MAX, VERIFY_TOGETHER, chain_of};
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
    /// Its proof does not verify.
    #[error("its proof does not verify: the witness does not satisfy the circuit, or is for another key")]
    Invalid,
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
        let key = VerificationKey::from(&self.prover.key().vk).prepare();
        let mut waiting = Vec::new();
        let mut seconds = 0.0;
        let inputs = witnesses.iter().cloned().take_while(|_| !self.interrupt.is_set());
        let inputs = inputs.enumerate().map(|(index, file)| (format!("witness {index}"), file));
        let at_most = RESULTS_WAITING_MAX + 2 * self.pool.threads();
        for (index, result) in pipeline.run_all(inputs).in_order().at_most(at_most) {
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
            if waiting.len() == VERIFY_TOGETHER {
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
        let valid: Vec<bool> = match all {
            Ok(()) => vec![true; proofs.len()],
            // Some are not: which, each tells by itself.
            Err(_) => proofs.iter().zip(&inputs).map(|(proof, inputs)| verify(key, proof, inputs).is_ok()).collect(),
        };
        let seconds = started.elapsed().as_secs_f64();
        for ((index, proved), valid) in waiting.drain(..).zip(valid) {
            deliver(index, if valid { Ok(proved) } else { Err(WitnessError::Invalid) })?;
        }
        Ok(seconds)
    }

    fn witness_error(&self, error: &JobError<ProveError>) -> WitnessError {
        match error {
            _ if self.interrupt.is_set() => WitnessError::Interrupted,
            JobError::Stage { source: ProveError::Unsatisfied { constraint }, .. } => {
                WitnessError::Unsatisfied { constraint: *constraint }
            }
            JobError::Stage { source: ProveError::Assignment { source }, .. } => WitnessError::File(source.to_string()),
            error => WitnessError::Work(chain_of(error)),
        }
    }
}

/// Reads a witness into the buffer that the grant pays for, a window of its file at a time.
fn read_witness(prover: &Prover, grant: &mut Grant, path: &Path) -> Result<Witness, ProveError> {
    prover.assign(grant, |inputs, aux| {
        let assignment = |source: Box<dyn std::error::Error + Send + Sync>| ProveError::Assignment { source };
        let bytes = MappedFile::open(path).map_err(|e| assignment(e.into()))?;
        let file = WtnsFile::parse(&bytes).map_err(|e| assignment(e.into()))?;
        let (found, expected) = (file.len(), 1 + inputs.len() + aux.len());
        if found != expected {
            let text = format!("it has {found} values, the circuit has {expected} signals; is it another circuit's?");
            return Err(assignment(text.into()));
        }
        file.read(0, &mut [Scalar::from(0)]).map_err(|e| assignment(e.into()))?;
        let value_bytes = file.values().len() / found;
        let mut first = 1;
        for values in [inputs, aux] {
            for values in values.chunks_mut(WITNESS_WINDOW / value_bytes) {
                file.read(first, values).map_err(|e| assignment(e.into()))?;
                let start = file.values().start + first * value_bytes;
                bytes.release(start..start + values.len() * value_bytes);
                first += values.len();
            }
        }
        Ok(())
    })
}
