//! The `plimsoll` command, as a library so that its parts can be tested.
//!
//! | module | what |
//! |---|---|
//! | [`args`], [`exit`], [`console`], [`progress`], [`signals`] | the outside: flags, exit codes, printing, interruption |
//! | [`chain`], [`circuit`] | a file as a chain of partitions; the statement of one |
//! | [`machine`], [`budget`] | memory limits of the machine; from the line to the ledger's limit |
//! | [`key_cache`], [`keys`] | proving keys between runs: loaded, or made again |
//! | [`proving`] | the pipeline |
//! | [`proof_file`], [`verify`] | the result, written and checked |
//! | [`watch`], [`trace`], [`metrics`] | what is seen of a run |
//! | [`circom`], [`inspect`] | keys and witnesses of circom and snarkjs; what a file is |
//! | [`commands`] | the commands, which put all this in order |

use std::panic;

use clap::Parser;
use serde::Serialize;

#[macro_use(mutant)]
extern crate plimsoll;

pub mod args;
pub mod backend;
pub mod budget;
pub mod cards;
pub mod chain;
pub mod circom;
pub mod circuit;
pub mod commands;
pub mod console;
pub mod exit;
pub mod heap;
pub mod inspect;
pub mod key_cache;
pub mod keys;
pub mod metrics;
pub mod progress;
pub mod proof_file;
pub mod proving;
pub mod signals;
pub mod trace;
pub mod verify;
pub mod watch;

pub use plimsoll_profile::sample::machine;

use args::{Cli, Command};
use exit::{Exit, Failure};

/// Runs the command that the process's arguments ask for, reports how it ended, and says the exit code.
pub fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let exit = if e.use_stderr() { Exit::Usage } else { Exit::Success };
            // Where even the usage cannot be printed, the code still tells.
            let _ = e.print();
            return exit;
        }
    };
    let (name, json) = match &cli.command {
        Command::Prove(args) => ("prove", args.json),
        Command::Verify(args) => ("verify", args.json),
        Command::Simulate(args) => ("simulate", args.json),
        Command::Plan(args) => ("plan", args.json),
        Command::Report(args) => ("report", args.json),
        // It always answers in JSON.
        Command::Ctl(_) => ("ctl", true),
        Command::Top(_) => ("top", false),
        Command::Doctor(args) => ("doctor", args.json),
        Command::IcicleProbe { .. } => ("icicle-probe", false),
        Command::Inspect(args) => ("inspect", args.json),
        Command::Setup(args) => ("setup", args.command.json()),
        Command::Completions(_) => ("completions", false),
        Command::Man(_) => ("man", false),
    };
    let result = panic::catch_unwind(|| match &cli.command {
        Command::Prove(args) => commands::prove::run(args),
        Command::Verify(args) => commands::verify::run(args),
        Command::Simulate(args) => commands::simulate::run(args),
        Command::Plan(args) => commands::plan::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Ctl(args) => commands::ctl::run(args),
        Command::Top(args) => commands::top::run(args),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::IcicleProbe { devices } => backend::try_icicle(devices.as_ref()),
        Command::Inspect(args) => commands::inspect::run(args),
        Command::Setup(args) => commands::setup::run(args),
        Command::Completions(args) => commands::completions::run(args),
        Command::Man(args) => commands::completions::man(args),
    });
    // The panic hook has printed what happened.
    let result =
        result.unwrap_or_else(|_| Err(Failure::new(Exit::Internal, "a fault of this program; please report it")));
    match result {
        Ok(()) => Exit::Success,
        Err(failure) => {
            report(name, json, &failure);
            failure.exit
        }
    }
}

/// What `--json` prints when a command fails.
#[derive(Serialize)]
struct FailureReport<'a> {
    command: &'static str,
    ok: bool,
    error: ErrorReport<'a>,
}

#[derive(Serialize)]
struct ErrorReport<'a> {
    kind: &'static str,
    exit_code: u8,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_bytes: Option<u64>,
}

fn report(command: &'static str, json: bool, failure: &Failure) {
    console::note(console::ERROR, "error", &failure.message);
    // What the doctor found is printed already, whichever way it is.
    if json && command != "doctor" && !failure.told {
        let error = ErrorReport {
            kind: failure.exit.kind(),
            exit_code: failure.exit.code(),
            message: &failure.message,
            held_bytes: failure.held.map(|bytes| bytes.0),
        };
        // The exit code and standard error tell it too.
        if let Ok(text) = serde_json::to_string(&FailureReport { command, ok: false, error }) {
            let _ = console::print(text);
        }
    }
}
