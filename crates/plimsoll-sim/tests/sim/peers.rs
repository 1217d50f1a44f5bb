//! Other engines' policies on machines and in workloads that they were not made for: nothing hangs, and nothing leaks.

use plimsoll_sim::policies::Return;
use plimsoll_sim::workload::{Policy, PolicyKind};
use plimsoll_sim::{End, Options, Workload, simulate};

use super::support::example;

const GIB: u64 = 1 << 30;

/// Every policy, with numbers that suit a small machine of 100 GiB.
fn policies(budget: u64) -> Vec<PolicyKind> {
    let permits = |back| PolicyKind::Permits { permits: 5, back, channel: 1 };
    vec![
        permits(Return::Produced),
        permits(Return::Delivered),
        permits(Return::HandedOver),
        PolicyKind::OptimisticBudget { budget, gap: 0 },
        PolicyKind::StrictFifo { budget },
        PolicyKind::ReserveOrFail { budget },
        PolicyKind::Greedy { budget },
        PolicyKind::Unlimited,
    ]
}

fn stages(stages: &[&str], failing: &str) -> Workload {
    let stage = |(at, on): (usize, &&str)| {
        format!(
            "[[circuit.stage]]\nname = \"s{at}\"\non = \"{on}\"\ntime = \"1 s\"\n{failing}\n\
             takes = [{{ class = \"c{at}\", bytes = \"1 GiB\" }}]\n"
        )
    };
    let stages: String = stages.iter().enumerate().map(stage).collect();
    let text = format!(
        "[machine]\nmemory = \"100 GiB\"\nworkers = 8\ndevices = 3\nlanes = 2\n[[circuit]]\nname = \"p\"\nparts = 2\n{stages}\
         [[arrivals]]\ncircuit = \"p\"\nclosed_loop = 7\nproofs = 100\n"
    );
    Workload::parse("w.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Wherever a job begins, visits devices, and fails: what it was given comes back.
#[test]
fn what_a_job_was_given_comes_back_wherever_it_runs() {
    for way in [
        &["device", "worker"][..],
        &["lane", "device", "worker"],
        &["device"],
        &["worker"],
        &["outside", "worker"],
        &["worker", "device", "worker", "device", "worker"],
        &["worker", "lane", "device", "outside"],
    ] {
        for failing in ["", "failing = 0.2"] {
            let workload = stages(way, failing);
            for kind in policies(40 * GIB) {
                let mut workload = workload.clone();
                workload.policy = Policy::new(kind);
                let outcome = simulate(&workload, Options::default());
                let all = outcome.proofs + outcome.proofs_lost;
                assert_eq!((&outcome.end, all), (&End::Done, 100), "{way:?} {failing} {:?}", workload.policy.kind);
                assert_eq!(outcome.proofs_lost == 0, failing.is_empty(), "{way:?}");
            }
        }
    }
}

/// With room for two jobs of five stages on devices, what the policies count never exceeds the budget: nothing is given back
/// before it is gone.
#[test]
fn nothing_is_given_back_between_two_visits_of_a_device() {
    let workload = stages(&["worker", "device", "worker", "device", "worker"], "");
    let budget = 10 * GIB;
    for kind in policies(budget).into_iter().filter(|kind| kind.budget().is_some()) {
        let mut workload = workload.clone();
        workload.policy = Policy::new(kind);
        let outcome = simulate(&workload, Options::default());
        assert_eq!(outcome.end, End::Done, "{:?}", workload.policy.kind);
        assert!(outcome.host_peak <= budget, "{:?}: {}", workload.policy.kind, outcome.host_peak);
    }
}

/// Work that is thrown away again and again is an end of its own, on every example that is shipped.
#[test]
fn nothing_hangs_that_is_thrown_away() {
    for name in ["porep32.toml", "mix.toml", "windowpost.toml", "snapdeals.toml", "winningpost.toml"] {
        let mut workload = example(name);
        let limit = workload.machine.memory - workload.machine.others;
        for budget in [limit, limit / 2] {
            workload.policy = Policy::new(PolicyKind::ReserveOrFail { budget });
            let outcome = simulate(&workload, Options { events_max: 2_000_000, ..Options::default() });
            let ends = matches!(outcome.end, End::Done | End::NoProgress { .. });
            assert!(ends, "{name} with {budget}: {outcome:?}");
        }
    }
}

/// A budget below one job with all residencies is refused, and not waited for.
#[test]
fn a_budget_below_one_job_is_refused() {
    let workload = stages(&["worker", "device"], "");
    for kind in policies(2 * GIB - 1).into_iter().filter(|kind| kind.budget().is_some()) {
        let mut workload = workload.clone();
        workload.policy = Policy::new(kind);
        let outcome = simulate(&workload, Options::default());
        assert!(matches!(&outcome.end, End::Refused { why } if why.contains("too small")), "{:?}", outcome.end);
    }
}
