//! `cargo xtask soak`: random traces of the ledger's state machine against its oracle, then random threads.

use anyhow::Result;

use crate::sh;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
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

/// Runs both.
pub(crate) fn run(args: &Args) -> Result<()> {
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
