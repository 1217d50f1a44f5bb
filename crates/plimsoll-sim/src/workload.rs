//! A workload: a machine, what is done on it, when it arrives, and who decides what may start.
//!
//! It is read from a TOML file ([`Workload::read`]; the format is in the crate's README), or made from a trace.

mod arrivals;
mod check;
mod classes;
mod error;
mod file;
mod observed;
mod policy;
mod setting;
mod streams;
mod values;

use std::sync::Arc;

use plimsoll::{Class, Space};

pub use self::arrivals::{Arrivals, Stream};
pub use self::error::WorkloadError;
pub use self::observed::{Judged, Observed, Row};
pub use self::policy::{Policy, PolicyKind};
pub use self::setting::{CircuitSetting, Setting};
use crate::Nanos;
use crate::random::Times;

/// More bytes than any machine has, so that sums of a few of them fit 64 bits.
pub(crate) const SIZE_MAX: u64 = 1 << 50;

/// Everything that a simulation needs to know.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// The machine.
    pub machine: Machine,
    /// What is loaded once and shared.
    pub residencies: Vec<Residency>,
    /// The kinds of jobs.
    pub circuits: Vec<Circuit>,
    /// When they arrive.
    pub streams: Vec<Stream>,
    /// Who decides.
    pub policy: Policy,
    /// What chance starts from.
    pub seed: u64,
}

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Host memory.
    pub memory: u64,
    /// What others than the prover hold of it: beyond the rest of `memory` the kernel kills.
    pub others: u64,
    /// What the prover holds beside all that is modelled: code, stacks, runtime.
    pub runtime: u64,
    /// How much of host memory may be pinned.
    pub pinned: u64,
    /// How many stages run on the CPU at a time.
    pub workers: u64,
    /// How much slower a stage with `bandwidth` becomes by each other one that runs beside it: billionths of its time alone.
    pub slowdown_ppb: u64,
    /// Bytes a second between host and device.
    pub pcie: u64,
    /// How many devices there are, all alike.
    pub devices: u16,
    /// The memory of each.
    pub device_memory: u64,
    /// Threads that feed each device: how many jobs may be on it.
    pub lanes: u64,
}

impl Machine {
    /// How long it takes to move so many bytes over PCIe.
    pub fn transfer(&self, bytes: u64) -> Nanos {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.pcie.max(1));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Something that is loaded once and shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Residency {
    /// Its name.
    pub name: Arc<str>,
    /// The class of its bytes.
    pub class: Class,
    /// Its size.
    pub bytes: u64,
    /// How long a load takes.
    pub load: Nanos,
    /// It is there when the simulation begins.
    pub preloaded: bool,
}

/// A kind of job.
#[derive(Clone, Debug, PartialEq)]
pub struct Circuit {
    /// Its name.
    pub name: Arc<str>,
    /// How many jobs make a proof.
    pub parts: u32,
    /// Higher goes first.
    pub priority: i32,
    /// It may use the urgent reserve.
    pub urgent: bool,
    /// When a proof is late.
    pub deadline: Option<Nanos>,
    /// The residencies it needs, by index.
    pub needs: Vec<usize>,
    /// What is done, in order.
    pub stages: Vec<Stage>,
}

/// Where a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// On the CPU.
    Worker,
    /// On a lane of a device, without computing on it: staging.
    Lane,
    /// On a lane of a device, with the lease to compute.
    Device,
    /// Elsewhere: a thread or a future of its own, of which there are as many as there are jobs.
    Outside,
}

impl Site {
    /// Whether it is on a lane of a device.
    pub fn is_on_device(self) -> bool {
        matches!(self, Site::Lane | Site::Device)
    }
}

/// A stage of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// Where it runs.
    pub on: Site,
    /// How many jobs may be in it at once, where that is limited.
    pub at_most: Option<u64>,
    /// How long it takes alone.
    pub time: Times,
    /// What it moves over PCIe, on top of that.
    pub pcie: u64,
    /// How much it competes for memory bandwidth, in millionths of an ordinary stage.
    pub bandwidth_ppm: u64,
    /// What it makes.
    pub takes: Vec<Take>,
    /// What it holds and is gone when it ends: all bytes of a class, or so many.
    pub frees: Vec<(Class, Option<u64>)>,
    /// Of a thousand million runs, how many fail: then the job is lost.
    pub failing_ppb: u64,
}

/// Bytes that a stage makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// The class; of a device's memory that of device 0.
    pub class: Class,
    /// How many.
    pub bytes: u64,
    /// They grow from nothing while the stage runs; otherwise all are there when it begins.
    pub grows: bool,
    /// They are gone when it ends.
    pub scratch: bool,
}

