//! `plimsoll doctor`: one page about this machine, and whether proving would work on it.

use std::thread;

use plimsoll::Bytes;
use plimsoll_profile::sample::allocator;
use plimsoll_profile::sample::device::DeviceMemory;
use plimsoll_profile::sample::files::Root;
use plimsoll_profile::sample::machine::{MachineMemory, ProcessLimits, Room};
use plimsoll_profile::sample::pressure::Pressure;
use serde_json::{Value, json};

use super::prove::Plan;
use crate::args::{BackendChoice, Doctor};
use crate::budget::Budget;
use crate::console::{self, GOOD, Rows, WARNING};
use crate::exit::{Exit, Failure};
use crate::machine::Machine;

/// A backend, and whether it can be used here.
pub trait Probe {
    /// Its name, as `--backend` would say it.
    fn name(&self) -> &'static str;

    /// What was found, or why it cannot be used.
    ///
    /// # Errors
    ///
    /// In words: what is missing.
    fn probe(&self) -> Result<String, String>;
}

/// The processor: always there.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    threads: usize,
}

impl Probe for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn probe(&self) -> Result<String, String> {
        Ok(format!("{} threads", self.threads))
    }
}

/// Cards that the kernel's driver shows, which this build has no backend for.
#[derive(Clone, Debug)]
struct NotBuiltIn {
    name: &'static str,
    root: Root,
}

impl Probe for NotBuiltIn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn probe(&self) -> Result<String, String> {
        let driver = match self.root.read("proc/driver/nvidia/version") {
            Some(text) => format!("the kernel has {}", text.lines().next().unwrap_or("a driver").trim()),
            None => "the kernel has no NVIDIA driver either".to_owned(),
        };
        Err(format!("not built into this command; {driver}"))
    }
}

/// A backend of this command, as it says of itself ([`survey`](crate::backend::survey)).
struct Surveyed(&'static str);

impl Probe for Surveyed {
    fn name(&self) -> &'static str {
        self.0
    }

    fn probe(&self) -> Result<String, String> {
        surveyed(self.0)
    }
}

/// What a backend says of itself.
fn surveyed(name: &str) -> Result<String, String> {
    let found = crate::backend::survey().into_iter().find(|(backend, _)| *backend == name);
    found.map_or_else(|| Err(format!("this command has no backend {name:?}")), |(_, found)| found)
}

fn cuda(root: &Root) -> Box<dyn Probe> {
    if cfg!(feature = "cuda") {
        Box::new(Surveyed("cuda"))
    } else {
        Box::new(NotBuiltIn { name: "cuda", root: root.clone() })
    }
}

/// Runs it.
pub fn run(args: &Doctor) -> Result<(), Failure> {
    let machine = Machine::new();
    let threads = args.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let page = Page::look(&machine, args, threads);
    if args.json {
        console::print(page.json())?;
    } else {
        console::print(page.text())?;
    }
    page.proving.map(|_| ())
}

