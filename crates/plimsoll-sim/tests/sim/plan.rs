//! The planner: formulas and simulation side by side.

use plimsoll_sim::plan::{plan, smallest_budget};
use plimsoll_sim::workload::{Arrivals, Policy, PolicyKind};
use plimsoll_sim::{End, Nanos, Options, simulate};

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
        with.policy = Policy::plimsoll(bytes);
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

/// What arrives more slowly than it is done is held up by nobody but those who ask; and formulas and simulation say the same.
#[test]
fn who_asks_for_little_is_what_holds_it_up() {
    let winning = example("winningpost.toml");
    let mut one = porep(30);
    one.streams[0].arrivals = Arrivals::ClosedLoop(1);
    let mut every = porep(30);
    every.streams[0].arrivals = Arrivals::Every(Nanos(60_000_000_000));
    for (workload, gib, word, off) in [
        (&winning, 8, "arrivals, one every", 0.02),
        (&every, 185, "arrivals, one every 60.00 s", 0.02),
        (&one, 185, "one proof is asked for at a time", 0.1),
        (&porep(150), 300, "the lanes of the device", 0.02),
    ] {
        let plan = plan(workload, gib << 30, 10_000_000, &mut |_| ());
        assert!(plan.bottleneck.contains(word), "{}", plan.bottleneck);
        let formulas = plan.circuits[0].seconds_per_proof.expect("times are known");
        let ratio = plan.simulated.seconds_per_proof_steady / formulas;
        assert!((ratio - 1.0).abs() < off, "{word}: {ratio}");
        let gpu = plan.changes.iter().find(|change| change.what == "one more GPU").expect("there is one");
        assert!(gpu.saves < 0.05 || word.starts_with("the lanes") || word.starts_with("one proof"), "{word}: {gpu:?}");
    }
    // All kinds together, by the bottleneck law.
    let plan = plan(&example("mix.toml"), 240 << 30, 10_000_000, &mut |_| ());
    let together = plan.together.expect("times are known");
    assert!(together.by.contains("arrivals: the last proof of snapdeals"), "{together:?}");
    assert!((plan.simulated.seconds_per_proof / together.seconds_per_proof - 1.0).abs() < 0.05, "{together:?}");
}

/// What is set aside for urgent jobs is nobody else's, also where little is left; and no plan changes it.
#[test]
fn the_smallest_budget_leaves_the_urgent_reserve_alone() {
    let reserve = 30 << 30;
    let with = |budget| {
        let mut workload = porep(2);
        let (bypass, pacing) = (plimsoll::Budget::DEFAULT_BYPASS, Default::default());
        workload.policy = Policy::new(PolicyKind::Plimsoll { budget, pacing, bypass, urgent_reserve: reserve });
        workload
    };
    let least = smallest_budget(&with(0));
    assert_eq!(least, smallest_budget(&porep(2)) + reserve);
    for (bytes, gets_through) in [(least, true), (least - 1, false)] {
        let outcome = simulate(&with(bytes), Options::default());
        assert_eq!(outcome.end == End::Done, gets_through, "{bytes}: {:?}", outcome.end);
        let plan = plan(&with(bytes), bytes, 10_000_000, &mut |_| ());
        assert_eq!(plan.simulated.end == End::Done, gets_through, "{bytes}: {:?}", plan.simulated.end);
    }
}

/// Budgets and workloads at the edge panic nowhere.
#[test]
fn a_budget_below_the_runtime_is_refused() {
    let mut workload = porep(2);
    workload.policy = Policy::plimsoll(1 << 30);
    let mut lines = Vec::new();
    let outcome = plimsoll_sim::record(&workload, Options::default(), &mut lines).expect("a vector takes it");
    assert!(matches!(outcome.end, End::Refused { .. }), "{outcome:?}");
    assert!(lines.ends_with(b"\"}\n") && String::from_utf8_lossy(&lines).contains("\"how\":\"refused\""));
}

/// What is not there when the first proof begins is loaded for it, once.
#[test]
fn a_cold_start_is_the_longest_load() {
    let warm = porep(20);
    let mut cold = warm.clone();
    cold.residencies.iter_mut().for_each(|residency| residency.preloaded = false);
    let first = |workload: &plimsoll_sim::Workload| {
        let formulas = plimsoll_sim::plan::forecast(workload, 0).first;
        (formulas, simulate(workload, Options::default()).proof_first.seconds())
    };
    let (of_warm, of_cold) = (first(&warm), first(&cold));
    assert!((of_cold.0 - of_warm.0 - 15.0).abs() < 1e-9, "{of_warm:?} {of_cold:?}");
    assert!((of_cold.1 - of_warm.1 - 15.0).abs() < 1.5, "{of_warm:?} {of_cold:?}");
    for (formulas, simulated) in [of_warm, of_cold] {
        assert!((simulated / formulas - 1.0).abs() < 0.25, "{simulated} s, {formulas} by the formulas");
    }
}

/// However many proofs there are to be, a plan simulates no more than say something.
#[test]
fn a_plan_of_very_many_proofs_ends() {
    let mut workload = porep(1 << 32);
    workload.circuits[0].parts = 1000;
    let plan = plan(&workload, 300 << 30, 10_000_000, &mut |_| ());
    assert!(plan.shortened.is_some_and(|proofs| proofs <= 5), "{:?}", plan.shortened);
    assert_eq!(plan.simulated.end, End::Done);
}

#[test]
fn every_example_runs() {
    for name in ["windowpost.toml", "snapdeals.toml", "winningpost.toml", "mix.toml"] {
        let workload = example(name);
        let outcome = simulate(&workload, Options::default());
        assert_eq!((&outcome.end, outcome.late), (&End::Done, 0), "{name}: {outcome:?}");
    }
}
