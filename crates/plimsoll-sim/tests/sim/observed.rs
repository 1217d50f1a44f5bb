//! The model against what was observed: one set of parameters for all rows.

use plimsoll_sim::workload::Observed;
use plimsoll_sim::{End, Options, simulate};

use super::support::{GIB, example, path};

/// Seconds a proof within a tenth, the peak within fifteen hundredths; at most three rows are said not to fit, with the cause.
#[test]
fn the_model_gives_what_was_observed() {
    let workload = example("porep32.toml");
    let observed = Observed::read(&path("porep32.observed.toml"), &workload).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((observed.tolerance, observed.rows.len()), ((0.10, 0.15), 12));
    let mut unfit = 0;
    for row in &observed.rows {
        let outcome = simulate(&row.apply(&workload), Options::default());
        let mut wrong = Vec::new();
        let killed = outcome.end == End::OutOfMemory;
        if killed != row.killed {
            wrong.push(format!("ends with {:?}", outcome.end));
        }
        let mut within = |what: &str, seen: Option<f64>, got: f64, tolerance: f64| {
            if let Some(seen) = seen.filter(|seen| (got / seen - 1.0).abs() > tolerance) {
                wrong.push(format!("{what} is {got:.1}, and {seen:.1} was observed"));
            }
        };
        within("seconds a proof", row.seconds_per_proof, outcome.seconds_per_proof, 0.10);
        within("the peak in GiB", row.host_peak.map(|peak| peak as f64 / GIB), outcome.host_peak as f64 / GIB, 0.15);
        within("the queue", row.queued.map(|queued| queued as f64), outcome.backlog as f64, 0.15);
        if row.killed_after == Some(0) && outcome.proofs > 0 {
            wrong.push(format!("killed after {} proofs, not before the first", outcome.proofs));
        }
        match &row.unfit {
            None => assert!(wrong.is_empty(), "{}: {}", row.name, wrong.join("; ")),
            Some(cause) => {
                assert!(!wrong.is_empty(), "{} is said not to fit, and fits", row.name);
                assert!(cause.len() > 40, "{}: the cause is not told", row.name);
                unfit += 1;
            }
        }
    }
    assert!(unfit <= 3, "{unfit} rows do not fit");
}
