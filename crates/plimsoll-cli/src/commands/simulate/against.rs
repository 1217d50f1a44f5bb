//! `plimsoll simulate FILE --against OBSERVED`.

use std::path::Path;

use plimsoll::Bytes;
use plimsoll_sim::workload::{Judged, Observed};
use plimsoll_sim::{End, Options, Workload, simulate};
use serde_json::json;

use super::{events_max, outcome_json, told::Told};
use crate::args::Simulate;
use crate::console::{self, Align, Grid};
use crate::exit::{Exit, Failure};

/// Prints the model beside what was observed, every row judged by the same rules.
pub(super) fn run(args: &Simulate, workload: &Workload, observed: &Path) -> Result<(), Failure> {
    let file = observed.display().to_string();
    let observed = Observed::read(observed, workload).map_err(|error| Failure::new(Exit::BadInput, error))?;
    let mut grid = Grid::new(&[
        ("setting", Align::Left),
        ("s/proof seen", Align::Right),
        ("model", Align::Right),
        ("off", Align::Right),
        ("peak seen", Align::Right),
        ("model", Align::Right),
        ("off", Align::Right),
        ("", Align::Left),
    ]);
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    let mut told = Told::new("simulating");
    for row in &observed.rows {
        let mut tell = |step: &plimsoll_sim::Progress| told.tell(step);
        let options = Options { events_max: events_max(args), progress: Some(&mut tell), timeline: None };
        let outcome = simulate(&row.apply(workload), options);
        let judged = observed.judge(row, &outcome);
        let ended = match outcome.end {
            End::OutOfMemory => format!("killed after {} proofs, {} queued", outcome.proofs, outcome.backlog),
            End::Done => String::new(),
            _ => outcome.in_words(),
        };
        let mut words = vec![ended];
        match &row.unfit {
            Some(cause) if judged.fits() => words.push(format!("fits, and is said not to: {}", one_line(cause))),
            Some(cause) => words.push(format!("unfit ({}): {}", judged.wrong.join(", "), one_line(cause))),
            None if !judged.fits() => words.push(format!("outside of the tolerance: {}", judged.wrong.join(", "))),
            None => {}
        }
        words.retain(|words| !words.is_empty());
        let or = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        let percent = |off: Option<f64>| or(off.map(|off| format!("{:+.1} %", 100.0 * off)));
        grid.add([
            row.name.clone(),
            or(row.seconds_per_proof.map(|seconds| format!("{seconds:.1}"))),
            if outcome.end == End::Done { format!("{:.1}", outcome.seconds_per_proof) } else { "–".to_owned() },
            percent(judged.seconds_off),
            or(row.host_peak.map(|peak| Bytes(peak).to_string())),
            Bytes(outcome.host_peak).to_string(),
            percent(judged.peak_off),
            words.join("; "),
        ]);
        rows.push(json!({
            "setting": row.name,
            "observed": {
                "seconds_per_proof": row.seconds_per_proof,
                "host_peak_bytes": row.host_peak,
                "killed": row.killed,
                "killed_after": row.killed_after,
                "queued": row.queued,
            },
            "simulated": outcome_json(&outcome),
            "seconds_off": judged.seconds_off,
            "peak_off": judged.peak_off,
            "fits": judged.fits(),
            "outside": judged.wrong,
            "unfit": row.unfit.as_deref().map(one_line),
        }));
        all.push(judged);
    }
    let (fit, unfit, outside) = Judged::count(&all);
    let (seconds, peak) = observed.tolerance;
    let ok = outside == 0 && unfit <= Judged::UNFIT_MAX;
    if args.json {
        let counts = json!({ "fit": fit, "unfit": unfit, "outside": outside });
        console::print(
            json!({ "command": "simulate", "ok": ok, "workload": workload.name, "rows": rows, "counts": counts }),
        )?;
    } else {
        let sum = format!(
            "{fit} of {} rows within {:.0} % of the seconds and {:.0} % of the peak, {unfit} said to be unfit, {outside} outside",
            rows.len(),
            100.0 * seconds,
            100.0 * peak
        );
        console::print(format!("{grid}\n\n{sum}"))?;
    }
    if ok {
        return Ok(());
    }
    let text = if outside > 0 {
        format!(
            "{file}: the model is outside of the tolerance in {outside} rows; calibrate it, or say why a row is unfit"
        )
    } else {
        format!(
            "{file}: {unfit} rows are said to be unfit, which are more than {}; calibrate the model",
            Judged::UNFIT_MAX
        )
    };
    Err(Failure { told: true, ..Failure::new(Exit::Unfinished, text) })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
