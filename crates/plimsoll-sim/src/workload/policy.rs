//! Who decides what may start.

use plimsoll::pipeline::pacing::Pacing;

use crate::policies::Return;

/// A policy, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Which one.
    pub kind: PolicyKind,
    /// Peers: what stages on the device free of host memory is freed then, not only with the job.
    pub early_free: bool,
    /// How many jobs ask at a time, of those that have arrived, circuit by circuit.
    pub asking: u64,
}

/// Which policy.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyKind {
    /// Plimsoll's own: the ledger and the pacer, as they are shipped.
    Plimsoll {
        /// The line: all that the prover holds of host memory, its runtime included.
        budget: u64,
        /// How the work in progress is limited.
        pacing: Pacing,
        /// K: how many later admissions may pass a waiting one.
        bypass: u32,
        /// What of the budget is set aside for urgent jobs.
        urgent_reserve: u64,
    },
    /// Everything starts at once.
    Unlimited,
    /// So many permits, and a channel before the device.
    Permits {
        /// How many.
        permits: u64,
        /// When one comes back.
        back: Return,
        /// How many products the channel holds.
        channel: u64,
    },
    /// A byte budget that is added to first and looked at then.
    OptimisticBudget {
        /// The budget, residencies and runtime included.
        budget: u64,
        /// Nanoseconds between its steps.
        gap: u64,
    },
    /// A byte budget, strictly in order of arrival.
    StrictFifo {
        /// The budget, residencies and runtime included.
        budget: u64,
    },
    /// A byte budget that is counted as it is used; who finds no room fails and begins again.
    ReserveOrFail {
        /// The budget, residencies and runtime included.
        budget: u64,
    },
    /// A byte budget, the largest first.
    Greedy {
        /// The budget, residencies and runtime included.
        budget: u64,
    },
}

impl PolicyKind {
    /// The name, as files and commands write it.
    pub fn name(&self) -> &'static str {
        match self {
            PolicyKind::Plimsoll { .. } => "plimsoll",
            PolicyKind::Unlimited => "unlimited",
            PolicyKind::Permits { back: Return::Produced, .. } => "early-release",
            PolicyKind::Permits { back: Return::Delivered, .. } => "held-until-delivered",
            PolicyKind::Permits { back: Return::HandedOver, .. } => "channel",
            PolicyKind::OptimisticBudget { .. } => "optimistic-budget",
            PolicyKind::StrictFifo { .. } => "strict-fifo",
            PolicyKind::ReserveOrFail { .. } => "reserve-or-fail",
            PolicyKind::Greedy { .. } => "greedy",
        }
    }

    /// The names of all policies.
    pub const NAMES: [&str; 9] = [
        "plimsoll",
        "unlimited",
        "early-release",
        "held-until-delivered",
        "channel",
        "optimistic-budget",
        "strict-fifo",
        "reserve-or-fail",
        "greedy",
    ];

    /// The byte budget, where there is one.
    pub fn budget(&self) -> Option<u64> {
        match *self {
            PolicyKind::Plimsoll { budget, .. }
            | PolicyKind::OptimisticBudget { budget, .. }
            | PolicyKind::StrictFifo { budget }
            | PolicyKind::ReserveOrFail { budget }
            | PolicyKind::Greedy { budget } => Some(budget),
            PolicyKind::Unlimited | PolicyKind::Permits { .. } => None,
        }
    }
}
