//! `cargo xtask test`: what the README names.

use anyhow::Result;

use crate::{sh, tools};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on to the test runner (a filter, say).
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) rest: Vec<String>,
}

/// Runs every test of the workspace, then the examples in the documentation.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(nextest) = tools::find("cargo-nextest") {
        let mut command = std::process::Command::new(nextest);
        command.args(["nextest", "run", "--workspace"]).args(&args.rest);
        sh::run(&mut command)?;
    } else {
        eprintln!("note: cargo-nextest is not installed (`cargo xtask tools` does it); using cargo test");
        sh::run(sh::cargo("test --workspace --lib --bins --tests").args(&args.rest))?;
    }
    sh::run(&mut sh::cargo("test --workspace --doc --quiet"))?;
    // What is behind features that are off in the workspace's own build.
    sh::run(&mut sh::cargo("test -p plimsoll -p plimsoll-tower --all-features --quiet"))
}
