//! What a person, or `--json`, is told about a run.

use std::path::Path;

use plimsoll::{Bytes, Class};
use serde::Serialize;

use super::{Done, Plan};
use crate::budget::Budget;
use crate::commands::proved::{
    JsonCard, JsonStage, add_cards, add_stage, json_cards, json_stages, ledger_peak, stage_grid, warn_if_beyond,
};
use crate::console::{self, Align, GOOD, Grid, Rows, WARNING};
use crate::exit::{Exit, Failure};
use crate::keys::Origin;
use crate::proof_file::SETUP;

/// A finished run.
pub(super) struct Report<'a> {
    pub(super) input: &'a Path,
    pub(super) bytes: u64,
    pub(super) output: &'a Path,
    pub(super) budget: &'a Budget,
    pub(super) plan: &'a Plan,
    pub(super) done: &'a Done,
    pub(super) seconds: f64,
    pub(super) resident_peak: Option<Bytes>,
}

impl Report<'_> {
    /// Prints it, and warns if the process went beyond the line.
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        warn_if_beyond(self.budget, self.resident_peak);
        if json {
            let text = serde_json::to_string(&self.json()).map_err(|e| Failure::new(Exit::Internal, e))?;
            return console::print(text);
        }
        console::print(format!("{}\n\n{}\n\n{}\n\n{}", self.summary(), self.stages(), self.classes(), self.memory()))
    }

    fn summary(&self) -> Rows {
        let Done { run, keys, proving_seconds, partitions } = self.done;
        let origin = match &keys.origin {
            Origin::Cache(path) => format!("from {} in {:.2} s", path.display(), keys.seconds),
            Origin::Made(Some(path)) => format!("made in {:.2} s, cached in {}", keys.seconds, path.display()),
            Origin::Made(None) => format!("made in {:.2} s, not cached", keys.seconds),
        };
        let mut rows = Rows::default();
        rows.add("proof", format!("{}, {GOOD}verified{GOOD:#}", self.output.display()))
            .add("file", format!("{}, {} bytes, {partitions} partitions", self.input.display(), self.bytes))
            .add("SHA-256", run.digest.to_string())
            .add("key", hex::encode(keys.identity))
            .add("", origin)
            .add("set-up", format!("{WARNING}{SETUP}: INSECURE{WARNING:#}, whoever made this key can forge proofs"))
            .add("backend", format!("{} ({})", self.plan.chosen.name, self.plan.chosen.why))
            .add(
                "time",
                format!(
                    "{:.2} s, of which proving {proving_seconds:.2} s: {:.2} partitions/s on {} threads",
                    self.seconds,
                    *partitions as f64 / proving_seconds,
                    self.budget.threads,
                ),
            );
        rows
    }

    fn stages(&self) -> Grid {
        let mut grid = stage_grid(&self.done.run.stages);
        let verify = self.done.run.verify_seconds;
        add_stage(&mut grid, "verify", self.done.partitions, verify, String::new());
        grid
    }

    fn classes(&self) -> Grid {
        let mut grid = Grid::new(&[("class", Align::Left), ("peak", Align::Right), ("a partition", Align::Right)]);
        for (class, peak, partition) in self.class_peaks() {
            grid.add([class.to_string(), peak.to_string(), partition.map_or(String::new(), |bytes| bytes.to_string())]);
        }
        grid
    }

    /// Each class with its peak, and what one partition holds of it at most.
    fn class_peaks(&self) -> impl Iterator<Item = (Class, Bytes, Option<Bytes>)> {
        let of_partition = |class| self.plan.profile.stages().iter().map(|stage| Bytes(stage.peak.of(class))).max();
        self.done.run.ledger.classes.iter().map(move |usage| {
            (usage.class, Bytes(usage.totals.peak), of_partition(usage.class).filter(|bytes| !bytes.is_zero()))
        })
    }

    fn memory(&self) -> Rows {
        let Budget { line, machine, ledger, .. } = self.budget;
        let of = if *machine == line.bytes { String::new() } else { format!(" of {machine}, less a margin") };
        let mut rows = Rows::default();
        rows.add("budget", format!("{}, from {}{of}", line.bytes, line.source))
            .add("ledger", format!("{} at most of {ledger}", ledger_peak(&self.done.run.ledger)))
            .add(
                "in flight",
                match self.done.run.in_flight_peak {
                    1 => "1 partition at most".to_owned(),
                    peak => format!("{peak} partitions at most"),
                },
            );
        add_cards(&mut rows, &self.plan.chosen.cards, &self.done.run.ledger);
        if let Some(peak) = self.resident_peak {
            rows.add("process", format!("{peak} at most (VmHWM), {:.0} % of the budget", percent(peak, line.bytes)));
        }
        rows
    }

    fn json(&self) -> Json<'_> {
        let Done { run, keys, proving_seconds, partitions } = self.done;
        let (origin, cached_in) = match &keys.origin {
            Origin::Cache(path) => ("cache", Some(path)),
            Origin::Made(path) => ("made", path.as_ref()),
        };
        Json {
            command: "prove",
            ok: true,
            file: self.input.display().to_string(),
            bytes: self.bytes,
            digest: run.digest.to_string(),
            proof: self.output.display().to_string(),
            partitions: *partitions,
            setup: SETUP,
            insecure: true,
            key: JsonKey {
                identity: hex::encode(keys.identity),
                origin,
                cached_in: cached_in.map(|path| path.display().to_string()),
                seconds: keys.seconds,
            },
            backend: self.plan.chosen.name,
            backend_why: &self.plan.chosen.why,
            threads: self.budget.threads,
            seconds: self.seconds,
            proving_seconds: *proving_seconds,
            verify_seconds: run.verify_seconds,
            stages: json_stages(&run.stages),
            memory: JsonMemory {
                budget_bytes: self.budget.line.bytes.0,
                source: self.budget.line.source.to_string(),
                machine_bytes: self.budget.machine.0,
                ledger_bytes: self.budget.ledger.0,
                ledger_peak_bytes: ledger_peak(&self.done.run.ledger).0,
                resident_peak_bytes: self.resident_peak.map(|bytes| bytes.0),
                in_flight_peak: run.in_flight_peak,
                devices: json_cards(&self.plan.chosen.cards, &self.done.run.ledger),
                classes: self
                    .class_peaks()
                    .map(|(class, peak, partition)| JsonClass {
                        class: class.name(),
                        peak_bytes: peak.0,
                        partition_bytes: partition.map(|bytes| bytes.0),
                    })
                    .collect(),
            },
        }
    }
}

