//! From what a file says to a workload, or to what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll::pipeline::pacing::Pacing;
use plimsoll::{Budget, Bytes, Class, Space};
use toml::Spanned;

use super::classes::Classes;
use super::error::line_of;
use super::file::{self, CircuitTable, File, Growth, On, PacingValue, Place, PolicyTable, StageTable};
use super::{
    Circuit, Machine, Policy, PolicyKind, Residency, Site, Stage, Take, Workload, WorkloadError, on_host, streams,
};
use crate::Nanos;
use crate::names::lasting;
use crate::policies::Return;
use crate::random::Times;

/// The text, to find lines in.
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn error<T>(&self, at: &Spanned<T>, fault: impl Into<String>, fix: impl Into<String>) -> WorkloadError {
        let line = Some(line_of(self.text, at.span().start));
        WorkloadError { file: self.file.into(), line, fault: fault.into(), fix: fix.into() }
    }
}

pub(super) type Checked<T> = Result<T, WorkloadError>;

/// Limits, so that a slip of the keyboard costs a message and not an hour.
const WORKERS_MAX: u64 = 4096;
const DEVICES_MAX: u64 = 64;
const PARTS_MAX: u64 = 4096;
pub(super) const PROOFS_MAX: u64 = 1 << 32;
const STAGES_MAX: usize = 64;
const CIRCUITS_MAX: usize = 256;
const ARRIVALS_MAX: usize = 1024;
const RESIDENCIES_MAX: usize = 256;
const CLASSES_MAX: usize = 64;

pub(super) fn check(raw: &File, source: &Source<'_>) -> Checked<Workload> {
    several(raw, source)?;
    let machine = machine(raw, source)?;
    let mut classes = Classes::default();
    let residencies = residencies(raw, &mut classes, source)?;
    let circuits: Vec<Circuit> = raw
        .circuit
        .get_ref()
        .iter()
        .map(|table| circuit(table, &residencies, &mut classes, source))
        .collect::<Checked<_>>()?;
    unique(raw.circuit.get_ref().iter().map(|table| &table.name), "circuit", source)?;
    needed(raw, &circuits, source)?;
    if let Some(table) = raw.circuit.get_ref().first()
        && circuits.iter().any(|circuit| circuit.device_stage().is_some())
        && machine.devices == 0
    {
        let fault = "stages run on a device, and the machine has none";
        return Err(source.error(&table.name, fault, "set devices in [machine], or run the stages on workers"));
    }
    moved(raw, &machine, source)?;
    let streams = streams::streams(raw, &circuits, source)?;
    let workload = Workload {
        name: raw.name.clone().unwrap_or_else(|| source.file.to_owned()),
        policy: policy(raw.policy.as_ref(), &machine, source)?,
        machine,
        residencies,
        circuits,
        streams,
        seed: raw.seed,
    };
    fits(raw, &workload, source)?;
    Ok(workload)
}

/// There is something to do, and not more than makes sense.
fn several(raw: &File, source: &Source<'_>) -> Checked<()> {
    let File { residency, circuit, arrivals, .. } = raw;
    if circuit.get_ref().is_empty() {
        return Err(source.error(
            circuit,
            "there is no circuit",
            "add [[circuit]] with its stages, and [[arrivals]] of it",
        ));
    }
    let most = |what: &str, at: Option<&Spanned<String>>, count: usize, most: usize| match at {
        Some(at) => Err(source.error(at, format!("there are {count} {what}"), format!("write no more than {most}"))),
        None => Ok(()),
    };
    most(
        "circuits",
        circuit.get_ref().get(CIRCUITS_MAX).map(|table| &table.name),
        circuit.get_ref().len(),
        CIRCUITS_MAX,
    )?;
    most("residencies", residency.get(RESIDENCIES_MAX).map(|table| &table.name), residency.len(), RESIDENCIES_MAX)?;
    most("[[arrivals]]", arrivals.get(ARRIVALS_MAX).map(|table| &table.circuit), arrivals.len(), ARRIVALS_MAX)
}

