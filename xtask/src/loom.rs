//! `cargo xtask loom`: the models in `loom-tests/`, on the shipped code built with `--cfg plimsoll_loom`.

use anyhow::Result;

use crate::sh;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Preemption bound: continuous integration has 2; 0 explores everything (some models take hours: name one).
    #[arg(long, default_value_t = 3)]
    pub(crate) preemptions: usize,
    /// Explore as many also in the models that have fewer otherwise, because they take minutes.
    #[arg(long)]
    pub(crate) exactly: bool,
    /// Passed on to the tests (a filter, say).
    pub(crate) rest: Vec<String>,
}

/// Runs every model.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = sh::cargo("test --release --package loom-tests --tests --");
    // The models share the machine with nobody else while they run; one at a time keeps their timings comparable.
    command.args(["--test-threads", "2"]).args(&args.rest);
    sh::add_rustflags(&mut command, "--cfg plimsoll_loom");
    command.env("CARGO_TARGET_DIR", sh::target_dir().join("loom"));
    if args.preemptions > 0 {
        command.env("LOOM_MAX_PREEMPTIONS", args.preemptions.to_string());
    } else {
        command.env("PLIMSOLL_LOOM_UNBOUNDED", "1");
    }
    if args.exactly {
        command.env("PLIMSOLL_LOOM_EXACTLY", "1");
    }
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    sh::run(&mut command)
}
