//! `plimsoll simulate`.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use indicatif::HumanCount;
use plimsoll::Bytes;
use plimsoll_sim::{End, Options, Outcome, Workload, from_trace, search, simulate, sweep};
use serde_json::{Value, json};

use crate::args::Simulate;
use crate::console::{self, Align, Grid, Rows, WARNING};
use crate::exit::{Exit, Failure};

mod against;
mod setting;
pub mod told;

use self::told::Told;

/// More than this ends a run: a minute or two, and never for ever.
const EVENTS_MAX: u64 = 50_000_000;

/// How many budgets a sweep tries, and how many worlds a search, unless the command line says otherwise.
const STEPS: u32 = 14;
const WORLDS: u64 = 1000;

/// Runs it.
pub fn run(args: &Simulate) -> Result<(), Failure> {
    if args.search {
        return search_worlds(args);
    }
    if let Some(trace) = &args.from_trace {
        return replay(args, trace);
    }
    let file = args.file.as_deref().expect("the command line asks for one of the three");
    let mut workload = read(file)?;
    setting::adapt(&mut workload, args)?;
    if let Some(observed) = &args.against {
        return against::run(args, &workload, observed);
    }
    if args.sweep {
        return sweep_budgets(args, &workload);
    }
    let outcome = simulated(args, &workload)?;
    let host = workload.machine.memory - workload.machine.others;
    if args.json {
        let mut object = outcome_json(&outcome);
        object["command"] = json!("simulate");
        object["ok"] = json!(outcome.end == End::Done);
        object["workload"] = json!(workload.name);
        object["policy"] = json!(workload.policy.kind.name());
        console::print(object)?;
    } else {
        console::print(rows(&workload, &outcome, host))?;
    }
    finished(&outcome)
}

/// Reads a workload file.
pub fn read(file: &Path) -> Result<Workload, Failure> {
    Workload::read(file).map_err(|error| Failure::new(Exit::BadInput, error))
}

/// More than this ends a run.
fn events_max(args: &Simulate) -> u64 {
    // One of many is not to take minutes.
    let several = args.sweep || args.against.is_some();
    args.events_max.unwrap_or(if several { EVENTS_MAX / 5 } else { EVENTS_MAX })
}

/// Runs it, with a timeline into a file if one is asked for.
fn simulated(args: &Simulate, workload: &Workload) -> Result<Outcome, Failure> {
    let mut told = Told::new("simulating");
    let mut tell = |step: &plimsoll_sim::Progress| told.tell(step);
    let options = Options { events_max: events_max(args), timeline: None, progress: Some(&mut tell) };
    let Some(path) = &args.trace else {
        return Ok(simulate(workload, options));
    };
    for input in [&args.file, &args.from_trace].into_iter().flatten() {
        if is_same_file(path, input) {
            let text = format!("{}: would overwrite what is read; name another file for --trace", path.display());
            return Err(Failure::new(Exit::Usage, text));
        }
    }
    let failure = |error: std::io::Error| {
        Failure::new(Exit::Output, format!("{}: cannot write the timeline: {error}", path.display()))
    };
    let file = BufWriter::new(File::create(path).map_err(failure)?);
    plimsoll_sim::record(workload, options, file).map_err(failure)
}

/// Whether two names are of one file, whatever links there are.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| std::fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    of(one).is_some_and(|one| of(other) == Some(one))
}

/// What a run that did not come to its end is to a script.
fn finished(outcome: &Outcome) -> Result<(), Failure> {
    if outcome.end == End::Done {
        return Ok(());
    }
    let fix = match outcome.end {
        End::TooManyEvents => "; --events-max N allows more",
        _ => "",
    };
    let text = format!("the simulated run did not come to its end: {}{fix}", outcome.in_words());
    Err(Failure { told: true, ..Failure::new(Exit::Unfinished, text) })
}

fn ended(outcome: &Outcome) -> String {
    let words = outcome.in_words();
    if outcome.end == End::Done { words } else { format!("{WARNING}{words}{WARNING:#}") }
}