fn percent(part: Bytes, whole: Bytes) -> f64 {
    100.0 * part.0 as f64 / whole.0.max(1) as f64
}

#[derive(Serialize)]
struct Json<'a> {
    command: &'a str,
    ok: bool,
    file: String,
    bytes: u64,
    digest: String,
    proof: String,
    partitions: u64,
    setup: &'a str,
    insecure: bool,
    key: JsonKey<'a>,
    backend: &'a str,
    backend_why: &'a str,
    threads: usize,
    seconds: f64,
    proving_seconds: f64,
    verify_seconds: f64,
    stages: Vec<JsonStage>,
    memory: JsonMemory<'a>,
}

#[derive(Serialize)]
struct JsonKey<'a> {
    identity: String,
    origin: &'a str,
    cached_in: Option<String>,
    seconds: f64,
}

#[derive(Serialize)]
struct JsonMemory<'a> {
    budget_bytes: u64,
    source: String,
    machine_bytes: u64,
    ledger_bytes: u64,
    ledger_peak_bytes: u64,
    resident_peak_bytes: Option<u64>,
    in_flight_peak: usize,
    devices: Vec<JsonCard>,
    classes: Vec<JsonClass<'a>>,
}

#[derive(Serialize)]
struct JsonClass<'a> {
    class: &'a str,
    peak_bytes: u64,
    partition_bytes: Option<u64>,
}
