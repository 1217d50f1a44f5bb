//! The pipeline that proves a file: synthesise → evaluate → quotient → commit → b in G2 → assemble, several partitions under way.
//!
//! Partitions are read when there is room for them and delivered in their order, so neither the file nor its proofs are held.
//! What a partition holds in each stage is granted by the ledger; how many are under way follows from the budget.

use std::cell::RefCell;
use std::io::Read;

use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::pipeline::{JobError, Pipeline, StageStats};
use plimsoll::pool::Pool;
use plimsoll::{Grant, Ledger};
use plimsoll_groth16::prover::{Blinding, ProveError, Prover};
use plimsoll_groth16::{BatchVerifier, PreparedVerifyingKey, Proof, VerifyError, first_invalid};
use rand_core::OsRng;

use crate::cards::{Cards, PipelineError};
use crate::chain::{Partition, Partitions, SplitError, State};
use crate::circuit::{PUBLIC_INPUTS, PartitionCircuit, public_inputs};
use crate::proof_file::{ProofWriter, Record, WriteError};
use crate::signals::Interrupt;

/// Proofs verified in one check before they are written.
pub(crate) const VERIFY_TOGETHER: usize = 64;
/// Results that may wait for an earlier one, beyond those being worked on. A result is less than a KiB.
pub(crate) const RESULTS_WAITING_MAX: usize = 64;