fn rows(workload: &Workload, outcome: &Outcome, host: u64) -> Rows {
    let mut rows = Rows::default();
    rows.add("workload", &workload.name)
        .add("policy", workload.policy.kind.name())
        .add("ended", ended(outcome))
        .add(
            "seconds a proof",
            format!("{:.2}, and {:.2} in steady state", outcome.seconds_per_proof, outcome.seconds_per_proof_steady),
        )
        .add("host memory", format!("{} at most, of {}", Bytes(outcome.host_peak), Bytes(host)));
    if let Some(charged) = outcome.charged_peak {
        rows.add("charged", format!("{} at most", Bytes(charged)));
    }
    let most: Vec<String> =
        outcome.host_peak_by_class.iter().map(|(name, n)| format!("{name} {}", Bytes(*n))).collect();
    rows.add("made of", most.join(", "));
    if workload.machine.devices > 0 {
        rows.add("devices", format!("computing {:.1} % of the time", 100.0 * outcome.device_busy));
        rows.add("queue", format!("{} products at most", outcome.backlog_peak));
    }
    rows.add("a proof takes", format!("{} half of the time, {} at most", outcome.proof_median, outcome.proof_longest));
    for (what, count) in
        [("late", outcome.late), ("lost", outcome.proofs_lost), ("thrown away and begun again", outcome.thrown_away)]
    {
        if count > 0 {
            rows.add(what, count.to_string());
        }
    }
    rows
}

/// An outcome as JSON.
pub fn outcome_json(outcome: &Outcome) -> Value {
    let classes: Vec<Value> =
        outcome.host_peak_by_class.iter().map(|(class, bytes)| json!({ "class": class, "bytes": bytes })).collect();
    json!({
        "end": outcome.end.name(),
        "ended": outcome.in_words(),
        "seconds": outcome.time.seconds(),
        "proofs": outcome.proofs,
        "proofs_lost": outcome.proofs_lost,
        "jobs": outcome.jobs,
        "late": outcome.late,
        "seconds_per_proof": outcome.seconds_per_proof,
        "seconds_per_proof_steady": outcome.seconds_per_proof_steady,
        "host_peak_bytes": outcome.host_peak,
        "host_peak_by_class": classes,
        "charged_peak_bytes": outcome.charged_peak,
        "device_peak_bytes": outcome.device_peak,
        "device_busy": outcome.device_busy,
        "backlog_peak": outcome.backlog_peak,
        "backlog": outcome.backlog,
        "wait_longest_seconds": outcome.wait_longest.seconds(),
        "proof_first_seconds": outcome.proof_first.seconds(),
        "proof_median_seconds": outcome.proof_median.seconds(),
        "proof_p99_seconds": outcome.proof_p99.seconds(),
        "proof_longest_seconds": outcome.proof_longest.seconds(),
        "thrown_away": outcome.thrown_away,
        "events": outcome.events,
        "tokens": outcome.tokens,
    })
}

fn sweep_budgets(args: &Simulate, workload: &Workload) -> Result<(), Failure> {
    let budgets = sweep::budgets(workload, args.steps.unwrap_or(STEPS));
    let mut told = Told::new("sweeping");
    let curves = sweep::sweep(workload, &budgets, events_max(args), &mut |step| told.tell(step));
    if args.json {
        let point = |point: &sweep::Point| {
            json!({
                "budget_bytes": point.budget,
                "setting": point.setting,
                "seconds_per_proof": point.seconds_per_proof,
                "host_peak_bytes": point.host_peak,
            })
        };
        let curve = |curve: &sweep::Curve| json!({ "policy": curve.policy, "points": curve.points.iter().map(point).collect::<Vec<_>>() });
        let curves: Vec<Value> = curves.iter().map(curve).collect();
        return console::print(
            json!({ "command": "simulate", "ok": true, "workload": workload.name, "curves": curves }),
        );
    }
    let heads = curves.iter().map(|curve| (curve.policy, Align::Right));
    let mut grid = Grid::new(&std::iter::once(("budget", Align::Right)).chain(heads).collect::<Vec<_>>());
    for (at, &budget) in budgets.iter().enumerate() {
        let cell = |curve: &sweep::Curve| match curve.points[at].seconds_per_proof {
            Some(seconds) => format!("{seconds:.1}"),
            None => "–".to_owned(),
        };
        grid.add_row(std::iter::once(Bytes(budget).to_string()).chain(curves.iter().map(cell)).collect());
    }
    console::print(format!("Seconds a proof in steady state, by memory.\n{grid}"))
}