/// What was found.
struct Page {
    memory: Option<MachineMemory>,
    limits: ProcessLimits,
    /// What control groups and the machine leave to a process, the one that binds first.
    lines: Vec<Room>,
    pressure: Option<Pressure>,
    allocator: Vec<(String, String)>,
    huge_pages: String,
    nodes: Vec<(String, u64)>,
    backends: Vec<(&'static str, Result<String, String>)>,
    /// What the driver says of the cards' memory; why not, where it does not.
    cards: Result<Vec<DeviceMemory>, String>,
    threads: usize,
    proving: Result<Advice, Failure>,
}

/// How proving would go.
struct Advice {
    line: u64,
    ledger: u64,
    smallest: u64,
    partition: u64,
    at_once: u64,
}

impl Page {
    fn look(machine: &Machine, args: &Doctor, threads: usize) -> Self {
        let root = machine.root();
        let mut lines = machine.room();
        lines.sort_by_key(|room| room.limit.bytes);
        let allocator = match allocator::detect() {
            Some(allocator) => {
                let settings = allocator.settings().into_iter().map(|(name, value)| (name.to_owned(), value));
                std::iter::once(("name".to_owned(), allocator.name().to_owned())).chain(settings).collect()
            }
            None => vec![(
                "name".to_owned(),
                "jemalloc, set at build time; its figures need the feature `jemalloc-stats`".to_owned(),
            )],
        };
        let chosen = |file: &str| {
            let text = root.read(file)?;
            Some(text.split('[').nth(1)?.split(']').next()?.to_owned())
        };
        let huge_pages = chosen("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_else(|| "not told".to_owned());
        let backends: [Box<dyn Probe>; 3] = [Box::new(Cpu { threads }), cuda(root), Box::new(Surveyed("icicle"))];
        Self {
            memory: MachineMemory::read(root),
            limits: ProcessLimits::read(root),
            lines,
            pressure: Pressure::read(root),
            allocator,
            huge_pages,
            nodes: nodes(root),
            backends: backends.iter().map(|backend| (backend.name(), backend.probe())).collect(),
            cards: cards(),
            threads,
            proving: advise(machine, args, threads),
        }
    }

    fn text(&self) -> String {
        let bytes = |bytes: u64| Bytes(bytes).to_string();
        let or_none = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), bytes);
        let mut rows = Rows::default();
        if let Some(memory) = &self.memory {
            let available = memory.available_bytes.map_or_else(|| "not told".to_owned(), bytes);
            rows.add("memory", format!("{}, {available} available", bytes(memory.total_bytes)));
            rows.add("swap", format!("{}, {} free", bytes(memory.swap_bytes), bytes(memory.swap_free_bytes)));
        }
        for (index, Room { limit, total }) in self.lines.iter().enumerate() {
            let others =
                if limit.bytes < *total { format!(" (of {total}; others have the rest)") } else { String::new() };
            let binds = if index == 0 { ": this one binds" } else { "" };
            let text = format!("{} {}{others}{binds}", limit.bytes, limit.source);
            rows.add(if index == 0 { "limits" } else { "" }, text);
        }
        rows.add("locked memory", or_none(self.limits.locked_bytes))
            .add("address space", or_none(self.limits.address_space_bytes));
        if let (Some(all), Some(free)) = (self.limits.shm_bytes, self.limits.shm_free_bytes) {
            rows.add("/dev/shm", format!("{}, {} free", bytes(all), bytes(free)));
        }
        if let Some(pressure) = &self.pressure {
            rows.add(
                "pressure",
                format!("{:.1} % of the last ten seconds somebody waited for memory", pressure.some_percent),
            );
        }
        let huge = self.memory.map_or(0, |memory| memory.huge_bytes);
        rows.add("huge pages", format!("transparent: {}; {} set aside", self.huge_pages, bytes(huge)));
        for (index, (node, size)) in self.nodes.iter().enumerate() {
            rows.add(if index == 0 { "NUMA" } else { "" }, format!("{node}, {}", bytes(*size)));
        }
        for (index, (name, value)) in self.allocator.iter().enumerate() {
            let text = if index == 0 { value.clone() } else { format!("{name}: {value}") };
            rows.add(if index == 0 { "allocator" } else { "" }, text);
        }
        for (index, (name, found)) in self.backends.iter().enumerate() {
            let text = match found {
                Ok(what) => format!("{GOOD}{name}{GOOD:#}: {what}"),
                Err(why) => format!("{name}: {why}"),
            };
            rows.add(if index == 0 { "backends" } else { "" }, text);
        }
        match &self.cards {
            Ok(cards) if cards.is_empty() => rows.add("cards", "none, says NVIDIA's driver"),
            Ok(cards) => cards.iter().enumerate().fold(&mut rows, |rows, (index, card)| {
                let DeviceMemory { device, name, total_bytes, free_bytes, .. } = card;
                let text = format!("device {device}: {name}, {}, {} free", bytes(*total_bytes), bytes(*free_bytes));
                rows.add(if index == 0 { "cards" } else { "" }, text)
            }),
            Err(why) => rows.add("cards", format!("their memory is not sampled: {why}")),
        };
        match &self.proving {
            Ok(advice) => rows
                .add("proving", format!("{GOOD}works{GOOD:#}: --memory {} at the least", bytes(advice.smallest)))
                .add(
                    "",
                    format!(
                        "by default under a line of {}, of which the ledger has {}",
                        bytes(advice.line),
                        bytes(advice.ledger)
                    ),
                )
                .add(
                    "",
                    format!(
                        "{} partitions of {} fit at once; {} threads can use {}",
                        advice.at_once,
                        bytes(advice.partition),
                        self.threads,
                        advice.at_once.min(self.threads as u64)
                    ),
                ),
            Err(failure) => rows.add("proving", format!("{WARNING}does not work{WARNING:#}: {}", failure.message)),
        };
        rows.to_string()
    }

