//! `cargo xtask shuttle`: the tests in `shuttle-tests/`, on the shipped code built with `--cfg plimsoll_shuttle`.

use anyhow::Result;

use crate::sh;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many schedules of each test.
    #[arg(long, default_value_t = 200)]
    pub(crate) schedules: usize,
    /// Passed on to the tests (a filter, say).
    pub(crate) rest: Vec<String>,
}

/// Runs every test. A failure prints its schedule, and how to run that one again.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = sh::cargo("test --release --package shuttle-tests --tests --");
    command.args(&args.rest);
    sh::add_rustflags(&mut command, "--cfg plimsoll_shuttle");
    command.env("CARGO_TARGET_DIR", sh::target_dir().join("shuttle"));
    command.env("SHUTTLE_SCHEDULES", args.schedules.to_string());
    command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    sh::run(&mut command)
}