/// What a job holds in a stage: see [`Circuit::holdings`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// At most while it runs, by class.
    pub peak: Vec<(Class, u64)>,
    /// When it has ended.
    pub keep: Vec<(Class, u64)>,
}

impl Circuit {
    /// What a job holds stage by stage, following what each takes and frees.
    pub fn holdings(&self) -> Vec<Holdings> {
        let mut held: Vec<(Class, u64)> = Vec::new();
        let mut all = Vec::new();
        for stage in &self.stages {
            let mut peak = held.clone();
            for take in &stage.takes {
                add(&mut peak, take.class, take.bytes);
            }
            for take in stage.takes.iter().filter(|take| !take.scratch) {
                add(&mut held, take.class, take.bytes);
            }
            for &(class, bytes) in &stage.frees {
                for entry in held.iter_mut().filter(|entry| entry.0 == class) {
                    entry.1 = entry.1.saturating_sub(bytes.unwrap_or(u64::MAX));
                }
            }
            held.retain(|entry| entry.1 > 0);
            all.push(Holdings { peak, keep: held.clone() });
        }
        // Whatever is left goes with the job.
        if let Some(last) = all.last_mut() {
            last.keep.clear();
        }
        all
    }

    /// The first stage on a device.
    pub fn device_stage(&self) -> Option<usize> {
        self.stages.iter().position(|stage| stage.on.is_on_device())
    }

    /// The same, but that what stages on a device free of host memory stays until the job ends: data kept alive past its last use.
    pub fn without_early_free(&self) -> Circuit {
        let mut circuit = self.clone();
        let from = circuit.device_stage().unwrap_or(0);
        for stage in &mut circuit.stages[from..] {
            stage.frees.retain(|entry| entry.0.space().device_number().is_some());
        }
        circuit
    }
}

fn add(held: &mut Vec<(Class, u64)>, class: Class, bytes: u64) {
    match held.iter_mut().find(|entry| entry.0 == class) {
        Some(entry) => entry.1 = entry.1.saturating_add(bytes),
        None => held.push((class, bytes)),
    }
}

/// Host bytes among some, pinned ones included.
pub(crate) fn on_host(held: &[(Class, u64)]) -> u64 {
    let host = held.iter().filter(|entry| entry.0.space().device_number().is_none());
    host.fold(0, |sum, entry| sum.saturating_add(entry.1))
}

/// The class of the same name on another device, where it is a device's.
pub(crate) fn on_device(class: Class, device: u16) -> Class {
    match class.space().device_number() {
        Some(_) => Class::new(class.name(), Space::device(device)),
        None => class,
    }
}

impl Workload {
    /// Reads a workload file.
    ///
    /// # Errors
    ///
    /// With file, line and what to write instead, if it cannot be read, is no TOML, says something unknown or contradictory, or
    /// asks for more than its machine has.
    pub fn read(path: &std::path::Path) -> Result<Workload, WorkloadError> {
        let name = path.display().to_string();
        let text = error::read(path, "name a workload file; docs/examples/workloads has some")?;
        Workload::parse(&name, &text)
    }

    /// The same from a text; `file` is what errors call it.
    ///
    /// # Errors
    ///
    /// As [`read`](Workload::read).
    pub fn parse(file: &str, text: &str) -> Result<Workload, WorkloadError> {
        file::parse(file, text)
    }

    /// Whether the policy's budget is enough for the largest job, alone with what it needs.
    ///
    /// # Errors
    ///
    /// Where it is not, with what it takes.
    pub fn fits(&self) -> Result<(), String> {
        let Some(budget) = self.policy.kind.budget() else { return Ok(()) };
        let (least, beside) = match self.policy.kind {
            PolicyKind::Plimsoll { urgent_reserve: 1.., .. } => {
                (crate::plan::smallest_budget(self), "what it needs, the runtime and the urgent reserve")
            }
            PolicyKind::Plimsoll { .. } => (crate::plan::smallest_budget(self), "what it needs and the runtime"),
            _ => (crate::engine::smallest_peer_budget(self), "all residencies and the runtime"),
        };
        if budget >= least {
            return Ok(());
        }
        Err(format!(
            "a budget of {} is too small for the largest job: it takes {} with {beside}",
            plimsoll::Bytes(budget),
            plimsoll::Bytes(least)
        ))
    }

    /// What residencies take, all together.
    pub fn resident_bytes(&self) -> u64 {
        self.residencies.iter().fold(0, |sum: u64, residency| sum.saturating_add(residency.bytes))
    }
}