fn replay(args: &Simulate, trace: &Path) -> Result<(), Failure> {
    let bad = |error: &dyn std::fmt::Display| Failure::new(Exit::BadInput, format!("{}: {error}", trace.display()));
    let file = File::open(trace).map_err(|error| bad(&error))?;
    let replay = from_trace::from_trace(BufReader::new(file)).map_err(|error| bad(&error))?;
    let mut workload = replay.workload.clone();
    if let Some(budget) = args.budget {
        workload.machine.memory = workload.machine.memory.max(budget.0);
    }
    setting::adapt(&mut workload, args)?;
    let outcome = simulated(args, &workload)?;
    let held = replay.peak(&outcome);
    let (time, peak) = replay.compare(&outcome);
    if args.json {
        let mut object = outcome_json(&outcome);
        object["command"] = json!("simulate");
        object["ok"] = json!(outcome.end == End::Done);
        object["recorded"] = json!({
            "seconds": replay.time as f64 * 1e-9,
            "host_peak_bytes": replay.host_peak,
            "jobs": replay.jobs,
            "left_out": replay.left_out,
        });
        object["time_ratio"] = json!(time);
        object["peak_ratio"] = json!(peak);
        console::print(object)?;
        return finished(&outcome);
    }
    let mut rows = Rows::default();
    rows.add("recorded", format!("{} jobs in {}", replay.jobs, plimsoll_sim::Nanos(replay.time)))
        .add("replayed", ended(&outcome))
        .add("time", format!("{:.1} % of the recorded", 100.0 * time))
        .add(
            "memory",
            format!("{} at most, {:.1} % of the recorded {}", Bytes(held), 100.0 * peak, Bytes(replay.host_peak)),
        );
    if replay.left_out > 0 {
        rows.add("left out", format!("{} jobs that did not come to their end", replay.left_out));
    }
    console::print(rows)?;
    finished(&outcome)
}

fn search_worlds(args: &Simulate) -> Result<(), Failure> {
    let first = args.seed.unwrap_or(1);
    let worlds = args.worlds.unwrap_or(WORLDS);
    let mut told = Told::new("searching");
    let findings = search::search(first, worlds, |found| {
        let more = || format!("{} events, {} broken", HumanCount(found.events), found.broken.len());
        told.tell_count(found.worlds, worlds, "worlds", &more);
    });
    drop(told);
    if args.json {
        let broken: Vec<Value> =
            findings.broken.iter().map(|(seed, why)| json!({ "seed": seed, "broke": why })).collect();
        console::print(json!({
            "command": "simulate",
            "ok": findings.broken.is_empty(),
            "worlds": findings.worlds,
            "events": findings.events,
            "broken": broken,
            "worst_backlog": { "products": findings.worst_backlog.0, "seed": findings.worst_backlog.1 },
            "longest_wait": { "seconds": findings.longest_wait.0.seconds(), "seed": findings.longest_wait.1 },
            "most_passed": { "times": findings.most_passed.0, "seed": findings.most_passed.1 },
        }))?;
    } else {
        let mut rows = Rows::default();
        rows.add("worlds", format!("{} from seed {first}, {} events, each checked", findings.worlds, findings.events))
            .add("worst backlog", format!("{} products (seed {})", findings.worst_backlog.0, findings.worst_backlog.1))
            .add("longest wait", format!("{} (seed {})", findings.longest_wait.0, findings.longest_wait.1))
            .add("passed most", format!("{} times (seed {})", findings.most_passed.0, findings.most_passed.1));
        for (seed, why) in &findings.broken {
            rows.add("broken", format!("{WARNING}seed {seed}{WARNING:#}: {why}"));
        }
        console::print(rows)?;
    }
    match findings.broken.first() {
        None => Ok(()),
        Some((seed, why)) => {
            let again = format!("plimsoll simulate --search --seed {seed} --worlds 1");
            Err(Failure::new(Exit::Internal, format!("an invariant broke: {why}; see it again with: {again}")))
        }
    }
}