/// Why a file was not proved.
#[derive(Debug, thiserror::Error)]
pub enum ProvingError {
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// The file could not be read to its end.
    #[error(transparent)]
    Input(#[from] SplitError),
    /// The proof file could not be written.
    #[error(transparent)]
    Output(#[from] WriteError),
    /// There is no pipeline.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A partition's job failed.
    #[error("partition {partition}: {}", chain_of(source))]
    Job {
        /// From 0.
        partition: u64,
        /// How.
        source: Box<JobError<ProveError>>,
    },
    /// A proof made here does not verify.
    #[error("the proof made for partition {partition} is not valid ({source}); nothing was written")]
    Unsound {
        /// From 0.
        partition: u64,
        /// What the verifier said.
        source: VerifyError,
    },
}

/// An error with all its causes in one line.
pub(crate) fn chain_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// What is public about a partition; it travels beside the witness.
#[derive(Clone, Copy, Debug)]
struct Claim {
    blocks: u8,
    start: State,
    end: State,
    inputs: [blstrs::Scalar; PUBLIC_INPUTS],
}

impl Claim {
    fn of(partition: &Partition) -> Self {
        let Partition { start, end, blocks, padding, .. } = partition;
        Self { blocks: *blocks, start: *start, end: *end, inputs: public_inputs(*start, *end, *blocks, padding) }
    }
}

/// A proved partition.
#[derive(Debug)]
struct Done {
    claim: Claim,
    proof: Proof,
}

type FilePipeline = Pipeline<Partition, Done, ProveError>;

/// What a run says about itself.
#[derive(Clone, Debug)]
pub struct Run {
    /// The file's digest.
    pub digest: State,
    /// Each stage's count and times.
    pub stages: Vec<StageStats>,
    /// The ledger when the last partition was done.
    pub ledger: Snapshot,
    /// The most partitions that were under way at once.
    pub in_flight_peak: usize,
    /// Seconds spent verifying.
    pub verify_seconds: f64,
}

/// Everything that proving needs.
#[derive(Debug)]
pub struct Proving<'a> {
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

impl Proving<'_> {
    /// Proves all partitions, verifies the proofs and gives them to `writer`. `on_done` is told how many are done.
    ///
    /// However it ends, no job is left and all bytes of partitions are back.
    pub fn run<R: Read>(
        &self,
        partitions: Partitions<R>,
        writer: &mut ProofWriter,
        on_done: impl Fn(u64),
    ) -> Result<Run, ProvingError> {
        let pipeline = self.pipeline()?;
        let result = self.deliver(&pipeline, partitions, writer, on_done);
        // After a failure: what is under way ends at its next step, and gives back what it holds.
        pipeline.cancel_all();
        pipeline.drain();
        let (digest, verify_seconds) = result?;
        Ok(Run {
            digest,
            stages: pipeline.stats(),
            ledger: self.ledger.snapshot(),
            in_flight_peak: pipeline.begun_peak(),
            verify_seconds,
        })
    }

    fn pipeline(&self) -> Result<FilePipeline, PipelineError> {
        let begin = |prover: &Prover, grant: &mut Grant, partition: Partition| {
            let claim = Claim::of(&partition);
            Ok((prover.synthesise(grant, PartitionCircuit::new(partition))?, claim))
        };
        // All of them are verified before they are written.
        let end = |prover: &Prover, openings, claim| {
            Ok(Done { claim, proof: prover.assemble(openings, Blinding::from_os()).proof })
        };
        self.cards.pipeline(self.prover, self.ledger, self.pool, begin, end)
    }

    fn deliver<R: Read>(
        &self,
        pipeline: &FilePipeline,
        partitions: Partitions<R>,
        writer: &mut ProofWriter,
        on_done: impl Fn(u64),
    ) -> Result<(State, f64), ProvingError> {
        let key = PreparedVerifyingKey::new(&self.prover.key().vk);
        let mut checked = Checked { key: &key, pool: self.pool, writer, waiting: Vec::new(), written: 0, seconds: 0.0 };
        let mut end = crate::chain::INITIAL_STATE;
        // Pulling stops at the first fault of the input, which is then reported instead of what follows from it.
        let fault = RefCell::new(None);
        let inputs = partitions.map_while(|partition| match partition {
            _ if self.interrupt.is_set() => None,
            Ok(partition) => Some((format!("partition {}", partition.index), partition)),
            Err(e) => {
                *fault.borrow_mut() = Some(e);
                None
            }
        });
        let at_most = RESULTS_WAITING_MAX + 2 * self.pool.threads();
        for (index, result) in pipeline.run_all(inputs).in_order().at_most(at_most) {
            if self.interrupt.is_set() {
                return Err(ProvingError::Interrupted);
            }
            let done = result.map_err(|e| ProvingError::Job { partition: index as u64, source: Box::new(e) })?;
            end = done.claim.end;
            checked.add(done)?;
            on_done(index as u64 + 1);
        }
        if let Some(fault) = fault.into_inner() {
            return Err(fault.into());
        }
        if self.interrupt.is_set() {
            return Err(ProvingError::Interrupted);
        }
        checked.flush()?;
        Ok((end, checked.seconds))
    }
}

/// Proofs on their way to the file: verified first, many in one check.
struct Checked<'a> {
    key: &'a PreparedVerifyingKey,
    pool: &'a Pool,
    writer: &'a mut ProofWriter,
    waiting: Vec<Done>,
    written: u64,
    seconds: f64,
}

impl Checked<'_> {
    fn add(&mut self, done: Done) -> Result<(), ProvingError> {
        self.waiting.push(done);
        if self.waiting.len() == VERIFY_TOGETHER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ProvingError> {
        let started = std::time::Instant::now();
        let proofs: Vec<Proof> = self.waiting.iter().map(|done| done.proof).collect();
        let inputs: Vec<Vec<blstrs::Scalar>> = self.waiting.iter().map(|done| done.claim.inputs.to_vec()).collect();
        let key = self.key;
        self.pool
            .install(|| {
                let mut batch = BatchVerifier::new(key);
                batch.add(&proofs, &inputs, &mut OsRng)?;
                batch.finish()
            })
            .map_err(|source| {
                let first = first_invalid(key, &proofs, &inputs).map_or(0, |(index, _)| index);
                ProvingError::Unsound { partition: self.written + first as u64, source }
            })?;
        self.seconds += started.elapsed().as_secs_f64();
        for Done { claim: Claim { blocks, start, end, .. }, proof } in self.waiting.drain(..) {
            self.writer.push(&Record { blocks, start, end, proof: proof.to_bytes() })?;
            self.written += 1;
        }
        Ok(())
    }
}
