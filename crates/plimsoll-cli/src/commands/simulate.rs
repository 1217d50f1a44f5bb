//! `plimsoll simulate`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use plimsoll::Bytes;
use plimsoll::observe::{Event, SCHEMA};
use plimsoll::pipeline::Pacing;
use plimsoll_sim::policies::Return;
use plimsoll_sim::workload::{Arrivals, Observed, Policy, PolicyKind};
use plimsoll_sim::{End, Options, Outcome, Workload, from_trace, search, simulate, sweep};
use serde_json::{Value, json};

use crate::args::Simulate;
use crate::console::{self, Align, Grid, Rows, WARNING};
use crate::exit::{Exit, Failure};

/// More than this ends a run: minutes, and never for ever.
const EVENTS_MAX: u64 = 2_000_000_000;

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
    adapt(&mut workload, args)?;
    if let Some(observed) = &args.against {
        return against(args, &workload, observed);
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
        return console::print(object);
    }
    console::print(rows(&workload, &outcome, host))
}

/// Reads a workload file.
pub fn read(file: &Path) -> Result<Workload, Failure> {
    Workload::read(file).map_err(|error| Failure::new(Exit::BadInput, error))
}

/// What the command line says instead of the file.
fn adapt(workload: &mut Workload, args: &Simulate) -> Result<(), Failure> {
    let limit = workload.machine.memory - workload.machine.others;
    let usage = |text: String| Failure::new(Exit::Usage, text);
    if let Some(seed) = args.seed {
        workload.seed = seed;
    }
    if let Some(lanes) = args.lanes {
        workload.machine.lanes = lanes;
    }
    for stream in &mut workload.streams {
        if let Some(jobs) = args.jobs {
            stream.arrivals = Arrivals::ClosedLoop(jobs);
        }
        stream.proofs = args.proofs.unwrap_or(stream.proofs);
    }
    let before = workload.policy.kind.clone();
    let name = args.policy.as_deref().unwrap_or(before.name());
    let budget = args.budget.map(|bytes| bytes.0).or(before.budget()).unwrap_or(limit);
    if budget > limit {
        return Err(usage(format!(
            "--budget {} is more than the machine's {}; write less",
            Bytes(budget),
            Bytes(limit)
        )));
    }
    let (had_permits, had_channel) = match before {
        PolicyKind::Permits { permits, channel, .. } if args.policy.is_none() => (Some(permits), Some(channel)),
        _ => (None, None),
    };
    let permits = |back: Return| {
        let permits = args.permits.or(had_permits).ok_or_else(|| usage(format!("--policy {name} needs --permits")))?;
        let all = if back == Return::HandedOver { permits } else { 1 };
        Ok(PolicyKind::Permits { permits, back, channel: args.channel.or(had_channel).unwrap_or(all) })
    };
    let kind = match (name, before) {
        ("plimsoll", PolicyKind::Plimsoll { pacing, bypass, urgent_reserve, .. }) => {
            PolicyKind::Plimsoll { budget, pacing, bypass, urgent_reserve }
        }
        ("plimsoll", _) => {
            let bypass = plimsoll::Budget::DEFAULT_BYPASS;
            PolicyKind::Plimsoll { budget, pacing: Pacing::Auto, bypass, urgent_reserve: 0 }
        }
        ("unlimited", _) => PolicyKind::Unlimited,
        ("early-release", _) => permits(Return::Produced)?,
        ("held-until-delivered", _) => permits(Return::Delivered)?,
        ("channel", _) => permits(Return::HandedOver)?,
        ("optimistic-budget", PolicyKind::OptimisticBudget { gap, .. }) => PolicyKind::OptimisticBudget { budget, gap },
        ("optimistic-budget", _) => PolicyKind::OptimisticBudget { budget, gap: 0 },
        ("strict-fifo", _) => PolicyKind::StrictFifo { budget },
        ("reserve-or-fail", _) => PolicyKind::ReserveOrFail { budget },
        _ => PolicyKind::Greedy { budget },
    };
    workload.policy = Policy { kind, ..workload.policy.clone() };
    Ok(())
}

/// Runs it, with a timeline into a file if one is asked for.
fn simulated(args: &Simulate, workload: &Workload) -> Result<Outcome, Failure> {
    let Some(path) = &args.trace else {
        return Ok(simulate(workload, Options { events_max: EVENTS_MAX, timeline: None }));
    };
    let failure = |error: std::io::Error| {
        Failure::new(Exit::Output, format!("{}: cannot write the timeline: {error}", path.display()))
    };
    let mut file = BufWriter::new(File::create(path).map_err(failure)?);
    writeln!(file, r#"{{"schema":"{SCHEMA}"}}"#).map_err(failure)?;
    let mut error = None;
    let mut sink = |event: &Event| {
        if error.is_none() {
            error = writeln!(file, "{}", event.json()).err();
        }
    };
    let outcome = simulate(workload, Options { events_max: EVENTS_MAX, timeline: Some(&mut sink) });
    match error {
        Some(error) => Err(failure(error)),
        None => file.flush().map_err(failure).map(|()| outcome),
    }
}

fn ended(outcome: &Outcome) -> String {
    match &outcome.end {
        End::Done => format!("{} proofs in {}", outcome.proofs, outcome.time),
        End::OutOfMemory => format!(
            "{WARNING}out of memory{WARNING:#} after {} proofs, at {}, with {} products queued",
            outcome.proofs, outcome.time, outcome.backlog
        ),
        End::Stuck { waiting } => format!(
            "{WARNING}stuck{WARNING:#} after {} proofs: {waiting} jobs wait and nothing runs that could wake them",
            outcome.proofs
        ),
        End::TooManyEvents => format!("{WARNING}given up{WARNING:#} after {} events", outcome.events),
        End::TooLong => format!(
            "{WARNING}given up{WARNING:#} after {}: the next event is more than a hundred years away; make stages shorter, or the machine faster",
            outcome.time
        ),
        End::Refused { why } => format!("{WARNING}refused{WARNING:#}: {why}"),
    }
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
        "end": match &outcome.end {
            End::Done => "done",
            End::OutOfMemory => "out-of-memory",
            End::Stuck { .. } => "stuck",
            End::TooManyEvents => "too-many-events",
            End::TooLong => "too-long",
            End::Refused { .. } => "refused",
        },
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
        "proof_median_seconds": outcome.proof_median.seconds(),
        "proof_p99_seconds": outcome.proof_p99.seconds(),
        "proof_longest_seconds": outcome.proof_longest.seconds(),
        "thrown_away": outcome.thrown_away,
        "events": outcome.events,
        "tokens": outcome.tokens,
    })
}

