//! `cargo xtask mutants`: each deliberate fault in the shipped source is switched on in turn, and the test named for it in
//! `xtask/mutants.txt` must fail; the control, without a fault, must pass.
//!
//! One build has all faults of the form `mutant!("…")`, and a test is told which one through its environment. The few that
//! only the compiler can make (`cfg(plimsoll_mutant = "…")`) are built one by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::tidy::{self, MutantKind};

mod build;
pub(crate) mod wrapper;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these mutants.
    pub(crate) only: Vec<String>,
}

/// One row of the table: a fault, and the test that must catch it.
struct Mutant {
    name: String,
    kind: MutantKind,
    test: Test,
}

/// A test, and how it is built.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    package: String,
    loom: bool,
    /// A test binary (`--test`), or `lib`.
    target: String,
    filter: String,
}

impl Test {
    fn name(&self) -> String {
        format!("{} {} {}", self.package, self.target, self.filter)
    }
}

/// One run of a test: with a fault, or as the control.
struct Trial<'a> {
    mutant: Option<&'a Mutant>,
    test: &'a Test,
    program: PathBuf,
}

const TABLE: &str = "xtask/mutants.txt";

/// Runs the table; an error names every mutant that survived.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut mutants = read_table()?;
    mutants.retain(|mutant| args.only.is_empty() || args.only.contains(&mutant.name));
    ensure!(!mutants.is_empty(), "no such mutant in {TABLE}");
    let trials = build_trials(&mutants)?;

    let controls: Vec<&Trial<'_>> = trials.iter().filter(|trial| trial.mutant.is_none()).collect();
    let mut patience = BTreeMap::new();
    for (trial, (passed, took)) in controls.iter().zip(run_all(&controls, |_| PATIENCE)?) {
        ensure!(passed, "the control fails: `{}` without a mutant", trial.test.name());
        patience.insert(trial.test, (took * 20).clamp(PATIENCE_LEAST, PATIENCE));
    }
    let faulty: Vec<&Trial<'_>> = trials.iter().filter(|trial| trial.mutant.is_some()).collect();
    // The models and the explorers are exact; a test on real threads meets the fault when the threads happen to meet.
    // The verdict names the run that did, so that a test that needs luck is seen and can be made better.
    let mut caught_in = vec![None; faulty.len()];
    for run in 1..=RUNS {
        let left: Vec<usize> = (0..faulty.len()).filter(|&at| caught_in[at].is_none()).collect();
        let trials: Vec<&Trial<'_>> = left.iter().map(|&at| faulty[at]).collect();
        for (at, (passed, _)) in left.into_iter().zip(run_all(&trials, |trial| patience[trial.test])?) {
            caught_in[at] = (!passed).then_some(run);
        }
    }
    let mut survivors = Vec::new();
    for (trial, run) in faulty.iter().zip(caught_in) {
        let Some(mutant) = trial.mutant else { continue };
        let verdict = match run {
            None => "SURVIVED".to_owned(),
            Some(1) => "caught by".to_owned(),
            Some(run) => format!("caught in run {run} by"),
        };
        println!("{:<40} {verdict} {}", mutant.name, trial.test.name());
        survivors.extend(run.is_none().then_some(mutant.name.as_str()));
    }
    ensure!(survivors.is_empty(), "mutants survived: {}", survivors.join(", "));
    println!("{} mutants, all caught", mutants.len());
    Ok(())
}

fn read_table() -> Result<Vec<Mutant>> {
    let in_source = tidy::mutants_in_source()?;
    let text = fs::read_to_string(TABLE).with_context(|| format!("cannot read {TABLE}"))?;
    let rows = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mutants: Vec<Mutant> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [name, package, target, filter, kind] = cells[..] else {
                bail!("{TABLE}: a row has five cells, `name | package | test target | filter | plain or loom`: {row}");
            };
            ensure!(matches!(kind, "plain" | "loom"), "{TABLE}: the last cell is `plain` or `loom`: {row}");
            let kind_in_source =
                in_source.get(name).with_context(|| format!("{TABLE}: `{name}` is not in the source"))?;
            let (package, target, filter) = (package.into(), target.into(), filter.into());
            let test = Test { package, loom: kind == "loom", target, filter };
            Ok(Mutant { name: name.into(), kind: *kind_in_source, test })
        })
        .collect::<Result<_>>()?;
    let in_table: BTreeSet<&String> = mutants.iter().map(|mutant| &mutant.name).collect();
    let missing: Vec<&String> = in_source.keys().filter(|name| !in_table.contains(name)).collect();
    ensure!(missing.is_empty(), "{TABLE}: no row for {missing:?}");
    Ok(mutants)
}