pub(super) fn in_range(at: &Spanned<u64>, what: &str, least: u64, most: u64, source: &Source<'_>) -> Checked<u64> {
    let value = *at.get_ref();
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(source.error(at, format!("{what} is {value}"), format!("write a number from {least} to {most}")))
}

fn machine(raw: &File, source: &Source<'_>) -> Checked<Machine> {
    let table = &raw.machine;
    let memory = table.memory.get_ref().0;
    let others = table.others.as_ref().map_or(0, |others| others.get_ref().0);
    if memory == 0 {
        return Err(source.error(&table.memory, "the machine has no memory", "write for example \"755 GiB\""));
    }
    if let Some(at) = table.others.as_ref().filter(|_| others >= memory) {
        let fault = format!("others hold {} of {}", Bytes(others), Bytes(memory));
        return Err(source.error(at, fault, "leave some memory for the prover"));
    }
    let optional = |at: &Option<Spanned<u64>>, what: &str, default: u64, least: u64, most: u64| {
        at.as_ref().map_or(Ok(default), |at| in_range(at, what, least, most, source))
    };
    if let Some(at) = table.pcie.as_ref().filter(|at| at.get_ref().0 == 0) {
        return Err(source.error(at, "nothing can be moved over PCIe", "write bytes a second, for example \"28 GiB\""));
    }
    // What is not there cannot be pinned, nor be taken by the prover's own code.
    for (what, at) in [("pinned", &table.pinned), ("runtime", &table.runtime)] {
        if let Some(at) = at.as_ref().filter(|at| at.get_ref().0 > memory - others) {
            let fault = format!("{what} is {} and there are {}", at.get_ref().text(), Bytes(memory - others));
            return Err(source.error(at, fault, "write no more than memory less others"));
        }
    }
    Ok(Machine {
        memory,
        others,
        runtime: table.runtime.as_ref().map_or(0, |runtime| runtime.get_ref().0),
        pinned: table.pinned.as_ref().map_or(memory, |pinned| pinned.get_ref().0),
        workers: in_range(&table.workers, "workers", 1, WORKERS_MAX, source)?,
        slowdown_ppb: table.slowdown.ppb(),
        pcie: table.pcie.as_ref().map_or(u64::MAX, |pcie| pcie.get_ref().0),
        devices: optional(&table.devices, "devices", 0, 0, DEVICES_MAX)? as u16,
        device_memory: table.device_memory.0,
        lanes: optional(&table.lanes, "lanes", 1, 1, 64)?,
    })
}

fn space(place: Place) -> Space {
    match place {
        Place::Host => Space::HOST,
        Place::Pinned => Space::PINNED,
        Place::Device => Space::device(0),
    }
}

fn unique<'a>(names: impl Iterator<Item = &'a Spanned<String>>, what: &str, source: &Source<'_>) -> Checked<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.get_ref().trim().is_empty() {
            return Err(source.error(name, format!("a {what} has no name"), "write one"));
        }
        if !seen.insert(name.get_ref()) {
            let fault = format!("there are two {what}s called {:?}", name.get_ref());
            return Err(source.error(name, fault, "give each a name of its own"));
        }
    }
    Ok(())
}

fn residencies(raw: &File, classes: &mut Classes, source: &Source<'_>) -> Checked<Vec<Residency>> {
    unique(raw.residency.iter().map(|table| &table.name), "residency", source).map_err(|mut error| {
        error.fault = error.fault.replace("residencys", "residencies");
        error
    })?;
    let each = |table: &file::ResidencyTable| {
        if table.space == Place::Device {
            let fix = "put it into \"host\" or \"pinned\"; what stays on a device is not modelled";
            return Err(source.error(&table.name, "a residency cannot be in a device's memory", fix));
        }
        let class = classes.residency(&table.name, space(table.space), source)?;
        Ok(Residency {
            name: Arc::from(class.name()),
            class,
            bytes: some(&table.bytes, source)?,
            load: lasts(&table.load, table.load.get_ref().0.0, "a load", source)?,
            preloaded: table.preloaded,
        })
    };
    raw.residency.iter().map(each).collect()
}

