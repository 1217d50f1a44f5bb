//! What a simulated trace says of how it was made: what is in no event, and has to be known to make it again.

use plimsoll::pipeline::pacing::Pacing;
use serde::{Deserialize, Serialize};

use super::{Policy, PolicyKind, Workload};
use crate::policies::Return;

/// The settings of a run, as its trace has them: the fields of `simulated` in `docs/trace.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The workload's name.
    #[serde(default)]
    pub workload: String,
    /// Who decided.
    policy: PolicySetting,
    /// How many stages ran on the CPU at a time.
    pub workers: u64,
    /// How many jobs could be on a device.
    pub lanes: u64,
    /// Host memory that the prover could have.
    pub host_bytes: u64,
    /// Host memory that the trace does not tell of.
    pub runtime_bytes: u64,
    /// The kinds of jobs that go before others, or may use the urgent reserve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub circuits: Vec<CircuitSetting>,
}

/// How a circuit's jobs rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircuitSetting {
    /// The circuit: its jobs are called by it, and a number.
    pub name: String,
    /// Higher goes first.
    pub priority: i32,
    /// It may use the urgent reserve.
    pub urgent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PolicySetting {
    kind: String,
    early_free: bool,
    asking: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pacing: Option<PacingSetting>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bypass: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    urgent_reserve: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permits: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gap_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PacingSetting {
    Auto,
    Unpaced,
    Fixed(u64),
}

impl Setting {
    /// Those of a workload.
    pub fn of(workload: &Workload) -> Setting {
        let Workload { machine, circuits, .. } = workload;
        let ranked = circuits.iter().filter(|circuit| circuit.urgent || circuit.priority != 0);
        let ranked = ranked.map(|circuit| CircuitSetting {
            name: circuit.name.to_string(),
            priority: circuit.priority,
            urgent: circuit.urgent,
        });
        Setting {
            workload: workload.name.clone(),
            policy: PolicySetting::of(&workload.policy),
            workers: machine.workers,
            lanes: machine.lanes,
            host_bytes: machine.memory - machine.others,
            runtime_bytes: machine.runtime,
            circuits: ranked.collect(),
        }
    }

    /// The policy, if it is one that this version knows, with numbers that make sense.
    pub fn policy(&self) -> Option<Policy> {
        let PolicySetting {
            early_free, asking, budget, pacing, bypass, urgent_reserve, permits, channel, gap_ns, ..
        } = self.policy;
        const COUNT_MAX: u64 = 1 << 20;
        let count = |count: Option<u64>| count.filter(|count| (1..=COUNT_MAX).contains(count));
        let bytes = |bytes: Option<u64>| bytes.filter(|bytes| *bytes <= super::SIZE_MAX);
        let counted = |back| Some(PolicyKind::Permits { permits: count(permits)?, back, channel: count(channel)? });
        let kind = match self.policy.kind.as_str() {
            "plimsoll" => PolicyKind::Plimsoll {
                budget: bytes(budget)?,
                pacing: match pacing? {
                    PacingSetting::Auto => Pacing::Auto,
                    PacingSetting::Unpaced => Pacing::Unpaced,
                    PacingSetting::Fixed(jobs) => Pacing::Fixed(jobs.max(1)),
                },
                bypass: bypass?,
                urgent_reserve: bytes(urgent_reserve)?,
            },
            "unlimited" => PolicyKind::Unlimited,
            "early-release" => counted(Return::Produced)?,
            "held-until-delivered" => counted(Return::Delivered)?,
            "channel" => counted(Return::HandedOver)?,
            "optimistic-budget" => PolicyKind::OptimisticBudget { budget: bytes(budget)?, gap: gap_ns? },
            "strict-fifo" => PolicyKind::StrictFifo { budget: bytes(budget)? },
            "reserve-or-fail" => PolicyKind::ReserveOrFail { budget: bytes(budget)? },
            "greedy" => PolicyKind::Greedy { budget: bytes(budget)? },
            _ => return None,
        };
        Some(Policy { kind, early_free, asking: asking.clamp(1, COUNT_MAX) })
    }
}

impl PolicySetting {
    fn of(policy: &Policy) -> PolicySetting {
        let mut setting = PolicySetting {
            kind: policy.kind.name().to_owned(),
            early_free: policy.early_free,
            asking: policy.asking,
            budget: policy.kind.budget(),
            pacing: None,
            bypass: None,
            urgent_reserve: None,
            permits: None,
            channel: None,
            gap_ns: None,
        };
        match policy.kind {
            PolicyKind::Plimsoll { pacing, bypass, urgent_reserve, .. } => {
                setting.pacing = Some(match pacing {
                    Pacing::Auto => PacingSetting::Auto,
                    Pacing::Unpaced => PacingSetting::Unpaced,
                    Pacing::Fixed(jobs) => PacingSetting::Fixed(jobs),
                });
                (setting.bypass, setting.urgent_reserve) = (Some(bypass), Some(urgent_reserve));
            }
            PolicyKind::Permits { permits, channel, .. } => {
                (setting.permits, setting.channel) = (Some(permits), Some(channel));
            }
            PolicyKind::OptimisticBudget { gap, .. } => setting.gap_ns = Some(gap),
            _ => {}
        }
        setting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_comes_back_as_it_was() {
        let mut workload = Workload::parse(
            "w.toml",
            "[machine]\nmemory = \"8 GiB\"\nworkers = 4\n[[circuit]]\nname = \"p\"\nurgent = true\n[[circuit.stage]]\nname = \"s\"\n\
             time = \"2 s\"\n[[arrivals]]\ncircuit = \"p\"\nbatch = true\n",
        )
        .expect("a workload");
        let (budget, gap) = (7 << 30, 5);
        let permits = |back| PolicyKind::Permits { permits: 3, back, channel: 2 };
        for kind in [
            PolicyKind::Plimsoll { budget, pacing: Pacing::Fixed(4), bypass: 2, urgent_reserve: 1 << 30 },
            PolicyKind::Unlimited,
            permits(Return::Produced),
            permits(Return::Delivered),
            permits(Return::HandedOver),
            PolicyKind::OptimisticBudget { budget, gap },
            PolicyKind::StrictFifo { budget },
            PolicyKind::ReserveOrFail { budget },
            PolicyKind::Greedy { budget },
        ] {
            workload.policy = Policy { kind, early_free: false, asking: 9 };
            let text = serde_json::to_string(&Setting::of(&workload)).expect("JSON");
            let read: Setting = serde_json::from_str(&text).expect("what was written");
            assert_eq!(read.policy().as_ref(), Some(&workload.policy), "{text}");
            assert!(read.circuits[0].urgent);
        }
    }
}
