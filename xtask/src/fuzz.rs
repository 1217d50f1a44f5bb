//! `cargo xtask fuzz`: libFuzzer over traces of the ledger's state machine, each compared with the oracle, and over the readers of
//! files, which may neither panic nor make more of a file than what is said for its size.
//!
//! The target lies where cargo-fuzz looks for it (`fuzz/`). Neither cargo-fuzz nor a nightly compiler is needed: without a
//! sanitizer, which safe code does not need, the instrumentation is a matter of stable flags.

use anyhow::{Result, bail};

use crate::sh;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long to look, all targets together.
    #[arg(long, default_value_t = 600)]
    pub(crate) seconds: u64,
    /// One target alone (may be repeated).
    #[arg(long)]
    pub(crate) target: Vec<String>,
    /// Passed on to libFuzzer: a file that it has found, say, to run it again.
    pub(crate) rest: Vec<String>,
}

const INSTRUMENTATION: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";

/// The targets, and the longest input that is tried: a few more than the seeds need.
const TARGETS: [(&str, u32); 7] = [
    ("ledger_trace", 512),
    ("r1cs", 1024),
    ("wtns", 512),
    ("zkey", 8192),
    ("ptau", 8192),
    ("json", 8192),
    ("key", 8192),
];

/// Lets each target look for its share of the time.
pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |name: &str| args.target.is_empty() || args.target.iter().any(|target| target == name);
    if let Some(unknown) = args.target.iter().find(|name| TARGETS.iter().all(|(target, _)| target != name)) {
        bail!("there is no fuzz target `{unknown}`");
    }
    let targets: Vec<_> = TARGETS.into_iter().filter(|(name, _)| wanted(name)).collect();
    let seconds = (args.seconds / targets.len().max(1) as u64).max(1);
    for (name, max_len) in targets {
        fuzz(name, max_len, seconds, &args.rest)?;
    }
    Ok(())
}

fn fuzz(name: &str, max_len: u32, seconds: u64, rest: &[String]) -> Result<()> {
    // With a target of its own, the flags are not for build scripts: nothing there has libFuzzer to report to.
    let host = sh::host()?;
    let mut command = sh::cargo("run --release --manifest-path fuzz/Cargo.toml --bin");
    command.args([name, "--target"]).arg(host);
    sh::add_rustflags(&mut command, INSTRUMENTATION);
    let target = std::env::current_dir()?.join(sh::target_dir()).join("fuzz");
    // What it finds on its way is kept for the next run; the corpus in the repository stays as it is.
    let found = target.join("corpus").join(name);
    let artifacts = target.join("artifacts");
    std::fs::create_dir_all(&found)?;
    std::fs::create_dir_all(&artifacts)?;
    command.env("CARGO_TARGET_DIR", &target).arg("--");
    if rest.is_empty() {
        command.args([format!("-max_total_time={seconds}"), format!("-max_len={max_len}")]);
        // A reader that takes a hundred times its input is a fault as well.
        command.args(["-rss_limit_mb=1024".to_owned(), format!("-artifact_prefix={}/{name}-", artifacts.display())]);
        command.arg(found);
        let seeds = std::path::Path::new("fuzz/corpus").join(name);
        if seeds.is_dir() {
            command.arg(seeds);
        }
    } else {
        command.args(rest);
    }
    sh::run(&mut command)
}