/// What is taken is more than nothing.
fn some(at: &Spanned<super::values::Size>, source: &Source<'_>) -> Checked<u64> {
    match at.get_ref().0 {
        0 => Err(source.error(at, "it takes no bytes", "write how many, or delete the entry")),
        bytes => Ok(bytes),
    }
}

/// What is done takes longer than nothing.
fn lasts<T>(at: &Spanned<T>, mean: u64, what: &str, source: &Source<'_>) -> Checked<Nanos> {
    if mean == 0 {
        return Err(source.error(at, format!("{what} takes no time"), "write how long, 1 ns at least, or delete it"));
    }
    Ok(Nanos(mean))
}

/// Each residency is somebody's need: one that is not would be left out of what is held, without a word.
fn needed(raw: &File, circuits: &[Circuit], source: &Source<'_>) -> Checked<()> {
    let is_needed = |at: &usize| circuits.iter().any(|circuit| circuit.needs.contains(at));
    match (0..raw.residency.len()).find(|at| !is_needed(at)) {
        None => Ok(()),
        Some(at) => {
            let name = &raw.residency[at].name;
            let fault = format!("no circuit needs residency {:?}", name.get_ref());
            Err(source.error(name, fault, "name it in the needs of a circuit, or delete it"))
        }
    }
}

/// What is moved over PCIe has a PCIe to be moved over, and arrives.
fn moved(raw: &File, machine: &Machine, source: &Source<'_>) -> Checked<()> {
    for at in raw.circuit.get_ref().iter().flat_map(|circuit| &circuit.stage).filter_map(|stage| stage.pcie.as_ref()) {
        let bytes = at.get_ref().0;
        if bytes > 0 && raw.machine.pcie.is_none() {
            let fix = "set pcie in [machine] to bytes a second, for example \"28 GiB\"";
            return Err(source.error(at, "it is not said how fast the machine moves bytes over PCIe", fix));
        }
        if machine.transfer(bytes) > Nanos::MAX {
            let fault =
                format!("to move {} at {} a second takes more than ten years", Bytes(bytes), Bytes(machine.pcie));
            return Err(source.error(at, fault, "write less, or a faster pcie in [machine]"));
        }
    }
    Ok(())
}

fn circuit(
    table: &CircuitTable,
    residencies: &[Residency],
    classes: &mut Classes,
    source: &Source<'_>,
) -> Checked<Circuit> {
    let need = |at: &Spanned<String>| {
        let found = residencies.iter().position(|residency| *residency.name == **at.get_ref());
        found.ok_or_else(|| {
            let names: Vec<_> = residencies.iter().map(|residency| &*residency.name).collect();
            let fix = format!("name one of [{}], or declare it as [[residency]]", names.join(", "));
            source.error(at, format!("there is no residency {:?}", at.get_ref()), fix)
        })
    };
    if table.stage.is_empty() || table.stage.len() > STAGES_MAX {
        let fault = format!("circuit {:?} has {} stages", table.name.get_ref(), table.stage.len());
        return Err(source.error(&table.name, fault, format!("write 1 to {STAGES_MAX} [[circuit.stage]]")));
    }
    unique(table.stage.iter().map(|stage| &stage.name), "stage", source)?;
    let parts = table.parts.as_ref().map_or(Ok(1), |at| in_range(at, "parts", 1, PARTS_MAX, source))?;
    let mut held = BTreeSet::new();
    let order = in_order(table, source)?;
    let stages: Vec<Stage> =
        order.iter().map(|stage| self::stage(stage, &mut held, classes, source)).collect::<Checked<_>>()?;
    if let Some(at) = table.needs.get(RESIDENCIES_MAX) {
        let fault = format!("the circuit needs {} residencies", table.needs.len());
        return Err(source.error(at, fault, format!("write no more than {RESIDENCIES_MAX}")));
    }
    let mut needs: Vec<usize> = Vec::new();
    for at in &table.needs {
        let found = need(at)?;
        if needs.contains(&found) {
            return Err(source.error(at, format!("residency {:?} is named twice", at.get_ref()), "name it once"));
        }
        needs.push(found);
    }
    let circuit = Circuit {
        name: Arc::from(lasting(table.name.get_ref())),
        parts: parts as u32,
        priority: table.priority,
        urgent: table.urgent,
        deadline: match &table.deadline {
            None => None,
            Some(at) => Some(lasts(at, at.get_ref().0.0, "a proof that is not late", source)?),
        },
        needs,
        stages,
    };
    stays(&circuit, &order, source)?;
    Ok(circuit)
}

