//! `cargo xtask test`: what the README names.

use anyhow::Result;

use crate::{features, sh, tools};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on to the test runner (a filter, say).
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) rest: Vec<String>,
}

/// Runs every test of the workspace, with the light features that are off by default, then the examples in the documentation.
pub(crate) fn run(args: &Args) -> Result<()> {
    let features = features::light()?;
    if let Some(nextest) = tools::find("cargo-nextest") {
        let mut command = std::process::Command::new(nextest);
        command
            .args(["nextest", "run", "--workspace", "--lib", "--bins", "--tests", "--features", &features])
            .args(&args.rest);
        sh::run(&mut command)?;
    } else {
        eprintln!("note: cargo-nextest is not installed (`cargo xtask tools` does it); using cargo test");
        sh::run(sh::cargo("test --workspace --lib --bins --tests --features").arg(&features).args(&args.rest))?;
    }
    sh::run(sh::cargo("test --workspace --doc --quiet --features").arg(&features))
}
