//! `cargo xtask package`: every publishable crate is packaged, and built from what was packaged.

use anyhow::Result;

use crate::sh;

/// The crates that are published, in the order of their dependencies.
const CRATES: [&str; 6] =
    ["plimsoll", "plimsoll-capi", "plimsoll-check", "plimsoll-tower", "plimsoll-groth16", "plimsoll-cli"];

/// Packages and verifies them together, so that those not yet published resolve to one another.
pub(crate) fn run() -> Result<()> {
    let mut command = sh::cargo("package --quiet --locked --allow-dirty");
    for name in CRATES {
        command.args(["--package", name]);
    }
    sh::run(&mut command)
}