/// What is in a device's memory does not outlive the job's place on the device.
fn stays(circuit: &Circuit, order: &[&StageTable], source: &Source<'_>) -> Checked<()> {
    let next = circuit.stages.iter().skip(1);
    for ((held, table), _) in circuit.holdings().iter().zip(order).zip(next).filter(|(_, next)| !next.on.is_on_device())
    {
        if let Some(&(class, _)) = held.keep.iter().find(|entry| entry.0.space().device_number().is_some()) {
            let fault = format!("{:?} stays in a device's memory, and the next stage does not run there", class.name());
            let fix = "name it in the stage's frees, or write scratch = true where it is taken";
            return Err(source.error(&table.name, fault, fix));
        }
    }
    Ok(())
}

/// The stages in the order in which they are done: each after the one that it names, or the one before it in the file.
fn in_order<'a>(table: &'a CircuitTable, source: &Source<'_>) -> Checked<Vec<&'a StageTable>> {
    let stages = &table.stage;
    let mut after: BTreeMap<Option<usize>, usize> = BTreeMap::new();
    for (at, stage) in stages.iter().enumerate() {
        let before = match &stage.after {
            None => at.checked_sub(1),
            Some(name) => match stages.iter().position(|other| other.name.get_ref() == name.get_ref()) {
                Some(before) if before == at => {
                    let fault = format!("stage {:?} comes after itself", name.get_ref());
                    return Err(source.error(name, fault, "name another stage of the same circuit"));
                }
                Some(before) => Some(before),
                None => {
                    let fault = format!("there is no stage {:?} in this circuit", name.get_ref());
                    return Err(source.error(name, fault, "name a stage of the same circuit"));
                }
            },
        };
        if let Some(other) = after.insert(before, at) {
            let (one, two) = (stages[other].name.get_ref(), stage.name.get_ref());
            let fault = format!("stages {one:?} and {two:?} both come after the same one");
            return Err(source.error(
                &stage.name,
                fault,
                "stages are done one after another: say with \"after\" which",
            ));
        }
    }
    let mut order = Vec::new();
    let mut next = after.get(&None).copied();
    while let Some(at) = next.filter(|_| order.len() < stages.len()) {
        order.push(&stages[at]);
        next = after.get(&Some(at)).copied();
    }
    if order.len() < stages.len() {
        let left = stages.iter().find(|stage| !order.iter().any(|done| std::ptr::eq(*done, *stage)));
        let stage = left.expect("some are left");
        let at = stage.after.as_ref().unwrap_or(&stage.name);
        let fault = format!("stage {:?} waits for itself: its \"after\" leads in a circle", stage.name.get_ref());
        return Err(source.error(at, fault, "let one stage come first"));
    }
    Ok(order)
}

