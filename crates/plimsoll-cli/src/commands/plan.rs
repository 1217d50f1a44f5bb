//! `plimsoll plan`.

use plimsoll::Bytes;
use plimsoll_sim::workload::PolicyKind;
use plimsoll_sim::{End, Workload, plan};
use serde_json::{Value, json};

use super::simulate::told::Told;
use super::simulate::{outcome_json, read};
use crate::args::Plan;
use crate::console::{self, Align, Grid, Rows};
use crate::exit::{Exit, Failure};
use crate::machine::Machine;

/// More than this ends a simulation.
const EVENTS_MAX: u64 = 20_000_000;

/// Runs it.
pub fn run(args: &Plan) -> Result<(), Failure> {
    let mut workload = read(&args.file)?;
    let file = args.file.display();
    if args.this_machine {
        use_this_machine(&mut workload)?;
    }
    let whole = workload.machine.memory - workload.machine.others;
    let of_file = match workload.policy.kind {
        PolicyKind::Plimsoll { budget, .. } if !args.this_machine => budget,
        _ => whole,
    };
    let budget = args.budget.map_or(of_file, |bytes| bytes.0);
    if budget > whole {
        let text = format!("--budget {} is more than the machine's {}; write less", Bytes(budget), Bytes(whole));
        return Err(Failure::new(Exit::Usage, text));
    }
    let smallest = plan::smallest_budget(&workload);
    if budget < smallest {
        let text = format!(
            "{file}: a budget of {} is too small; it takes {} to get one job through",
            Bytes(budget),
            Bytes(smallest)
        );
        return Err(Failure::new(Exit::OutOfBudget, text));
    }
    let mut told = Told::new("planning");
    let plan = plan::plan(&workload, budget, EVENTS_MAX, &mut |step| told.tell(step));
    drop(told);
    if args.json {
        console::print(json_of(&workload, &plan))?
    } else {
        print(&workload, &plan)?
    }
    if plan.simulated.end == End::Done {
        return Ok(());
    }
    let text = format!("{file}: with this budget it does not get through: {}", plan.simulated.in_words());
    Err(Failure { told: true, ..Failure::new(Exit::Unfinished, text) })
}

fn use_this_machine(workload: &mut Workload) -> Result<(), Failure> {
    let limit = Machine::new().smallest_limit().ok_or_else(|| {
        Failure::new(Exit::Internal, "this machine tells nothing of its memory; leave --this-machine out")
    })?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    (workload.machine.memory, workload.machine.others, workload.machine.workers) = (limit.bytes.0, 0, cores);
    workload.machine.pinned = limit.bytes.0;
    Ok(())
}

