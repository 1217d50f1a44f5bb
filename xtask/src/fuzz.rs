//! `cargo xtask fuzz`: libFuzzer over traces of the ledger's state machine, each compared with the oracle.
//!
//! The target lies where cargo-fuzz looks for it (`fuzz/`). Neither cargo-fuzz nor a nightly compiler is needed: without a
//! sanitizer, which safe code does not need, the instrumentation is a matter of stable flags.

use anyhow::Result;

use crate::sh;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long to look.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Passed on to libFuzzer: a file that it has found, say, to run it again.
    pub(crate) rest: Vec<String>,
}

const INSTRUMENTATION: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";

/// Looks for a trace on which state machine and oracle differ.
pub(crate) fn run(args: &Args) -> Result<()> {
    // With a target of its own, the flags are not for build scripts: nothing there has libFuzzer to report to.
    let host = sh::host()?;
    let mut command = sh::cargo("run --release --manifest-path fuzz/Cargo.toml --bin ledger_trace --target");
    command.arg(host);
    sh::add_rustflags(&mut command, INSTRUMENTATION);
    let target = std::env::current_dir()?.join(sh::target_dir()).join("fuzz");
    // What it finds on its way is kept for the next run; the corpus in the repository stays as it is.
    let found = target.join("corpus");
    let artifacts = target.join("artifacts");
    std::fs::create_dir_all(&found)?;
    std::fs::create_dir_all(&artifacts)?;
    command.env("CARGO_TARGET_DIR", &target).arg("--");
    if args.rest.is_empty() {
        command.args([format!("-max_total_time={}", args.seconds), "-max_len=512".into()]);
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.arg(found).arg("fuzz/corpus/ledger_trace");
    } else {
        command.args(&args.rest);
    }
    sh::run(&mut command)
}
