//! A stream of proofs under a budget of device memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use blstrs::Scalar;
use plimsoll::{Bytes, Ledger, Space};
use plimsoll_groth16::backend::Backend;
use plimsoll_groth16::keys::ProvingKey;
use plimsoll_groth16::prover::{Blinding, Proved, Prover};
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_icicle::Icicle;

use crate::Args;
use crate::points::{self, Squares};

const PROOFS: u32 = 32;

/// One circuit, its key, and the proofs that were made.
struct Stream {
    constraints: usize,
    r1cs: Arc<R1cs>,
    key: Arc<ProvingKey>,
    proved: Vec<Proved>,
}

/// What a round used.
struct Round {
    peak: Bytes,
    limit: Bytes,
}

/// Prints the figures. Where neither the caller nor the device says how much memory there is, it is what one proof takes that has
/// all the room it wants, and a quarter: so that proofs at once press on it.
pub(crate) fn print(args: &Args) -> Result<(), String> {
    let constraints = (1 << args.proofs) - 2;
    let (r1cs, key) = points::generate(constraints)?;
    let mut stream = Stream { constraints, r1cs, key: Arc::new(key), proved: Vec::new() };
    println!("{PROOFS} proofs of {constraints} constraints, each verified before it is returned\n");
    println!(
        "| budget | at once | seconds a proof | held at the most | calls | out of memory |\n|---|---|---|---|---|---|"
    );
    let budget = match args.memory {
        Some(memory) => Some(memory),
        None if args.open(None)?.told() => None,
        None => {
            stream.round(&args.open(None)?.icicle, 4, PROOFS)?;
            let alone = stream.round(&args.open(None)?.icicle, 1, 1)?.peak;
            Some(Bytes(alone.0 / 4 * 5))
        }
    };
    for jobs in [1, 2, 4] {
        let round = stream.round(&args.open(budget)?.icicle, jobs, PROOFS)?;
        if round.peak > round.limit {
            return Err(format!("{} were held of {}", round.peak, round.limit));
        }
    }
    println!();
    if let Some(file) = &args.write {
        stream.write(file).map_err(|error| format!("{}: {error}", file.display()))?;
        println!("{} proofs are in {}, for another verifier\n", stream.proved.len(), file.display());
    }
    Ok(())
}

impl Stream {
    /// So many proofs, so many at once.
    fn round(&mut self, icicle: &Icicle, jobs: u32, proofs: u32) -> Result<Round, String> {
        let backend: Arc<dyn Backend> = Arc::new(icicle.clone());
        let prover = Prover::new(self.r1cs.clone(), self.key.clone(), backend).map_err(|error| error.to_string())?;
        let next = AtomicU32::new(0);
        let start = Instant::now();
        let outcomes: Vec<Result<Vec<Proved>, String>> = thread::scope(|scope| {
            let run = || {
                let mut all = Vec::new();
                loop {
                    // Relaxed: a count.
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= proofs {
                        return Ok(all);
                    }
                    let circuit =
                        Squares { constraints: self.constraints, start: Some(Scalar::from(u64::from(index) + 2)) };
                    let made = prover.prove(&Ledger::unlimited(), circuit, Blinding::from_os());
                    all.push(made.map_err(|error| error_chain(&error))?);
                }
            };
            let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".to_owned()))).collect()
        });
        let seconds = start.elapsed().as_secs_f64() / f64::from(proofs);
        let snapshot = icicle.ledger().snapshot();
        let usage = snapshot.space(Space::device(icicle.number())).ok_or("the device has no budget")?;
        let learned = icicle.learned();
        println!(
            "| {} | {jobs}{} | {seconds:.3} | {} | {} | {} |",
            usage.limit,
            if proofs == PROOFS { "" } else { ", one proof" },
            usage.peak,
            learned.calls,
            learned.out_of_memory
        );
        for made in outcomes {
            self.proved.extend(made?);
        }
        Ok(Round { peak: usage.peak, limit: usage.limit })
    }

    /// The verifying key as bellperson writes it, behind its length; then of each proof its inputs, behind their number, and the proof as
    /// bellperson writes it. Numbers are 32 bits, little-endian, as are inputs.
    fn write(&self, file: &Path) -> std::io::Result<()> {
        let mut key = Vec::new();
        self.key.vk.write(&mut key).map_err(std::io::Error::other)?;
        let mut file = BufWriter::new(File::create(file)?);
        file.write_all(&(key.len() as u32).to_le_bytes())?;
        file.write_all(&key)?;
        for proved in &self.proved {
            file.write_all(&(proved.public_inputs.len() as u32).to_le_bytes())?;
            for input in &proved.public_inputs {
                file.write_all(&input.to_bytes_le())?;
            }
            file.write_all(&proved.proof.to_bytes())?;
        }
        file.flush()
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", error_chain(source)),
        None => error.to_string(),
    }
}