/// Builds everything, and says what is to be run: each control once, then the faults.
fn build_trials(mutants: &[Mutant]) -> Result<Vec<Trial<'_>>> {
    let mut targets: BTreeMap<(&str, bool), BTreeSet<&str>> = BTreeMap::new();
    for Mutant { test, .. } in mutants {
        targets.entry((&test.package, test.loom)).or_default().insert(&test.target);
    }
    let mut switched = BTreeMap::new();
    for ((package, loom), targets) in targets {
        for (target, program) in build::tests(package, loom, &targets, wrapper::Faults::Switched)? {
            switched.insert((package, loom, target), program);
        }
    }
    let find = |test: &Test| {
        let program = switched.get(&(test.package.as_str(), test.loom, test.target.clone()));
        program.cloned().with_context(|| format!("{} has no test target `{}`", test.package, test.target))
    };
    let mut trials = Vec::new();
    for test in mutants.iter().map(|mutant| &mutant.test).collect::<BTreeSet<_>>() {
        trials.push(Trial { mutant: None, test, program: find(test)? });
    }
    for mutant in mutants {
        let test = &mutant.test;
        let program = match mutant.kind {
            MutantKind::Switched => find(test)?,
            MutantKind::Compiled => {
                let target = BTreeSet::from([test.target.as_str()]);
                let mut built =
                    build::tests(&test.package, test.loom, &target, wrapper::Faults::Compiled(&mutant.name))?;
                built.remove(&test.target).context("the target was just built")?
            }
        };
        trials.push(Trial { mutant: Some(mutant), test, program });
    }
    Ok(trials)
}

/// Runs the trials, as many at once as there are cores, each for as long as there is patience; whether its test passed, and how
/// long that took.
fn run_all(trials: &[&Trial<'_>], patience: impl Fn(&Trial<'_>) -> Duration + Sync) -> Result<Vec<(bool, Duration)>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut passed = Vec::new();
        loop {
            // Relaxed: a counter that carries nothing with it.
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(trial) = trials.get(at) else { return passed };
            let started = Instant::now();
            let result = passes(trial, patience(trial));
            passed.push((at, result.map(|passed| (passed, started.elapsed()))));
        }
    };
    let mut results = thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, |n| n.get());
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a trial's panic is its program's"))
            .collect::<Vec<_>>()
    });
    results.sort_by_key(|result| result.0);
    results.into_iter().map(|result| result.1).collect()
}

/// Runs that a fault may survive before it counts as a survivor.
const RUNS: usize = 3;

/// After this a test is taken to hang, which is to fail: some faults are lost wake-ups. Controls take two minutes at most; where
/// one takes less, there is less patience with its faults.
const PATIENCE: Duration = Duration::from_secs(400);

/// However short the control is. Many faults are lost wake-ups, and each that hangs is waited for.
const PATIENCE_LEAST: Duration = Duration::from_secs(20);

/// Whether a trial's test passes.
fn passes(trial: &Trial<'_>, patience: Duration) -> Result<bool> {
    let mut command = build::at_home(&trial.test.package, &trial.program, &patience.as_secs().to_string())?;
    command.arg(&trial.test.filter).env("LOOM_MAX_PREEMPTIONS", "3");
    if let Some(mutant) = trial.mutant.filter(|mutant| mutant.kind == MutantKind::Switched) {
        command.env("PLIMSOLL_MUTANT", &mutant.name);
    }
    let out = command.output().with_context(|| format!("cannot start {}", trial.program.display()))?;
    let text = String::from_utf8_lossy(&out.stdout);
    // A filter that matches nothing passes for ever.
    ensure!(!text.contains("running 0 tests"), "no test matches `{}`", trial.test.name());
    Ok(out.status.success())
}
