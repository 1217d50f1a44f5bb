//! `cargo xtask package`: every publishable crate is packaged, and built from what was packaged.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::sh;

/// The crates that are published, in the order of their dependencies.
const CRATES: [&str; 11] = [
    "plimsoll",
    "plimsoll-capi",
    "plimsoll-check",
    "plimsoll-tower",
    "plimsoll-groth16",
    "plimsoll-circom",
    "plimsoll-cuda",
    "plimsoll-icicle",
    "plimsoll-profile",
    "plimsoll-sim",
    "plimsoll-cli",
];

/// Packages and verifies them together, so that those not yet published resolve to one another.
/// Without `build` they are only packaged, which finds what a manifest lacks; building them takes minutes.
pub(crate) fn run(build: bool) -> Result<()> {
    forget_earlier_packages()?;
    let mut command = sh::cargo("package --quiet --locked --allow-dirty");
    if !build {
        command.arg("--no-verify");
    }
    for name in CRATES {
        command.args(["--package", name]);
    }
    sh::run(&mut command)
}

/// Cargo unpacks what it has packaged as if it came from a registry, and an unpacked version is not looked at again: a second
/// run would build today's crates against an earlier run's.
fn forget_earlier_packages() -> Result<()> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let Some(home) = home.or_else(|| env::home_dir().map(|home| home.join(".cargo"))) else { return Ok(()) };
    let ours =
        |name: &str| CRATES.iter().any(|ours| name.starts_with(&format!("{ours}-{}", env!("CARGO_PKG_VERSION"))));
    for kind in ["src", "cache"] {
        for registry in read_dir(&home.join("registry").join(kind)) {
            for package in read_dir(&registry) {
                if package.file_name().is_some_and(|name| ours(&name.to_string_lossy())) {
                    let removed =
                        if package.is_dir() { fs::remove_dir_all(&package) } else { fs::remove_file(&package) };
                    removed.with_context(|| format!("cannot remove {}", package.display()))?;
                }
            }
        }
    }
    Ok(())
}

fn read_dir(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
