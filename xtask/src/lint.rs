//! `cargo xtask lint`: formatting, clippy and documentation, warnings denied.

use anyhow::Result;

use crate::sh;

/// Checks the whole workspace.
pub(crate) fn run() -> Result<()> {
    sh::run(&mut sh::cargo("fmt --all --check"))?;
    sh::run(&mut sh::cargo("clippy --workspace --all-targets --quiet -- -D warnings"))?;
    sh::run(&mut sh::cargo(
        "clippy -p plimsoll -p plimsoll-tower --all-features --all-targets --quiet -- -D warnings",
    ))?;
    let mut doc = sh::cargo("doc --workspace --no-deps --document-private-items --quiet");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    sh::run(&mut doc)
}
