//! The model against what was observed: one set of parameters for all rows.

use plimsoll_sim::workload::{Judged, Observed};
use plimsoll_sim::{Options, simulate};

use super::support::{example, path};

/// Seconds a proof within a tenth, the peak within fifteen hundredths; at most three rows are said not to fit, with the cause.
#[test]
fn the_model_gives_what_was_observed() {
    let workload = example("porep32.toml");
    let observed = Observed::read(&path("porep32.observed.toml"), &workload).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((observed.tolerance, observed.rows.len()), ((0.10, 0.15), 12));
    let mut judged = Vec::new();
    for row in &observed.rows {
        let outcome = simulate(&row.apply(&workload), Options::default());
        let of = observed.judge(row, &outcome);
        assert!(!of.is_outside(), "{}: {}", row.name, of.wrong.join("; "));
        assert!(!of.is_said_unfit || !of.fits(), "{} is said not to fit, and fits", row.name);
        assert!(row.unfit.as_ref().is_none_or(|cause| cause.len() > 40), "{}: the cause is not told", row.name);
        judged.push(of);
    }
    let (_, unfit, outside) = Judged::count(&judged);
    assert!(outside == 0 && unfit <= Judged::UNFIT_MAX, "{unfit} rows do not fit");
}

/// A row of a run that was killed is judged as every other: when, with how many queued, and with how much.
#[test]
fn a_killed_row_is_judged_like_the_rest() {
    let workload = example("porep32.toml");
    let with = |from: &str, to: &str| {
        let text = std::fs::read_to_string(path("porep32.observed.toml")).expect("it is there");
        assert!(text.contains(from), "{from}");
        let observed = Observed::parse("o.toml", &text.replacen(from, to, 1), &workload)?;
        let row = &observed.rows[1];
        Ok::<_, plimsoll_sim::WorkloadError>(observed.judge(row, &simulate(&row.apply(&workload), Options::default())))
    };
    let judged = |from, to| with(from, to).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(judged("killed_after = 8", "killed_after = 13").wrong, [""; 0]);
    assert_eq!(judged("queued = 28", "queued = 28").wrong, ["killed after 13 proofs, not 8"]);
    assert_eq!(judged("killed_after = 8\nqueued = 28", "killed_after = 13\nqueued = 40").wrong.len(), 1);
    assert!(judged("killed_after = 8\nqueued = 28", "").fits(), "what is not told is not judged");
    assert_eq!(judged("killed = true\nkilled_after = 8\nqueued = 28", "").wrong.len(), 1);
    let error = with("killed = true\nkilled_after = 8", "killed_after = 8").expect_err("it was not killed").to_string();
    assert!(error.contains("a run that was not killed"), "{error}");
}
