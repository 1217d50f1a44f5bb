//! `cargo xtask perfetto TRACE`: what `plimsoll report --perfetto` makes of a trace, loaded with Python's `perfetto` package: its
//! parser of Perfetto's own format (and its trace processor, where that can be downloaded) must find the same in it as is in the
//! trace.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::sh;

/// What to load.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A trace, such as `plimsoll prove FILE --trace t.jsonl` writes.
    trace: PathBuf,
    /// Where the files and the Python environment go.
    #[arg(long, default_value = "target/perfetto")]
    folder: PathBuf,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.folder)?;
    let folder = fs::canonicalize(&args.folder)?;
    let python = folder.join("venv/bin/python");
    if !sh::is_installed(&python, &["-c", "import perfetto"]) {
        sh::run(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")))?;
        sh::run(Command::new(&python).args(["-m", "pip", "install", "-q", "perfetto"]))?;
    }
    let (packets, json) = (folder.join("trace.pftrace"), folder.join("trace.json"));
    for file in [&packets, &json] {
        let mut report = sh::cargo("run -q -p plimsoll-cli -- report --perfetto");
        sh::run(report.arg(file).arg(&args.trace))?;
    }
    sh::run(Command::new(&python).arg("xtask/perfetto.py").arg(&args.trace).arg(&packets).arg(&json))
}
