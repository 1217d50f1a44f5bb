//! `cargo xtask miri`: undefined behaviour in `plimsoll`'s one file with `unsafe`.

use anyhow::{Result, bail};

use crate::sh;

/// Runs the tests of the one file with `unsafe` under miri; the rest of the pool would take it an hour.
pub(crate) fn run() -> Result<()> {
    if !sh::is_installed("cargo", &["+nightly", "miri", "--version"]) {
        bail!("miri is not installed: `rustup toolchain install nightly --component miri`");
    }
    let mut command = std::process::Command::new("cargo");
    command.args(["+nightly", "miri", "test", "--package", "plimsoll", "--lib", "pool::job"]);
    command.env("CARGO_TARGET_DIR", sh::target_dir().join("miri"));
    // Workers that are parked when the process ends are no leak.
    command.env("MIRIFLAGS", "-Zmiri-ignore-leaks -Zmiri-disable-isolation");
    sh::run(&mut command)
}