fn stage(table: &StageTable, held: &mut BTreeSet<Class>, classes: &mut Classes, source: &Source<'_>) -> Checked<Stage> {
    for (what, count) in [("takes", table.takes.len()), ("frees", table.frees.len())] {
        if count > CLASSES_MAX {
            let fault = format!("the stage {what} {count} classes");
            return Err(source.error(&table.name, fault, format!("write no more than {CLASSES_MAX}")));
        }
    }
    let mut takes: Vec<Take> = Vec::new();
    for take in &table.takes {
        let class = classes.taken(&take.class, space(take.space), source)?;
        if take.space == Place::Device && !matches!(table.on, On::Lane | On::Device) {
            let fault = format!("{:?} is in a device's memory, and the stage does not run there", class.name());
            return Err(source.error(&take.class, fault, "run the stage on = \"lane\" or \"device\""));
        }
        if take.space == Place::Device && take.grows == Growth::Linear {
            let fault = format!("{:?} grows in a device's memory", class.name());
            return Err(source.error(&take.class, fault, "device memory is taken whole: delete \"grows\""));
        }
        if !take.scratch {
            held.insert(class);
        }
        let (bytes, grows) = (some(&take.bytes, source)?, take.grows == Growth::Linear);
        if takes.iter().any(|other| (other.class, other.grows, other.scratch) == (class, grows, take.scratch)) {
            let fault = format!("{:?} is taken twice in the same way", class.name());
            return Err(source.error(&take.class, fault, "write the sum once"));
        }
        takes.push(Take { class, bytes, grows, scratch: take.scratch });
    }
    let mut frees: Vec<(Class, Option<u64>)> = Vec::new();
    for at in &table.frees {
        let name = at.get_ref();
        if frees.iter().any(|freed| freed.0.name() == name) {
            return Err(source.error(at, format!("{name:?} is freed twice"), "name it once"));
        }
        let Some(class) = held.iter().copied().find(|class| class.name() == name) else {
            let fault = format!("nothing called {name:?} is held at the end of this stage");
            let names: Vec<_> = held.iter().map(|class| class.name()).collect();
            let fix = format!("name one of [{}]; scratch goes by itself", names.join(", "));
            return Err(source.error(at, fault, fix));
        };
        held.remove(&class);
        frees.push((class, None));
    }
    let time = Times::new(&table.time.get_ref().0);
    lasts(&table.time, time.mean(), "a stage", source)?;
    if let Some(at) = table.failing.as_ref().filter(|at| at.get_ref().0 > 0.5) {
        return Err(source.error(at, "more than half of all runs fail", "write a part from 0 to 0.5"));
    }
    Ok(Stage {
        name: lasting(table.name.get_ref()),
        on: match table.on {
            On::Worker => Site::Worker,
            On::Lane => Site::Lane,
            On::Device => Site::Device,
            On::Outside => Site::Outside,
        },
        at_most: table.at_most.as_ref().map(|at| in_range(at, "at_most", 1, WORKERS_MAX, source)).transpose()?,
        time,
        pcie: table.pcie.as_ref().map_or(0, |at| at.get_ref().0),
        bandwidth_ppm: table.bandwidth.ppm(),
        takes,
        frees,
        failing_ppb: table.failing.as_ref().map_or(0, |at| at.get_ref().ppb()),
    })
}

