//! Reading the truth: what the kernel, the allocator and the drivers say that this process holds.
//!
//! A [`Reader`] takes one [`Sample`], in well under a millisecond but for a look at all other processes every
//! [`OTHERS_PERIOD`], which takes longer where there are many; a [`Sampler`] is a thread that takes one every
//! [`PERIOD`] and hands it on, to a trace for example. Where nobody starts one, there is neither thread nor cost.
//!
//! All files are read under a root ([`files::Root`]), which tests replace by a tree of their own.
//!
//! | module | what | from |
//! |---|---|---|
//! | [`process`] | resident memory, split; peak; page faults | `/proc/self` |
//! | [`machine`] | memory, swap, limits of the process, shared memory | `/proc`, `/dev/shm` |
//! | [`groups`] | control groups, v1 and v2, with all parents, followed when they change | `/sys/fs/cgroup` |
//! | [`pressure`] | stalls for want of memory | `/proc/pressure` |
//! | [`others`] | other processes, processors | `sysinfo` |
//! | [`allocator`] | jemalloc (feature `jemalloc`), glibc | the allocator |
//! | [`device`] | memory of devices: NVML (feature `nvml`), or a backend's driver | the driver |

pub mod allocator;
pub mod device;
mod fields;
pub mod files;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc;
pub mod groups;
#[cfg(feature = "jemalloc")]
mod jemalloc;
pub mod machine;
#[cfg(feature = "nvml")]
mod nvml;
pub mod others;
pub mod pressure;
pub mod process;
mod sampler;

use std::time::Duration;

use allocator::{Allocator, AllocatorMemory};
use device::{DeviceMemory, Devices};
use files::Root;
use groups::{GroupMemory, Groups};
use machine::MachineMemory;
#[cfg(feature = "nvml")]
pub use nvml::Nvml;
use others::{Others, OthersReader};
use pressure::Pressure;
use process::ProcessMemory;
pub use sampler::{Sampler, holder_lines};

/// How often a [`Sampler`] looks, unless it is told otherwise.
pub const PERIOD: Duration = Duration::from_millis(250);
/// How often the other processes are looked at.
pub const OTHERS_PERIOD: Duration = Duration::from_secs(10);

/// What was seen at one moment. `None`, or empty: not told by this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Nanoseconds since the ledger was made.
    pub time: u64,
    /// This process.
    pub process: Option<ProcessMemory>,
    /// Its allocator.
    pub allocator: Option<AllocatorMemory>,
    /// The machine.
    pub machine: Option<MachineMemory>,
    /// The control group that has the least left.
    pub group: Option<GroupMemory>,
    /// Stalls.
    pub pressure: Option<Pressure>,
    /// Other processes, as they were when they were last looked at.
    pub others: Option<Others>,
    /// Devices.
    pub devices: Vec<DeviceMemory>,
    /// The most that this process is to hold.
    pub line: Option<u64>,
    /// The ledger's limit on host memory.
    pub ledger_limit: Option<u64>,
    /// Requests that wait because host memory is short.
    pub waiting_for_memory: Option<u64>,
}

impl Sample {
    /// The most that can be had now without somebody being killed: available memory, or what is left in a control group.
    pub fn left_bytes(&self) -> Option<u64> {
        let machine = self.machine.and_then(|machine| machine.available_bytes);
        let group = self.group.as_ref().map(GroupMemory::left_bytes);
        machine.into_iter().chain(group).min()
    }
}

/// Takes samples.
#[derive(Debug)]
pub struct Reader {
    root: Root,
    groups: Groups,
    allocator: Option<Box<dyn Allocator>>,
    devices: Vec<Box<dyn Devices>>,
    others: Option<OthersReader>,
    line: Option<u64>,
}

impl Reader {
    /// A reader of this machine, with the allocator that is in use, and without devices.
    pub fn new() -> Self {
        Self { allocator: allocator::detect(), others: Some(OthersReader::new()), ..Self::at(Root::default()) }
    }

    /// A reader of the files under a root, and of nothing else.
    pub fn at(root: Root) -> Self {
        let groups = Groups::new(root.clone());
        Self { root, groups, allocator: None, devices: Vec::new(), others: None, line: None }
    }

    /// Asks another allocator.
    #[must_use]
    pub fn with_allocator(mut self, allocator: Box<dyn Allocator>) -> Self {
        self.allocator = Some(allocator);
        self
    }

    /// Asks a driver about its devices as well.
    #[must_use]
    pub fn with_devices(mut self, devices: Box<dyn Devices>) -> Self {
        self.devices.push(devices);
        self
    }

    /// Notes in every sample the most that the process is to hold.
    #[must_use]
    pub fn with_line(mut self, bytes: u64) -> Self {
        self.line = Some(bytes);
        self
    }

    /// Does not look at other processes.
    #[must_use]
    pub fn without_others(mut self) -> Self {
        self.others = None;
        self
    }

    /// The allocator that is asked.
    pub fn allocator(&self) -> Option<&dyn Allocator> {
        self.allocator.as_deref()
    }

    /// The drivers that are asked.
    pub fn devices(&self) -> impl Iterator<Item = &dyn Devices> {
        self.devices.iter().map(AsRef::as_ref)
    }

    /// Looks now; `time` is the ledger's.
    pub fn sample(&mut self, time: u64) -> Sample {
        self.groups.refresh();
        Sample {
            time,
            process: ProcessMemory::read(&self.root),
            allocator: self.allocator.as_ref().and_then(|allocator| allocator.read()),
            machine: MachineMemory::read(&self.root),
            group: self.groups.tightest(),
            pressure: Pressure::read(&self.root),
            others: self.others.as_mut().and_then(|others| others.read_at_most_old(OTHERS_PERIOD)),
            devices: self.devices.iter_mut().flat_map(|devices| devices.read()).collect(),
            line: self.line,
            ledger_limit: None,
            waiting_for_memory: None,
        }
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

/// A text as a string of JSON.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