fn print(workload: &Workload, plan: &plan::Plan) -> Result<(), Failure> {
    let mut rows = Rows::default();
    let seconds = |seconds: Option<f64>| seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.2}"));
    rows.add("workload", &workload.name)
        .add("smallest budget", format!("{}, with which one job at a time gets through", Bytes(plan.smallest_budget)));
    if let Some(enough) = plan.enough {
        rows.add("enough", format!("{}: more brings less than 1 %", Bytes(enough)));
    }
    rows.add("budget", Bytes(plan.budget).to_string());
    let policy = workload.policy.kind.name();
    if policy != "plimsoll" {
        rows.add("policy", format!("plimsoll, not {policy} as in the file"));
    }
    rows.add("held up by", &plan.bottleneck);
    if let Some(proofs) = plan.shortened {
        rows.add("simulated", format!("{proofs} proofs, which say as much as all"));
    }
    let mut grid =
        Grid::new(&[("with this budget", Align::Left), ("formulas", Align::Right), ("simulated", Align::Right)]);
    let alone = plan.circuits.len() == 1;
    for forecast in &plan.circuits {
        let name = if alone { String::new() } else { format!(", {} alone", forecast.circuit) };
        let simulated = |text: String| if alone { text } else { String::new() };
        let outcome = &plan.simulated;
        grid.add([
            format!("seconds a proof{name}"),
            seconds(forecast.seconds_per_proof),
            simulated(format!("{:.2}", outcome.seconds_per_proof_steady)),
        ]);
        grid.add([
            format!("seconds to the first proof{name}"),
            format!("{:.1}", forecast.first),
            simulated(format!("{:.1}", outcome.proof_first.seconds())),
        ]);
        grid.add([
            format!("host memory{name}"),
            forecast.host_expected.map_or("–".to_owned(), |bytes| format!("{} on average", Bytes(bytes))),
            simulated(format!("{} at most", Bytes(outcome.charged_peak.unwrap_or(outcome.host_peak)))),
        ]);
        let jobs = outcome.tokens.first().and_then(|tokens| tokens.first());
        grid.add([
            format!("jobs in progress{name}"),
            forecast.jobs.map_or("–".to_owned(), |jobs| jobs.to_string()),
            simulated(jobs.map_or("–".to_owned(), u64::to_string)),
        ]);
    }
    if !alone {
        let outcome = &plan.simulated;
        grid.add([
            "seconds a proof, all together".into(),
            seconds(plan.together.as_ref().map(|together| together.seconds_per_proof)),
            format!("{:.2}", outcome.seconds_per_proof),
        ]);
        grid.add(["host memory, all together".into(), String::new(), format!("{} at most", Bytes(outcome.host_peak))]);
    }
    let mut changes = Grid::new(&[
        ("what would change it", Align::Left),
        ("formulas", Align::Right),
        ("simulated", Align::Right),
        ("saves", Align::Right),
    ]);
    for change in &plan.changes {
        let analytic = seconds(change.analytic);
        changes.add([
            change.what.to_owned(),
            analytic,
            seconds(change.simulated),
            format!("{:.1} %", 100.0 * change.saves),
        ]);
    }
    let mut settings = Rows::default();
    for (name, value) in &plan.settings {
        settings.add(*name, value);
    }
    console::print(format!("{rows}\n\n{grid}\n\n{changes}\n\nSettings\n{settings}"))
}

fn json_of(workload: &Workload, plan: &plan::Plan) -> Value {
    let circuit = |forecast: &plan::Forecast| {
        let certificate: Value = serde_json::from_str(&forecast.certificate.json()).unwrap_or(Value::Null);
        json!({
            "circuit": forecast.circuit,
            "seconds_per_proof": forecast.seconds_per_proof,
            "seconds_per_proof_alone": forecast.alone,
            "by_asking": forecast.by_asking,
            "first_proof_seconds": forecast.first,
            "host_expected_bytes": forecast.host_expected,
            "jobs": forecast.jobs,
            "drum": forecast.drum,
            "by_memory": forecast.by_memory,
            "certificate": certificate,
        })
    };
    let change = |change: &plan::Change| {
        json!({
            "what": change.what,
            "formulas_seconds_per_proof": change.analytic,
            "simulated_seconds_per_proof": change.simulated,
            "saves": change.saves,
        })
    };
    json!({
        "command": "plan",
        "ok": plan.simulated.end == End::Done,
        "workload": workload.name,
        "smallest_budget_bytes": plan.smallest_budget,
        "enough_bytes": plan.enough,
        "budget_bytes": plan.budget,
        "bottleneck": plan.bottleneck,
        "formulas": plan.circuits.iter().map(circuit).collect::<Vec<_>>(),
        "together": plan.together.as_ref().map(|together| {
            json!({ "seconds_per_proof": together.seconds_per_proof, "by": together.by })
        }),
        "simulated": outcome_json(&plan.simulated),
        "simulated_proofs": plan.shortened,
        "changes": plan.changes.iter().map(change).collect::<Vec<_>>(),
        "settings": plan.settings.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect::<Vec<_>>(),
    })
}
