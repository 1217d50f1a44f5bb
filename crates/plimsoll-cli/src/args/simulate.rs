//! `plimsoll simulate` and `plimsoll plan`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use plimsoll::Bytes;

pub(super) const SIMULATE_EXAMPLES: &str = "\
Examples:
  plimsoll simulate porep32.toml
  plimsoll simulate porep32.toml --policy early-release --permits 12      dies, as it did
  plimsoll simulate porep32.toml --against porep32.observed.toml          the model beside what was observed
  plimsoll simulate porep32.toml --sweep --json                           seconds a proof against memory, every policy
  plimsoll simulate porep32.toml --trace run.jsonl                        a timeline, as `prove --trace` writes it
  plimsoll simulate --from-trace run.jsonl                                a recorded run once more, in virtual time
  plimsoll simulate --search --worlds 10000                               random worlds, every invariant after every event";

pub(super) const PLAN_EXAMPLES: &str = "\
Examples:
  plimsoll plan porep32.toml
  plimsoll plan porep32.toml --budget 185GiB --json
  plimsoll plan porep32.toml --this-machine      with this machine's memory and cores";

/// `plimsoll simulate`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").required(true).args(["file", "from_trace", "search"]))]
pub struct Simulate {
    /// The workload: a TOML file, see the README of plimsoll-sim
    pub file: Option<PathBuf>,

    /// Another policy than the file's
    #[arg(long, value_name = "NAME", value_parser = plimsoll_sim::workload::PolicyKind::NAMES)]
    pub policy: Option<String>,

    /// All of the prover's host memory, for policies that have a budget
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Bytes>,

    /// How many permits, for policies that count
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub permits: Option<u64>,

    /// How many products the channel before the device holds, for policies that count
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub channel: Option<u64>,

    /// How many workers feed each device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub lanes: Option<u64>,

    /// How many proofs in all, of each kind
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub proofs: Option<u64>,

    /// A closed loop of so many proofs at a time, of each kind
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub jobs: Option<u64>,

    /// What chance starts from
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Print the model beside what was observed
    #[arg(long, value_name = "OBSERVED", conflicts_with_all = ["sweep", "trace", "from_trace", "search", "policy", "budget", "permits", "channel", "lanes", "proofs", "jobs"])]
    pub against: Option<PathBuf>,

    /// Seconds a proof against memory, from the smallest feasible to all of the machine, for every policy
    #[arg(long, conflicts_with_all = ["trace", "from_trace", "search", "policy", "budget", "permits", "channel"])]
    pub sweep: bool,

    /// How many budgets a sweep tries [default: 14]
    // (A requirement that conflicts with what is given is not asked for, so the conflicts are named.)
    #[arg(long, value_name = "N", requires = "sweep", conflicts_with_all = ["against", "from_trace", "search"],
        value_parser = clap::value_parser!(u32).range(2..=200))]
    pub steps: Option<u32>,

    /// Give a run up after so many events [default: 50,000,000; a fifth of that for each of several]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub events_max: Option<u64>,

    /// Write a timeline to this file, as `prove --trace` does
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,

    /// Replay a recorded run instead of a workload
    ///
    /// Its times are the recorded ones, and chance has no part in it.
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["search", "seed"])]
    pub from_trace: Option<PathBuf>,

    /// Search random worlds for trouble, and check every invariant after every event
    #[arg(long, conflicts_with_all = [
        "trace", "policy", "budget", "permits", "channel", "lanes", "proofs", "jobs", "events_max",
    ])]
    pub search: bool,

    /// How many worlds to search; their seeds count up from --seed [default: 1000]
    #[arg(long, value_name = "N", requires = "search", conflicts_with_all = ["file", "from_trace"],
        value_parser = clap::value_parser!(u64).range(1..))]
    pub worlds: Option<u64>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `plimsoll plan`.
#[derive(Args, Debug)]
pub struct Plan {
    /// The workload: a TOML file, see the README of plimsoll-sim
    pub file: PathBuf,

    /// The budget to ask about; by default the file's, or all of the machine
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Bytes>,

    /// With this machine's memory and cores instead of the file's
    #[arg(long)]
    pub this_machine: bool,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}
