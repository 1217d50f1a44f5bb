//! `cargo xtask ci`: everything that continuous integration checks, cheapest first.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::{deny, fuzz, gpu, interop, lint, loom, msrv, mutants, package, shuttle, soak, test, tidy};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out a step (may be repeated): its name as printed.
    #[arg(long)]
    skip: Vec<String>,
    /// Also the steps that take many minutes: shuttle, soak, fuzz.
    #[arg(long)]
    deep: bool,
}

/// Runs the steps in order and stops at the first failure.
pub(crate) fn run(args: &Args) -> Result<()> {
    type Step = (&'static str, fn() -> Result<()>);
    let steps: [Step; 13] = [
        ("tidy", tidy::run),
        ("lint", lint::run),
        ("test", || test::run(&test::Args { rest: Vec::new() })),
        ("interop", || interop::run(&interop::Args { quick: true })),
        ("deny", deny::run),
        ("loom", || loom::run(&loom::Args { preemptions: 2, exactly: false, rest: Vec::new() })),
        ("shuttle", || shuttle::run(&shuttle::Args { schedules: 100, rest: Vec::new() })),
        ("soak", || {
            soak::run(&soak::Args {
                what: soak::What::Ledger,
                jobs: 0,
                events: 100_000,
                seconds: 5,
                threads: 8,
                seed: None,
            })
        }),
        ("fuzz", || fuzz::run(&fuzz::Args { seconds: 70, target: Vec::new(), rest: Vec::new() })),
        ("mutants", || mutants::run(&mutants::Args { only: Vec::new() })),
        ("package", || package::run(false)),
        ("msrv", msrv::run),
        ("cuda", || gpu::run(&gpu::Args { compile: true })),
    ];
    let deep = ["shuttle", "soak", "fuzz"];
    let mut report = Vec::new();
    for (name, step) in steps {
        if args.skip.iter().any(|skipped| skipped == name) || (!args.deep && deep.contains(&name)) {
            report.push(format!("{name}: left out"));
            continue;
        }
        eprintln!("== {name}");
        let start = Instant::now();
        step().with_context(|| format!("step `{name}` failed"))?;
        report.push(format!("{name}: ok, {:.0} s", start.elapsed().as_secs_f64()));
    }
    println!("{}", report.join("\n"));
    Ok(())
}
