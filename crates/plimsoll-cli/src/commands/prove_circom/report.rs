//! What is told about a batch.

use std::path::Path;

use plimsoll::Bytes;
use serde_json::{Value, json};
use signal_hook::consts::SIGINT;

use super::Done;
use crate::backend::Chosen;
use crate::budget::Budget;
use crate::circom::witnesses::WitnessFile;
use crate::commands::proved::{add_cards, json_cards, json_stages, ledger_peak, stage_grid, warn_if_beyond};
use crate::console::{self, GOOD, Rows};
use crate::exit::{Exit, Failure};

/// What came of one witness.
pub(super) enum Outcome {
    /// Its files are written.
    Proved,
    /// There is no proof.
    Failed {
        /// Why.
        message: String,
        /// The constraint that it breaks.
        constraint: Option<usize>,
        /// Whose fault it is.
        fault: Fault,
    },
}

/// Whose fault it is that there is no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The witness's, or its file's; with no constraints given perhaps somebody else's.
    Witness,
    /// The key's or the backend's, and not the witness's; or this program's.
    Internal,
    /// Nobody's: somebody has cancelled it.
    Cancelled,
}

/// A finished batch.
pub(super) struct Report<'a> {
    pub(super) zkey: &'a Path,
    pub(super) witnesses: &'a [WitnessFile],
    pub(super) budget: &'a Budget,
    pub(super) chosen: &'a Chosen,
    pub(super) done: &'a Done,
    pub(super) seconds: f64,
    pub(super) resident_peak: Option<Bytes>,
}

