//! `cargo xtask deny`: licences, bans and sources, then unused dependencies. The advisory database is not asked: it
//! cannot be fetched offline, and a build must not turn red on a day when nothing changed.

use std::process::Command;

use anyhow::{Context, Result};

use crate::{sh, tools};

/// Runs both tools.
pub(crate) fn run() -> Result<()> {
    let missing = |name| format!("{name} is not installed: run `cargo xtask tools`");
    let deny = tools::find("cargo-deny").with_context(|| missing("cargo-deny"))?;
    sh::run(Command::new(deny).args(["--log-level", "error", "--workspace", "check", "licenses", "bans", "sources"]))?;
    let shear = tools::find("cargo-shear").with_context(|| missing("cargo-shear"))?;
    sh::run(&mut Command::new(shear))
}