    fn json(&self) -> Value {
        let backends: Vec<Value> = self
            .backends
            .iter()
            .map(|(name, found)| match found {
                Ok(what) => json!({ "name": name, "usable": true, "found": what }),
                Err(why) => json!({ "name": name, "usable": false, "why": why }),
            })
            .collect();
        let proving = match &self.proving {
            Ok(advice) => json!({
                "works": true,
                "line_bytes": advice.line,
                "ledger_bytes": advice.ledger,
                "smallest_line_bytes": advice.smallest,
                "partition_bytes": advice.partition,
                "partitions_at_once": advice.at_once,
            }),
            Err(failure) => json!({ "works": false, "why": failure.message }),
        };
        let limits: Vec<Value> = self
            .lines
            .iter()
            .map(|Room { limit, total }| {
                json!({ "source": limit.source.to_string(), "bytes": limit.bytes.0, "total_bytes": total.0 })
            })
            .collect();
        let nodes: Vec<Value> =
            self.nodes.iter().map(|(name, bytes)| json!({ "name": name, "bytes": bytes })).collect();
        let allocator: serde_json::Map<String, Value> =
            self.allocator.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({
            "command": "doctor",
            "ok": self.proving.is_ok(),
            "memory": self.memory,
            "limits": limits,
            "process_limits": self.limits,
            "pressure": self.pressure,
            "transparent_huge_pages": self.huge_pages,
            "numa": nodes,
            "allocator": allocator,
            "backends": backends,
            "cards": self.cards.as_ref().map_or_else(|why| json!({ "why": why }), |cards| json!(cards)),
            "threads": self.threads,
            "proving": proving,
        })
    }
}

/// What NVIDIA's driver says of its cards, under the numbers that CUDA has for them.
#[cfg(feature = "nvml")]
fn cards() -> Result<Vec<DeviceMemory>, String> {
    use plimsoll_profile::sample::device::Devices as _;
    plimsoll_profile::sample::Nvml::load().map(|mut nvml| nvml.read())
}

#[cfg(not(feature = "nvml"))]
fn cards() -> Result<Vec<DeviceMemory>, String> {
    Err("this program was built without it; build it with --features nvml".to_owned())
}

/// The machine's NUMA nodes, and the memory of each.
fn nodes(root: &Root) -> Vec<(String, u64)> {
    let memory = |node: usize| {
        let text = root.read(format!("sys/devices/system/node/node{node}/meminfo"))?;
        // `Node 0 MemTotal:       24668328 kB`
        let line = text.lines().find(|line| line.contains("MemTotal:"))?;
        let kib: u64 = line.split_ascii_whitespace().nth(3)?.parse().ok()?;
        Some((format!("node {node}"), kib.saturating_mul(1024)))
    };
    // Numbers may be missing in between.
    let entries = std::fs::read_dir(root.path("sys/devices/system/node")).into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("node")?.parse::<usize>().ok();
    let mut numbers: Vec<usize> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    numbers.into_iter().filter_map(memory).collect()
}

fn advise(machine: &Machine, args: &Doctor, threads: usize) -> Result<Advice, Failure> {
    let refused = |why: String| Failure::new(Exit::Usage, format!("--backend {}: {why}", args.backend));
    let beside = match &args.backend {
        BackendChoice::Cuda => surveyed("cuda").map(|_| Bytes::ZERO).map_err(refused)?,
        // The devices themselves: that there is a library says nothing of them.
        BackendChoice::Icicle(which) => crate::backend::look_at_icicle(which).map_err(refused)?,
        BackendChoice::Auto | BackendChoice::Cpu => Bytes::ZERO,
    };
    let budget = Budget::choose(args.memory, machine, threads).map_err(|e| Failure::new(Exit::OutOfBudget, e))?;
    let budget = budget.beside(beside);
    // What a proof holds in host memory is planned for the processor, which needs most of it.
    let plan = Plan::new(&budget, crate::backend::choose(BackendChoice::Cpu, None)?)?;
    let shared = plan.shared();
    Ok(Advice {
        line: budget.line.bytes.0,
        ledger: budget.ledger.0,
        smallest: budget.smallest_line(plan.smallest()).0,
        partition: plan.claim().0,
        at_once: budget.ledger.saturating_sub(shared).0 / plan.claim().0.max(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_whatever_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for number in [0, 8] {
            let node = folder.path().join(format!("sys/devices/system/node/node{number}"));
            std::fs::create_dir_all(&node).unwrap();
            std::fs::write(node.join("meminfo"), format!("Node {number} MemTotal:       4 kB\n")).unwrap();
        }
        std::fs::write(folder.path().join("sys/devices/system/node/online"), "0,8\n").unwrap();
        let found = nodes(&Root::new(folder.path()));
        assert_eq!(found, [("node 0".to_owned(), 4096), ("node 8".to_owned(), 4096)]);
    }
}
