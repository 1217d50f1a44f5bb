//! `cargo xtask soak`: random traces of the ledger's state machine against its oracle, then random threads; or
//! `cargo xtask soak pipeline`: many jobs through stages of every kind, with everything that can go wrong.

use anyhow::Result;

use crate::sh;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is to be tried.
    #[arg(value_enum, default_value_t)]
    pub(crate) what: What,
    /// Jobs of `pipeline`.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) jobs: u64,
    /// Events of traces.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) events: usize,
    /// Seconds of threads.
    #[arg(long, default_value_t = 20)]
    pub(crate) seconds: u64,
    /// Threads at a time.
    #[arg(long, default_value_t = 8)]
    pub(crate) threads: u64,
    /// The seed that an earlier run has printed.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    /// The ledger: traces, then threads.
    #[default]
    Ledger,
    /// The pipeline: the test of which a short run is among the ordinary ones.
    Pipeline,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    match args.what {
        What::Ledger => ledger(args),
        What::Pipeline => pipeline(args),
    }
}

fn pipeline(args: &Args) -> Result<()> {
    let mut command = sh::cargo("test --release --package plimsoll --test soak_pipeline -- --nocapture");
    command.env("PLIMSOLL_SOAK_JOBS", args.jobs.to_string());
    command.env("PLIMSOLL_SOAK_SEED", args.seed.unwrap_or(1).to_string());
    command.env("CARGO_TARGET_DIR", sh::target_dir().join("soak"));
    sh::run(&mut command)
}

/// Both kinds of run.
fn ledger(args: &Args) -> Result<()> {
    // With debug assertions: they hold the shortcuts of the state machine against the long way.
    let mut command = sh::cargo("run --release --package plimsoll-soak --");
    command.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true").env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_TARGET_DIR", sh::target_dir().join("soak"));
    command.args(["--events", &args.events.to_string(), "--seconds", &args.seconds.to_string()]);
    command.args(["--threads", &args.threads.to_string()]);
    if let Some(seed) = args.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    sh::run(&mut command)
}