fn against(args: &Simulate, workload: &Workload, observed: &Path) -> Result<(), Failure> {
    let observed = Observed::read(observed, workload).map_err(|error| Failure::new(Exit::BadInput, error))?;
    let mut grid = Grid::new(&[
        ("setting", Align::Left),
        ("s/proof seen", Align::Right),
        ("model", Align::Right),
        ("off", Align::Right),
        ("peak seen", Align::Right),
        ("model", Align::Right),
        ("off", Align::Right),
        ("", Align::Left),
    ]);
    let mut rows = Vec::new();
    for row in &observed.rows {
        let outcome = simulate(&row.apply(workload), Options { events_max: EVENTS_MAX, timeline: None });
        let off = |seen: Option<f64>, got: f64| seen.map(|seen| got / seen - 1.0);
        let seconds = off(row.seconds_per_proof, outcome.seconds_per_proof);
        let peak = off(row.host_peak.map(|peak| peak as f64), outcome.host_peak as f64);
        let killed = outcome.end == End::OutOfMemory;
        let fits = killed == row.killed
            && seconds.is_none_or(|off| off.abs() <= observed.tolerance.0)
            && peak.is_none_or(|off| off.abs() <= observed.tolerance.1)
            && row.unfit.is_none();
        let or = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        let percent = |off: Option<f64>| or(off.map(|off| format!("{:+.1} %", 100.0 * off)));
        let word = match (&row.unfit, killed) {
            (Some(cause), _) => format!("unfit: {}", cause.split_whitespace().collect::<Vec<_>>().join(" ")),
            (None, _) if !fits => "outside of the tolerance".to_owned(),
            (None, true) => format!("killed after {} proofs, {} queued", outcome.proofs, outcome.backlog),
            (None, false) => String::new(),
        };
        grid.add([
            row.name.clone(),
            or(row.seconds_per_proof.map(|seconds| format!("{seconds:.1}"))),
            if killed { "–".to_owned() } else { format!("{:.1}", outcome.seconds_per_proof) },
            percent(seconds),
            or(row.host_peak.map(|peak| Bytes(peak).to_string())),
            Bytes(outcome.host_peak).to_string(),
            percent(peak),
            word,
        ]);
        rows.push(json!({
            "setting": row.name,
            "observed": {
                "seconds_per_proof": row.seconds_per_proof,
                "host_peak_bytes": row.host_peak,
                "killed": row.killed,
                "killed_after": row.killed_after,
            },
            "simulated": outcome_json(&outcome),
            "seconds_off": seconds,
            "peak_off": peak,
            "fits": fits,
            "unfit": row.unfit,
        }));
    }
    if args.json {
        return console::print(json!({ "command": "simulate", "ok": true, "workload": workload.name, "rows": rows }));
    }
    console::print(grid)
}

fn sweep_budgets(args: &Simulate, workload: &Workload) -> Result<(), Failure> {
    let budgets = sweep::budgets(workload, args.steps);
    let curves = sweep::sweep(workload, &budgets, EVENTS_MAX);
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
    adapt(&mut workload, args)?;
    let outcome = simulated(args, &workload)?;
    let charged = outcome.charged_peak.unwrap_or(outcome.host_peak);
    let (time, peak) =
        (outcome.time.0 as f64 / replay.time.max(1) as f64, charged as f64 / replay.host_peak.max(1) as f64);
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
        return console::print(object);
    }
    let mut rows = Rows::default();
    rows.add("recorded", format!("{} jobs in {}", replay.jobs, plimsoll_sim::Nanos(replay.time)))
        .add("replayed", ended(&outcome))
        .add("time", format!("{:.1} % of the recorded", 100.0 * time))
        .add(
            "memory",
            format!("{} at most, {:.1} % of the recorded {}", Bytes(charged), 100.0 * peak, Bytes(replay.host_peak)),
        );
    if replay.left_out > 0 {
        rows.add("left out", format!("{} jobs that did not come to their end", replay.left_out));
    }
    console::print(rows)
}

fn search_worlds(args: &Simulate) -> Result<(), Failure> {
    let first = args.seed.unwrap_or(1);
    let findings = search::search(first, args.worlds, |_| ());
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
