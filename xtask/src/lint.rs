//! `cargo xtask lint`: formatting, clippy and documentation, warnings denied.

use anyhow::Result;

use crate::{features, sh};

/// Checks the whole workspace.
pub(crate) fn run() -> Result<()> {
    sh::run(&mut sh::cargo("fmt --all --check"))?;
    let features = features::light()?;
    let mut clippy = sh::cargo("clippy --workspace --all-targets --quiet --features");
    sh::run(clippy.args([&features, "--", "-D", "warnings"]))?;
    // And as they are without those features.
    sh::run(&mut sh::cargo("clippy -p plimsoll -p plimsoll-tower --quiet -- -D warnings"))?;
    let mut doc = sh::cargo("doc --workspace --no-deps --document-private-items --quiet --features");
    doc.arg(&features);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    sh::run(&mut doc)
}
