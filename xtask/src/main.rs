//! Development tasks, one file per command: `cargo xtask <task>`.

mod ci;
mod cost;
mod deny;
mod diagnose;
mod features;
mod fuzz;
mod gpu;
mod icicle;
mod interop;
mod lint;
mod loom;
mod metrics;
mod miri;
mod msrv;
mod mutants;
mod package;
mod page;
mod perfetto;
mod sh;
mod shuttle;
mod soak;
mod test;
mod tidy;
mod tools;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Development tasks of the plimsoll workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// All tests: unit, property, end-to-end (cargo nextest where it is installed) and documentation examples.
    Test(test::Args),
    /// Everything that continuous integration checks.
    Ci(ci::Args),
    /// rustfmt, clippy and rustdoc, warnings denied.
    Lint,
    /// The loom models of the shipped code.
    Loom(loom::Args),
    /// The shuttle tests: dozens of tasks over the shipped shell, in random interleavings that can be replayed.
    Shuttle(shuttle::Args),
    /// Random traces against the oracle and random threads, or (`soak pipeline`) jobs with everything that can go wrong.
    Soak(soak::Args),
    /// The fuzz target: traces that a fuzzer finds, against the oracle.
    Fuzz(fuzz::Args),
    /// Builds the program and the script that check and measure on a CUDA device (with nvcc, or five Python wheels).
    Gpu(gpu::Args),
    /// Conformance and figures on the ICICLE that is installed.
    Icicle(icicle::Args),
    /// circom and snarkjs against ours: each side verifies what the other proves (needs node and npm).
    Interop(interop::Args),
    /// Builds each mutant and checks that the suite catches it.
    Mutants(mutants::Args),
    /// The dashboard and the alert rules: documented names, and what promtool says.
    Metrics,
    /// miri on the code that uses `unsafe` (needs a nightly toolchain with miri).
    Miri,
    /// Licences, bans and sources of dependencies (cargo-deny), and unused dependencies (cargo-shear).
    Deny,
    /// What it costs to be watched, and the peak under ten budgets.
    Cost(cost::Args),
    /// Programs with planted faults, as processes with real memory: is each verdict right?
    Diagnose(diagnose::Args),
    /// The page that `plimsoll report` makes of a trace, in headless Chromium: no errors, and screenshots to look at.
    Page(page::Args),
    /// What `plimsoll report --perfetto` writes, loaded with the Python package `perfetto`.
    Perfetto(perfetto::Args),
    /// Packages every publishable crate and builds it from its package.
    Package,
    /// Builds with the minimum supported Rust version.
    Msrv,
    /// House rules that no other tool checks.
    Tidy,
    /// Installs the pinned tools that `ci` needs into target/tools.
    Tools,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Not `main() -> Result`: a backtrace of this program would bury the line that says what failed.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    mutants::wrapper::compile_if_called_as_one()?;
    sh::enter_workspace_root()?;
    match Args::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Ci(args) => ci::run(&args),
        Task::Lint => lint::run(),
        Task::Loom(args) => loom::run(&args),
        Task::Shuttle(args) => shuttle::run(&args),
        Task::Soak(args) => soak::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Gpu(args) => gpu::run(&args),
        Task::Icicle(args) => icicle::run(&args),
        Task::Interop(args) => interop::run(&args),
        Task::Mutants(args) => mutants::run(&args),
        Task::Metrics => metrics::run(),
        Task::Miri => miri::run(),
        Task::Deny => deny::run(),
        Task::Cost(args) => cost::run(&args),
        Task::Diagnose(args) => diagnose::run(&args),
        Task::Page(args) => page::run(&args),
        Task::Perfetto(args) => perfetto::run(&args),
        Task::Package => package::run(true),
        Task::Msrv => msrv::run(),
        Task::Tidy => tidy::run(),
        Task::Tools => tools::run(),
    }
}
