//! What the command line says instead of the file. What would change nothing is an error, not a word that nobody hears.

use plimsoll::Bytes;
use plimsoll::pipeline::Pacing;
use plimsoll_sim::Workload;
use plimsoll_sim::policies::Return;
use plimsoll_sim::workload::{Arrivals, Policy, PolicyKind};

use crate::args::Simulate;
use crate::exit::{Exit, Failure};

fn usage(text: String) -> Failure {
    Failure::new(Exit::Usage, text)
}

/// Changes the workload as the command line says.
pub(super) fn adapt(workload: &mut Workload, args: &Simulate) -> Result<(), Failure> {
    if let Some(seed) = args.seed {
        workload.seed = seed;
    }
    if let Some(lanes) = args.lanes {
        if workload.machine.devices == 0 {
            return Err(usage("--lanes: the machine has no device".into()));
        }
        workload.machine.lanes = lanes;
    }
    for stream in &mut workload.streams {
        if let Some(jobs) = args.jobs {
            stream.arrivals = Arrivals::ClosedLoop(jobs);
        }
        if let (Arrivals::At(times), Some(proofs)) = (&stream.arrivals, args.proofs)
            && proofs > times.len() as u64
        {
            let circuit = &workload.circuits[stream.circuit].name;
            let text = format!(
                "--proofs {proofs}: of {circuit} it is said when {} arrive, and of no more; write less, or add --jobs N",
                times.len()
            );
            return Err(usage(text));
        }
        stream.proofs = args.proofs.unwrap_or(stream.proofs);
    }
    let kind = policy(workload, args)?;
    workload.policy = Policy { kind, ..workload.policy.clone() };
    workload.fits().map_err(|text| Failure::new(Exit::OutOfBudget, text))
}

fn policy(workload: &Workload, args: &Simulate) -> Result<PolicyKind, Failure> {
    let limit = workload.machine.memory - workload.machine.others;
    let before = workload.policy.kind.clone();
    let name = args.policy.as_deref().unwrap_or(before.name());
    let counts = ["early-release", "held-until-delivered", "channel"].contains(&name);
    for (option, given, belongs) in [
        ("--budget", args.budget.is_some(), !counts && name != "unlimited"),
        ("--permits", args.permits.is_some(), counts),
        ("--channel", args.channel.is_some(), counts),
    ] {
        if given && !belongs {
            return Err(usage(format!(
                "{option}: the policy {name} knows none; leave it out, or name another --policy"
            )));
        }
    }
    let budget = args.budget.map(|bytes| bytes.0).or(before.budget()).unwrap_or(limit);
    if budget > limit {
        return Err(usage(format!(
            "--budget {} is more than the machine's {}; write less",
            Bytes(budget),
            Bytes(limit)
        )));
    }
    let (had_permits, had_channel) = match before {
        PolicyKind::Permits { permits, channel, .. } if name == before.name() => (Some(permits), Some(channel)),
        _ => (None, None),
    };
    let permits = |back: Return| {
        let permits = args.permits.or(had_permits).ok_or_else(|| usage(format!("--policy {name} needs --permits")))?;
        // A channel of as many follows the number of permits.
        let had_channel = had_channel.filter(|_| back != Return::HandedOver || args.permits.is_none());
        let all = if back == Return::HandedOver { permits } else { 1 };
        Ok(PolicyKind::Permits { permits, back, channel: args.channel.or(had_channel).unwrap_or(all) })
    };
    Ok(match (name, before) {
        ("plimsoll", PolicyKind::Plimsoll { pacing, bypass, urgent_reserve, .. }) => {
            PolicyKind::Plimsoll { budget, pacing, bypass, urgent_reserve }
        }
        ("plimsoll", _) => {
            let bypass = plimsoll::Budget::DEFAULT_BYPASS;
            PolicyKind::Plimsoll { budget, pacing: Pacing::Auto, bypass, urgent_reserve: 0 }
        }
        ("unlimited", _) => PolicyKind::Unlimited,
        ("early-release", _) => permits(Return::Produced)?,
        ("held-until-delivered", _) => permits(Return::Delivered)?,
        ("channel", _) => permits(Return::HandedOver)?,
        ("optimistic-budget", PolicyKind::OptimisticBudget { gap, .. }) => PolicyKind::OptimisticBudget { budget, gap },
        ("optimistic-budget", _) => PolicyKind::OptimisticBudget { budget, gap: 0 },
        ("strict-fifo", _) => PolicyKind::StrictFifo { budget },
        ("reserve-or-fail", _) => PolicyKind::ReserveOrFail { budget },
        _ => PolicyKind::Greedy { budget },
    })
}
