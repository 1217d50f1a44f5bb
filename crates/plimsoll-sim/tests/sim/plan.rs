//! The planner: formulas and simulation side by side.

use plimsoll_sim::plan::{plan, smallest_budget};
use plimsoll_sim::{End, Options, simulate};

use super::support::{GIB, budget, example, porep};

#[test]
fn formulas_and_simulation_agree() {
    for gib in [110, 120, 130, 140, 150, 160, 170, 185, 300] {
        let workload = budget(&porep(150), gib);
        let formulas = plimsoll_sim::plan::forecast(&workload, 0);
        let simulated = simulate(&workload, Options::default());
        let ratio = simulated.seconds_per_proof_steady / formulas.seconds_per_proof.expect("times are known");
        // Where memory sets the pace the formulas know of means and whole jobs, not of how well parts of jobs fit beside
        // each other: one job more or less is what they can be off by, which is much where there is room for three.
        let jobs = formulas.jobs.expect("times are known") as f64;
        let tolerance = if formulas.by_memory { (1.0 / jobs).max(0.2) } else { 0.02 };
        assert!((ratio - 1.0).abs() <= tolerance, "{gib} GiB: {ratio}");
    }
}

/// One job gets through with the smallest budget, and none with a byte less.
#[test]
fn the_smallest_budget_is_the_smallest() {
    let workload = porep(2);
    let least = smallest_budget(&workload);
    let mut with = budget(&workload, 0);
    for (bytes, gets_through) in [(least, true), (least - 1, false)] {
        with.policy = plimsoll_sim::workload::Policy::plimsoll(bytes);
        let outcome = simulate(&with, Options::default());
        assert_eq!(outcome.end == End::Done, gets_through, "{bytes}: {:?}", outcome.end);
    }
}

#[test]
fn a_plan_says_what_would_help() {
    let plan = plan(&budget(&porep(150), 300), 300 << 30, 10_000_000, &mut |_| ());
    let saves = |what: &str| plan.changes.iter().find(|change| change.what == what).expect(what).saves;
    // The device is the drum: another one helps, and so do faster transfers; memory does not.
    assert!(saves("one more GPU") > 0.2 && saves("PCIe twice as fast") > 0.1, "{:?}", plan.changes);
    assert!(saves("64 GiB more memory").abs() < 0.01, "{:?}", plan.changes);
    assert!(plan.enough.is_some_and(|enough| enough as f64 / GIB < 200.0), "{:?}", plan.enough);
}

#[test]
fn every_example_runs() {
    for name in ["windowpost.toml", "snapdeals.toml", "winningpost.toml", "mix.toml"] {
        let workload = example(name);
        let outcome = simulate(&workload, Options::default());
        assert_eq!((&outcome.end, outcome.late), (&End::Done, 0), "{name}: {outcome:?}");
    }
}
