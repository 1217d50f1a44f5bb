//! Seconds a proof against memory: every policy at every budget, on the same jobs.

use plimsoll::pipeline::pacing::Pacing;

use crate::engine::{End, Options, Progress, simulate};
use crate::policies::Return;
use crate::workload::{Policy, PolicyKind, Workload};

/// One policy's curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The policy.
    pub policy: &'static str,
    /// From the smallest budget up.
    pub points: Vec<Point>,
}

/// What a policy reaches with so much memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The memory that it may use.
    pub budget: u64,
    /// What it was set to, where the memory is not its setting.
    pub setting: Option<String>,
    /// Seconds a proof in steady state; `None` where it does not get through.
    pub seconds_per_proof: Option<f64>,
    /// What it really held.
    pub host_peak: u64,
}

/// The budgets of a curve: `steps` from the smallest with which every circuit gets through to all of the machine, each larger by
/// the same factor.
pub fn budgets(workload: &Workload, steps: u32) -> Vec<u64> {
    let (least, most) = (crate::plan::smallest_budget(workload), workload.machine.memory - workload.machine.others);
    let steps = steps.max(2);
    let factor = libm::pow(most as f64 / least as f64, 1.0 / f64::from(steps - 1));
    let mut budgets: Vec<u64> = (0..steps)
        .map(|step| ((least as f64 * libm::pow(factor, f64::from(step))) as u64).clamp(least, most))
        .collect();
    (budgets[0], budgets[steps as usize - 1]) = (least, most);
    budgets.dedup();
    budgets
}

/// The curves of all policies, ours first. `events_max` bounds each simulation, and `progress` is told how far each is.
pub fn sweep(workload: &Workload, budgets: &[u64], events_max: u64, progress: &mut dyn FnMut(&Progress)) -> Vec<Curve> {
    let progress = std::cell::RefCell::new(progress);
    let run = |kind: PolicyKind| {
        let mut workload = workload.clone();
        workload.policy = Policy { kind, ..workload.policy.clone() };
        let mut told = |now: &Progress| (progress.borrow_mut())(now);
        simulate(&workload, Options { events_max, progress: Some(&mut told), timeline: None })
    };
    let seconds = |outcome: &crate::Outcome| (outcome.end == End::Done).then_some(outcome.seconds_per_proof_steady);
    let mut curves = Vec::new();
    let (pacing, bypass, urgent_reserve) = match workload.policy.kind {
        PolicyKind::Plimsoll { pacing, bypass, urgent_reserve, .. } => (pacing, bypass, urgent_reserve),
        _ => (Pacing::Auto, plimsoll::Budget::DEFAULT_BYPASS, 0),
    };
    let by_budget: [(&'static str, &dyn Fn(u64) -> PolicyKind); 5] = [
        ("plimsoll", &|budget| PolicyKind::Plimsoll { budget, pacing, bypass, urgent_reserve }),
        ("optimistic-budget", &|budget| PolicyKind::OptimisticBudget { budget, gap: 0 }),
        ("strict-fifo", &|budget| PolicyKind::StrictFifo { budget }),
        ("reserve-or-fail", &|budget| PolicyKind::ReserveOrFail { budget }),
        ("greedy", &|budget| PolicyKind::Greedy { budget }),
    ];
    for (policy, kind) in by_budget {
        let point = |&budget: &u64| {
            let outcome = run(kind(budget));
            Point { budget, setting: None, seconds_per_proof: seconds(&outcome), host_peak: outcome.host_peak }
        };
        curves.push(Curve { policy, points: budgets.iter().map(point).collect() });
    }
    for (policy, back) in [
        ("early-release", Return::Produced),
        ("held-until-delivered", Return::Delivered),
        ("channel", Return::HandedOver),
    ] {
        // These know nothing of memory: with each budget the number of permits is the best whose peak is below it.
        let mut tried = Vec::new();
        for permits in 1..=workload.machine.workers.min(32) {
            let channel = if back == Return::HandedOver { permits } else { 1 };
            let outcome = run(PolicyKind::Permits { permits, back, channel });
            if let Some(seconds) = seconds(&outcome) {
                tried.push((permits, outcome.host_peak, seconds));
            }
        }
        let point = |&budget: &u64| {
            let fit = tried.iter().filter(|entry| entry.1 <= budget);
            match fit.min_by(|one, other| one.2.total_cmp(&other.2)) {
                Some(&(permits, host_peak, seconds)) => {
                    let setting = Some(format!("{permits} permits"));
                    Point { budget, setting, seconds_per_proof: Some(seconds), host_peak }
                }
                None => Point { budget, setting: None, seconds_per_proof: None, host_peak: 0 },
            }
        };
        curves.push(Curve { policy, points: budgets.iter().map(point).collect() });
    }
    curves
}