pub(super) fn policy(at: Option<&Spanned<PolicyTable>>, machine: &Machine, source: &Source<'_>) -> Checked<Policy> {
    let Some(at) = at else { return Ok(Policy::plimsoll(machine.memory - machine.others)) };
    let PolicyTable { kind, budget, pacing, bypass, urgent_reserve, permits, channel, gap, early_free, asking } =
        at.get_ref();
    let name = kind.get_ref().as_str();
    if !PolicyKind::NAMES.contains(&name) {
        let fix = format!("write one of {}", PolicyKind::NAMES.join(", "));
        return Err(source.error(kind, format!("there is no policy {name:?}"), fix));
    }
    let of = |key: &str, given: bool, policies: &[&str]| {
        if given && !policies.contains(&name) {
            let fault = format!("policy {name:?} knows no {key}");
            return Err(source.error(kind, fault, format!("delete it; it belongs to {}", policies.join(", "))));
        }
        Ok(())
    };
    const BYTES: [&str; 5] = ["plimsoll", "optimistic-budget", "strict-fifo", "reserve-or-fail", "greedy"];
    const COUNTS: [&str; 3] = ["early-release", "held-until-delivered", "channel"];
    of("budget", budget.is_some(), &BYTES)?;
    of("pacing", pacing.is_some(), &["plimsoll"])?;
    of("bypass", bypass.is_some(), &["plimsoll"])?;
    of("urgent_reserve", urgent_reserve.is_some(), &["plimsoll"])?;
    of("permits", permits.is_some(), &COUNTS)?;
    of("channel", channel.is_some(), &COUNTS)?;
    of("gap", gap.is_some(), &["optimistic-budget"])?;
    let limit = machine.memory - machine.others;
    let budget = match budget {
        Some(at) if at.get_ref().0 > limit => {
            let fault = format!("the budget is {} and there are {}", at.get_ref().text(), Bytes(limit));
            return Err(source.error(at, fault, "write no more than memory less others"));
        }
        Some(at) => at.get_ref().0,
        None => limit,
    };
    let count = |at: &Option<Spanned<u64>>, what: &str, default: Option<u64>| match (at, default) {
        (Some(at), _) => in_range(at, what, 1, 1 << 20, source),
        (None, Some(default)) => Ok(default),
        (None, None) => Err(source.error(kind, format!("policy {name:?} needs {what}"), format!("add {what} = 12"))),
    };
    let with_permits = |back, default: Option<u64>| {
        let permits = count(permits, "permits", None)?;
        let channel = count(channel, "channel", default.or(Some(permits)))?;
        Ok(PolicyKind::Permits { permits, back, channel })
    };
    let kind = match name {
        "plimsoll" => PolicyKind::Plimsoll {
            budget,
            pacing: match pacing.as_ref().map(|at| (at, at.get_ref())) {
                None => Pacing::Auto,
                Some((_, PacingValue::Word(word))) if word == "auto" => Pacing::Auto,
                Some((_, PacingValue::Word(word))) if word == "unpaced" => Pacing::Unpaced,
                Some((_, PacingValue::Jobs(jobs @ 1..))) => Pacing::Fixed(*jobs as u64),
                Some((at, _)) => {
                    let fix = "write \"auto\", \"unpaced\", or how many jobs may be under way";
                    return Err(source.error(at, "no such pacing", fix));
                }
            },
            bypass: bypass.unwrap_or(Budget::DEFAULT_BYPASS),
            urgent_reserve: match urgent_reserve {
                Some(at) if at.get_ref().0 >= budget => {
                    return Err(source.error(at, "all of the budget is set aside for urgent jobs", "write less"));
                }
                reserve => reserve.as_ref().map_or(0, |at| at.get_ref().0),
            },
        },
        "unlimited" => PolicyKind::Unlimited,
        "early-release" => with_permits(Return::Produced, Some(1))?,
        "held-until-delivered" => with_permits(Return::Delivered, Some(1))?,
        "channel" => with_permits(Return::HandedOver, None)?,
        "optimistic-budget" => PolicyKind::OptimisticBudget { budget, gap: gap.map_or(0, |gap| gap.0.0) },
        "strict-fifo" => PolicyKind::StrictFifo { budget },
        "reserve-or-fail" => PolicyKind::ReserveOrFail { budget },
        _ => PolicyKind::Greedy { budget },
    };
    let asking = asking.as_ref().map_or(Ok(Policy::ASKING), |at| in_range(at, "asking", 1, 1 << 20, source))?;
    Ok(Policy { kind, early_free: early_free.unwrap_or(true), asking })
}