impl Report<'_> {
    /// Prints it, and warns if the process went beyond the line.
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        warn_if_beyond(self.budget, self.resident_peak);
        if json {
            return console::print(self.json());
        }
        console::print(format!("{}\n\n{}", self.summary(), stage_grid(&self.done.run.stages)))
    }

    /// Whether every witness has a proof.
    pub(super) fn verdict(&self, json: bool) -> Result<(), Failure> {
        let failed: Vec<(&WitnessFile, &String, Fault)> = self
            .witnesses
            .iter()
            .zip(&self.done.outcomes)
            .filter_map(|(file, outcome)| match outcome {
                Outcome::Proved => None,
                Outcome::Failed { message, fault, .. } => Some((file, message, *fault)),
            })
            .collect();
        let text = match &failed[..] {
            [] => return Ok(()),
            [(file, message, _)] => format!("{}: {message}", file.path.display()),
            [(file, ..), ..] => {
                let (some, all) = (failed.len(), self.witnesses.len());
                format!("{some} of {all} witnesses have no proof, {} first", file.path.display())
            }
        };
        let exit = exit_of(failed.iter().map(|(.., fault)| *fault));
        Err(Failure { told: json, ..Failure::new(exit, text) })
    }

    fn proved(&self) -> usize {
        self.done.outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Proved)).count()
    }

    fn summary(&self) -> Rows {
        let Done { run, key, proving_seconds, .. } = self.done;
        let mut rows = Rows::default();
        let first =
            self.witnesses.iter().zip(&self.done.outcomes).find(|(_, outcome)| matches!(outcome, Outcome::Proved));
        let place = match (first, self.proved()) {
            (Some((file, _)), 1) => file.proof.display().to_string(),
            (Some((file, _)), _) => format!("{} …", file.proof.display()),
            (None, _) => String::new(),
        };
        rows.add("proofs", format!("{} of {}, {GOOD}verified{GOOD:#}, {place}", self.proved(), self.witnesses.len()))
            .add("key", self.key())
            .add("", format!("{} ({})", key.digest, if key.known { "checked before" } else { "every point checked" }))
            .add(
                "witnesses",
                match &key.checked_with {
                    Some(path) => format!("checked with {}", path.display()),
                    None => "not checked before proving (--r1cs)".to_owned(),
                },
            )
            .add("backend", format!("{} ({})", self.chosen.name, self.chosen.why))
            .add(
                "time",
                format!(
                    "{:.2} s, of which proving {proving_seconds:.2} s: {:.2} proofs/s on {} threads",
                    self.seconds,
                    self.witnesses.len() as f64 / proving_seconds,
                    self.budget.threads
                ),
            )
            .add("budget", format!("{}, from {}", self.budget.line.bytes, self.budget.line.source))
            .add("ledger", format!("{} at most of {}", ledger_peak(&self.done.run.ledger), self.budget.ledger))
            .add("in flight", format!("{} at most", run.in_flight_peak));
        add_cards(&mut rows, &self.chosen.cards, &self.done.run.ledger);
        if let Some(peak) = self.resident_peak {
            rows.add("process", format!("{peak} at most (VmHWM)"));
        }
        rows
    }

    fn key(&self) -> String {
        let (zkey, key) = (self.zkey.display(), &self.done.key);
        match &key.streamed {
            None => format!("{zkey}, {} in memory, read in {:.2} s", key.resident, key.seconds),
            Some(streamed) => format!(
                "{zkey}, of which {} are read for each proof, {} points at a time: with more --memory it would be loaded once",
                streamed.bytes, streamed.piece
            ),
        }
    }

    fn json(&self) -> Value {
        let Done { run, key, proving_seconds, outcomes, in_flight } = self.done;
        let results: Vec<Value> = self
            .witnesses
            .iter()
            .zip(outcomes)
            .map(|(file, outcome)| match outcome {
                Outcome::Proved => json!({
                    "witness": file.path.display().to_string(),
                    "ok": true,
                    "proof": file.proof.display().to_string(),
                    "public": file.public.display().to_string(),
                }),
                Outcome::Failed { message, constraint, .. } => json!({
                    "witness": file.path.display().to_string(),
                    "ok": false,
                    "message": message,
                    "constraint": constraint,
                }),
            })
            .collect();
        let classes: Vec<Value> = run
            .ledger
            .classes
            .iter()
            .map(|usage| {
                let of_proof = in_flight.stages().iter().map(|stage| stage.peak.of(usage.class)).max();
                let of_proof = of_proof.filter(|bytes| *bytes > 0);
                json!({"class": usage.class.name(), "peak_bytes": usage.totals.peak, "proof_bytes": of_proof})
            })
            .collect();
        json!({
            "command": "prove",
            "ok": self.proved() == self.witnesses.len(),
            "zkey": self.zkey.display().to_string(),
            "proofs": self.proved(),
            "witnesses": self.witnesses.len(),
            "results": results,
            "key": {
                "digest": key.digest,
                "checked_before": key.known,
                "resident_bytes": key.resident.0,
                "read_bytes_per_proof": key.streamed.as_ref().map(|streamed| streamed.bytes.0),
                "points_at_a_time": key.streamed.as_ref().map(|streamed| streamed.piece),
                "seconds": key.seconds,
            },
            "r1cs": key.checked_with.as_ref().map(|path| path.display().to_string()),
            "backend": self.chosen.name,
            "backend_why": self.chosen.why,
            "threads": self.budget.threads,
            "seconds": self.seconds,
            "proving_seconds": proving_seconds,
            "verify_seconds": run.verify_seconds,
            "stages": json_stages(&run.stages),
            "memory": {
                "budget_bytes": self.budget.line.bytes.0,
                "source": self.budget.line.source.to_string(),
                "ledger_bytes": self.budget.ledger.0,
                "ledger_peak_bytes": ledger_peak(&self.done.run.ledger).0,
                "resident_peak_bytes": self.resident_peak.map(|bytes| bytes.0),
                "in_flight_peak": run.in_flight_peak,
                "devices": json_cards(&self.chosen.cards, &self.done.run.ledger),
                "classes": classes,
            },
        })
    }
}

/// How a batch with these faults ends: what somebody has to mend comes first.
fn exit_of(faults: impl Iterator<Item = Fault>) -> Exit {
    let of = |fault| match fault {
        Fault::Internal => Exit::Internal,
        Fault::Witness => Exit::BadInput,
        Fault::Cancelled => Exit::Interrupted(SIGINT),
    };
    faults.map(of).min_by_key(|exit| exit.code()).unwrap_or(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_as_its_worst_witness() {
        let exit = |faults: &[Fault]| exit_of(faults.iter().copied()).code();
        assert_eq!((exit(&[]), exit(&[Fault::Cancelled])), (0, 130));
        assert_eq!(exit(&[Fault::Cancelled, Fault::Witness]), 4);
        assert_eq!(exit(&[Fault::Witness, Fault::Internal, Fault::Cancelled]), 1);
    }
}
