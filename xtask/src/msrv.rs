//! `cargo xtask msrv`: the promise of `rust-version` in the workspace manifest, kept with that very toolchain.

use std::{fs, process::Command};

use anyhow::{Context, Result, bail};

use crate::sh;

/// Checks every crate that others depend on with the stated toolchain.
pub(crate) fn run() -> Result<()> {
    let manifest = fs::read_to_string("Cargo.toml").context("cannot read Cargo.toml")?;
    let stated = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .context("Cargo.toml states no rust-version")?
        .trim_matches('"');
    let default = Command::new("rustc").arg("--version").output().context("cannot start rustc")?;
    let mut command = Command::new("cargo");
    // `cargo +version` must be asked of rustup's own cargo, without what the cargo that runs this task has set.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
    if !String::from_utf8_lossy(&default.stdout).starts_with(&format!("rustc {stated}.")) {
        let toolchain = format!("{stated}.0");
        if !sh::is_installed("rustup", &["run", &toolchain, "rustc", "--version"]) {
            bail!("Rust {toolchain} is not installed: `rustup toolchain install {toolchain}`");
        }
        command.arg(format!("+{toolchain}")).env("CARGO_TARGET_DIR", sh::target_dir().join("msrv"));
    }
    sh::run(command.args(["check", "--quiet", "--workspace", "--locked"]))
}
