//! What both kinds of `prove` tell about a run, how it is seen from outside, and how they end one.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::pipeline::StageStats;
use plimsoll::{Bytes, Ledger, Space};
use plimsoll_profile::live::{self, Serving};
use plimsoll_profile::watch::{Seen, Watching};
use serde::Serialize;
use serde_json::json;

use crate::budget::Budget;
use crate::cards::Cards;
use crate::console::{self, Align, Grid, Rows};
use crate::exit::{Exit, Failure};
use crate::machine::Machine;

/// How long the last bytes may take to come back when all work has ended.
const QUIESCE: Duration = Duration::from_secs(1);

/// What the ledger holds when all work has ended: what the last jobs held may be on its way back from another thread.
pub(super) fn still_held(ledger: &Ledger) -> Bytes {
    let _ = ledger.quiesce(QUIESCE);
    ledger.snapshot().space(Space::HOST).map_or(Bytes::ZERO, |space| space.held)
}

/// A run's socket, from its beginning on: what is seen of the process is there once somebody watches it.
pub(super) struct Socket {
    seen: Arc<OnceLock<Seen>>,
    #[expect(dead_code, reason = "open for as long as there is something to see")]
    serving: Serving,
}

impl Socket {
    /// Opens it.
    pub(super) fn open(ledger: &Ledger, path: &Path) -> Result<Self, Failure> {
        let seen: Arc<OnceLock<Seen>> = Arc::default();
        let (later, of) = (seen.clone(), ledger.clone());
        let server = live::Server::new(ledger).on("snapshot", move |_| {
            let mut answer = json!({"snapshot": live::picture(&of.snapshot())});
            if let Some(seen) = later.get() {
                answer["process"] = json!(seen.process());
                answer["verdict"] = json!(seen.diagnosis());
            }
            Ok(answer)
        });
        let serving = server.serve(path).map_err(|e| Failure::new(Exit::Output, format!("--socket: {e}")))?;
        Ok(Self { seen, serving })
    }

    /// Shows what is seen from now on.
    pub(super) fn show(&self, watching: &Watching) {
        // Whoever watches first is shown.
        let _ = self.seen.set(watching.seen());
    }
}

/// Warns if the line is beyond what there is.
pub(super) fn warn_if_more_than_there_is(asked: Option<Bytes>, budget: &Budget, machine: &Machine) {
    if let Some(limit) = machine.smallest_limit().filter(|limit| asked.is_some_and(|line| line > limit.bytes)) {
        let (line, there) = (budget.line.bytes, limit.bytes);
        console::warn(format!(
            "--memory {line} is more than there is ({there}, {}); the kernel may end this",
            limit.source
        ));
    }
}

/// The most that was held.
pub(super) fn ledger_peak(ledger: &Snapshot) -> Bytes {
    ledger.space(Space::HOST).map_or(Bytes::ZERO, |space| space.peak)
}

/// What each card held at the most, and of how much.
pub(super) fn card_peaks<'a>(cards: &'a Cards, ledger: &'a Snapshot) -> impl Iterator<Item = (u16, Bytes, Bytes)> + 'a {
    let numbers = cards.numbers().into_iter();
    numbers.filter_map(|number| ledger.space(Space::device(number)).map(|space| (number, space.peak, space.limit)))
}

/// A row for each card.
pub(super) fn add_cards(rows: &mut Rows, cards: &Cards, ledger: &Snapshot) {
    for (number, peak, limit) in card_peaks(cards, ledger) {
        rows.add(format!("device {number}"), format!("{peak} at most of {limit}"));
    }
}

/// The cards as `--json` has them.
pub(super) fn json_cards(cards: &Cards, ledger: &Snapshot) -> Vec<JsonCard> {
    let card =
        |(device, peak, limit): (u16, Bytes, Bytes)| JsonCard { device, peak_bytes: peak.0, budget_bytes: limit.0 };
    card_peaks(cards, ledger).map(card).collect()
}

/// A card's memory, without the tables that are always there.
#[derive(Serialize)]
pub(super) struct JsonCard {
    device: u16,
    peak_bytes: u64,
    budget_bytes: u64,
}

/// Warns if the process went beyond the line.
pub(super) fn warn_if_beyond(budget: &Budget, resident_peak: Option<Bytes>) {
    if let Some(peak) = resident_peak
        && peak > budget.line.bytes
    {
        console::warn(format!("the process held {peak}, more than the budget; please report it"));
    }
}

/// A row for each stage.
pub(super) fn stage_grid(stages: &[StageStats]) -> Grid {
    let mut grid = Grid::new(&[
        ("stage", Align::Left),
        ("runs", Align::Right),
        ("each", Align::Right),
        ("together", Align::Right),
        ("waited", Align::Right),
    ]);
    for stage in stages {
        let waited = format!("{:.2} s", stage.wait_seconds);
        add_stage(&mut grid, stage.stage, stage.count, stage.run_seconds, waited);
    }
    grid
}

/// Adds a row.
pub(super) fn add_stage(grid: &mut Grid, name: &str, runs: u64, run_seconds: f64, waited: String) {
    let each = format!("{:.1} ms", run_seconds / runs.max(1) as f64 * 1e3);
    grid.add([name.to_owned(), runs.to_string(), each, format!("{run_seconds:.2} s"), waited]);
}

/// A stage as `--json` has it.
#[derive(Serialize)]
pub(super) struct JsonStage {
    stage: &'static str,
    runs: u64,
    run_seconds: f64,
    wait_seconds: f64,
}

/// All of them.
pub(super) fn json_stages(stages: &[StageStats]) -> Vec<JsonStage> {
    let stage = |s: &StageStats| JsonStage {
        stage: s.stage,
        runs: s.count,
        run_seconds: s.run_seconds,
        wait_seconds: s.wait_seconds,
    };
    stages.iter().map(stage).collect()
}