/// Whether each job fits the machine, alone with what it needs.
fn fits(raw: &File, workload: &Workload, source: &Source<'_>) -> Checked<()> {
    let machine = &workload.machine;
    let limit = match workload.policy.kind {
        PolicyKind::Plimsoll { budget, urgent_reserve: 0, .. } => (budget, "the budget"),
        PolicyKind::Plimsoll { budget, urgent_reserve, .. } => {
            (budget - urgent_reserve, "the budget less the urgent reserve")
        }
        ref other => match other.budget() {
            Some(budget) => (budget, "the budget"),
            None => (machine.memory - machine.others, "the machine's memory"),
        },
    };
    let is_peer = !matches!(workload.policy.kind, PolicyKind::Plimsoll { .. });
    for (circuit, table) in workload.circuits.iter().zip(raw.circuit.get_ref()) {
        let resident = |pinned: bool| {
            let needs = circuit.needs.iter().map(|need| &workload.residencies[*need]);
            let of = needs.filter(|residency| !pinned || residency.class.space() == Space::PINNED);
            of.fold(0u64, |sum, residency| sum.saturating_add(residency.bytes))
        };
        // Peers load everything for good.
        let needs = if is_peer { workload.resident_bytes() } else { resident(false) };
        let pinned_needs = resident(true);
        let lanes_needed = circuit.device_stage().is_some();
        for (stage, holdings) in circuit.stages.iter().zip(circuit.holdings()) {
            let at =
                &table.stage.iter().find(|entry| entry.name.get_ref() == stage.name).expect("it is from there").name;
            let host = on_host(&holdings.peak).saturating_add(needs).saturating_add(machine.runtime);
            // Urgent jobs may use the reserve as well.
            let (limit, what) = match workload.policy.kind {
                PolicyKind::Plimsoll { budget, .. } if circuit.urgent => (budget, "the budget"),
                _ => limit,
            };
            if host > limit {
                let fault = format!(
                    "stage {:?} of {:?} needs {} with its residencies and the runtime, and {what} is {}",
                    stage.name,
                    &*circuit.name,
                    Bytes(host),
                    Bytes(limit)
                );
                return Err(source.error(at, fault, "give the machine more memory, or make the stage smaller"));
            }
            let of_pinned = holdings.peak.iter().filter(|entry| entry.0.space() == Space::PINNED);
            let pinned = of_pinned.fold(pinned_needs, |sum, entry| sum.saturating_add(entry.1));
            if pinned > machine.pinned {
                let fault = format!(
                    "stage {:?} of {:?} needs {} of pinned memory with its residencies, and no more than {} may be pinned",
                    stage.name,
                    &*circuit.name,
                    Bytes(pinned),
                    Bytes(machine.pinned)
                );
                return Err(source.error(at, fault, "set pinned in [machine], or make the stage smaller"));
            }
            let of_device = holdings.peak.iter().filter(|entry| entry.0.space().device_number().is_some());
            let device = of_device.fold(0u64, |sum, entry| sum.saturating_add(entry.1));
            if device > machine.device_memory && lanes_needed {
                let fault = format!(
                    "stage {:?} of {:?} needs {} of a device's memory, and a device has {}",
                    stage.name,
                    &*circuit.name,
                    Bytes(device),
                    Bytes(machine.device_memory)
                );
                return Err(source.error(at, fault, "set device_memory in [machine], or make the stage smaller"));
            }
        }
    }
    Ok(())
}

impl Policy {
    /// How many jobs ask at a time unless a file says otherwise.
    pub const ASKING: u64 = 512;

    /// Plimsoll's own policy, with this budget.
    pub fn plimsoll(budget: u64) -> Policy {
        let (pacing, bypass, urgent_reserve) = (Pacing::Auto, Budget::DEFAULT_BYPASS, 0);
        Policy::new(PolicyKind::Plimsoll { budget, pacing, bypass, urgent_reserve })
    }

    /// A policy with the usual rest.
    pub fn new(kind: PolicyKind) -> Policy {
        Policy { kind, early_free: true, asking: Policy::ASKING }
    }
}
