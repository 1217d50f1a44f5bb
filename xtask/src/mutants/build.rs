//! Building the tests that mutants are tried on.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::wrapper::{self, Faults};
use crate::{features, sh};

/// Builds test targets of a package, and says where each of them is. A build that fails is an error, not a catch.
pub(super) fn tests(
    package: &str,
    loom: bool,
    targets: &BTreeSet<&str>,
    faults: Faults<'_>,
) -> Result<BTreeMap<String, PathBuf>> {
    let mut command = sh::cargo("test --no-run --message-format json-render-diagnostics --package");
    command.arg(package).stderr(Stdio::piped());
    let features = features::light_of(package)?;
    // Models are built without: nothing of a feature's is in them.
    if !loom && !features.is_empty() {
        command.args(["--features", &features]);
    }
    if loom {
        command.arg("--release");
        sh::add_rustflags(&mut command, "--cfg plimsoll_loom");
        command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    }
    // The folders of the ordinary tests and of the models: everything but the members themselves has been compiled there.
    command.env("CARGO_TARGET_DIR", if loom { sh::target_dir().join("loom") } else { sh::target_dir() });
    command.env("RUSTC_WORKSPACE_WRAPPER", wrapper::link(faults)?);
    for target in targets {
        match *target {
            "lib" => command.arg("--lib"),
            target => command.args(["--test", target]),
        };
    }
    let out = command.output().context("cannot start cargo")?;
    let log = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "`{package}` does not build with {faults:?}: {log}");
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.lines().filter_map(|line| executable(&serde_json::from_str(line).ok()?)).collect())
}

/// The name and the program of a test target, if `message` tells of one.
fn executable(message: &Value) -> Option<(String, PathBuf)> {
    let program = message["executable"].as_str()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let target = &message["target"];
    let is_lib = target["kind"].as_array()?.iter().any(|kind| kind != "test" && kind != "bin" && kind != "example");
    let name = if is_lib { "lib" } else { target["name"].as_str()? };
    is_test.then(|| (name.to_owned(), PathBuf::from(program)))
}

/// A command that runs `program` where cargo would, in the folder of its package, for so many seconds at most.
pub(super) fn at_home(package: &str, program: &Path, seconds: &str) -> Result<Command> {
    let short = package.strip_prefix("plimsoll-").unwrap_or(package);
    let folders = [Path::new("crates").join(package), PathBuf::from(package)];
    let folder = folders.into_iter().find(|folder| folder.is_dir()).unwrap_or_else(|| PathBuf::from(short));
    let folder = folder.canonicalize().with_context(|| format!("cannot find the folder of `{package}`"))?;
    let mut command = Command::new("timeout");
    command.arg(seconds).arg(program.canonicalize().context("a program that was just built is gone")?);
    command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder);
    Ok(command)
}
