//! What the machine gives: memory there is and memory available, limits of the process, shared memory; and which limit binds.

use std::fmt;
use std::path::PathBuf;

use plimsoll::Bytes;
use serde::Serialize;

use super::files::{Root, field, plain_field};
use super::groups::Groups;
use super::process::ProcessMemory;

/// Where a limit on memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `--memory`.
    Asked,
    /// The file of a control group, this process's own or a parent's.
    ControlGroup(PathBuf),
    /// `MemAvailable`.
    Available,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("--memory"),
            Self::ControlGroup(file) => write!(f, "control group limit {}", file.display()),
            Self::Available => f.write_str("available memory"),
        }
    }
}

/// A limit and who set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The most that may be used.
    pub bytes: Bytes,
    /// Who says so.
    pub source: Source,
}

/// What a control group, or the machine, leaves to this process beside the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The most that this process can hold, and who says so.
    pub limit: Limit,
    /// What all together can hold there.
    pub total: Bytes,
}

/// The machine as seen through the files of `/proc` and `/sys`.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    root: Root,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn new() -> Self {
        Self::default()
    }

    /// A machine whose files lie under `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: Root::new(root) }
    }

    /// Where its files are.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The most that this process can hold: the smallest of what every control group (v2 and v1, own group and parents) and the
    /// machine leave to it beside the others. `None` if the machine tells neither.
    pub fn smallest_limit(&self) -> Option<Limit> {
        self.room().into_iter().map(|room| room.limit).min_by_key(|limit| limit.bytes)
    }

    /// What each control group that sets a limit, and the machine, leave to this process: what is free, and what the process has of it
    /// already.
    pub fn room(&self) -> Vec<Room> {
        let own = ProcessMemory::quick(&self.root).map_or(0, |process| process.unfiled_bytes());
        let room = |left: u64, total: u64, source| {
            // Where the process is accounted elsewhere, as just after it was moved, a group does not leave more than it has.
            Room { limit: Limit { bytes: Bytes(left.saturating_add(own).min(total)), source }, total: Bytes(total) }
        };
        let mut rooms: Vec<Room> = Groups::new(self.root.clone())
            .memories()
            .into_iter()
            .map(|group| room(group.left_bytes(), group.limit_bytes, Source::ControlGroup(group.file.clone())))
            .collect();
        if let Some(memory) = MachineMemory::read(&self.root)
            && let Some(available) = memory.available_bytes
        {
            rooms.push(room(available, memory.total_bytes, Source::Available));
        }
        rooms
    }

    /// The memory that new processes can use without swapping, as the kernel estimates it.
    pub fn available(&self) -> Option<Bytes> {
        MachineMemory::read(&self.root)?.available_bytes.map(Bytes)
    }

    /// The most that this process ever held in RAM (VmHWM).
    pub fn resident_peak(&self) -> Option<Bytes> {
        ProcessMemory::quick(&self.root).map(|memory| Bytes(memory.peak_bytes))
    }

    /// What this process holds in RAM now (VmRSS).
    pub fn resident(&self) -> Option<Bytes> {
        ProcessMemory::quick(&self.root).map(|memory| Bytes(memory.resident_bytes))
    }

    /// Every limit that some control group of this process sets.
    pub fn control_group_limits(&self) -> Vec<Limit> {
        Groups::new(self.root.clone()).limits()
    }
}

/// The memory of the whole machine, from `/proc/meminfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineMemory {
    /// All there is (`MemTotal`).
    pub total_bytes: u64,
    /// What new processes can use without swapping, as the kernel estimates it (`MemAvailable`; since Linux 3.14).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// Shared memory and files in memory, of all processes (`Shmem`): what is in `/dev/shm` counts here.
    pub shared_bytes: u64,
    /// Swap there is.
    pub swap_bytes: u64,
    /// Swap not in use.
    pub swap_free_bytes: u64,
    /// Memory set aside for huge pages.
    pub huge_bytes: u64,
    /// Huge pages that are free.
    pub huge_free_bytes: u64,
    /// Locked by all processes (`Mlocked`).
    pub locked_bytes: u64,
}

impl MachineMemory {
    /// Reads it; `None` where there is no `/proc/meminfo`.
    pub fn read(root: &Root) -> Option<Self> {
        let text = root.read("proc/meminfo")?;
        let of = |name| field(&text, name).unwrap_or(0);
        let pages = |name| plain_field(&text, name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let huge = of("Hugepagesize");
        Some(Self {
            total_bytes: of("MemTotal"),
            available_bytes: field(&text, "MemAvailable"),
            shared_bytes: of("Shmem"),
            swap_bytes: of("SwapTotal"),
            swap_free_bytes: of("SwapFree"),
            huge_bytes: pages("HugePages_Total").saturating_mul(huge),
            huge_free_bytes: pages("HugePages_Free").saturating_mul(huge),
            locked_bytes: of("Mlocked"),
        })
    }
}

/// Limits that the process itself has, and the room for shared memory. `None` in a field: there is no limit, or it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessLimits {
    /// The most that may be locked or pinned (`RLIMIT_MEMLOCK`).
    pub locked_bytes: Option<u64>,
    /// The most address space (`RLIMIT_AS`). Reported, not used: addresses are not memory.
    pub address_space_bytes: Option<u64>,
    /// The most data segment (`RLIMIT_DATA`).
    pub data_bytes: Option<u64>,
    /// The size of `/dev/shm`.
    pub shm_bytes: Option<u64>,
    /// What is free in `/dev/shm`.
    pub shm_free_bytes: Option<u64>,
}

impl ProcessLimits {
    /// Reads them.
    pub fn read(root: &Root) -> Self {
        let limits = root.read("proc/self/limits").unwrap_or_default();
        // `Max locked memory         8388608              8388608              bytes`: the soft limit is the first.
        let soft = |name: &str| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        let shm = rustix::fs::statvfs(root.path("dev/shm")).ok();
        Self {
            locked_bytes: soft("Max locked memory"),
            address_space_bytes: soft("Max address space"),
            data_bytes: soft("Max data size"),
            shm_bytes: shm.as_ref().map(|shm| shm.f_blocks.saturating_mul(shm.f_frsize)),
            shm_free_bytes: shm.as_ref().map(|shm| shm.f_bavail.saturating_mul(shm.f_frsize)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::Tree;
    use super::*;

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\nShmem: 5 kB\nSwapTotal: 7 kB\n\
         SwapFree: 6 kB\nHugePages_Total:       4\nHugePages_Free:        1\nHugepagesize:       2048 kB\nMlocked: 3 kB\n",
    );

    fn machine(tree: &Tree) -> Machine {
        Machine { root: tree.root() }
    }

    #[test]
    fn available_memory_without_control_groups() {
        let tree = Tree::new(&[MEMINFO]);
        let limit = Limit { bytes: Bytes(8_000_000 * 1024), source: Source::Available };
        assert_eq!(machine(&tree).smallest_limit(), Some(limit));
    }

    #[test]
    fn a_control_group_binds_where_it_is_smaller() {
        let tree = Tree::new(&[
            MEMINFO,
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
        ]);
        assert_eq!(machine(&tree).smallest_limit().unwrap().bytes, Bytes(1 << 30));
        // What others of the group use cannot be had; what this process has already is its own.
        tree.write("sys/fs/cgroup/a/memory.current", "873741824\n");
        assert_eq!(machine(&tree).smallest_limit().unwrap().bytes, Bytes(200_000_000));
        tree.write("proc/self/status", "VmRSS:\t 100 kB\nRssAnon:\t 90 kB\n");
        assert_eq!(machine(&tree).smallest_limit().unwrap().bytes, Bytes(200_000_000 + (90 << 10)));
        tree.write("sys/fs/cgroup/a/memory.current", "0\n");
        assert_eq!(machine(&tree).smallest_limit().unwrap().bytes, Bytes(1 << 30), "never more than the limit");
        tree.write("sys/fs/cgroup/a/memory.max", "99073741824\n");
        assert_eq!(machine(&tree).smallest_limit().unwrap().source, Source::Available);
    }

    #[test]
    fn meminfo_is_read() {
        let memory = MachineMemory::read(&Tree::new(&[MEMINFO]).root()).unwrap();
        let expected = MachineMemory {
            total_bytes: 16_000_000 << 10,
            available_bytes: Some(8_000_000 << 10),
            shared_bytes: 5 << 10,
            swap_bytes: 7 << 10,
            swap_free_bytes: 6 << 10,
            huge_bytes: 8 << 20,
            huge_free_bytes: 2 << 20,
            locked_bytes: 3 << 10,
        };
        assert_eq!(memory, expected);
        // Kernels before 3.14 do not estimate what is available: that is unknown, not zero.
        let old = Tree::new(&[("proc/meminfo", "MemTotal: 8 kB\n")]);
        assert_eq!(MachineMemory::read(&old.root()).unwrap().available_bytes, None);
        assert_eq!(machine(&old).smallest_limit(), None);
    }

    #[test]
    fn limits_of_the_process() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max data size             unlimited            unlimited            bytes     \n\
                    Max locked memory         8388608              unlimited            bytes     \n\
                    Max address space         1073741824           unlimited            bytes     \n";
        let limits = ProcessLimits::read(&Tree::new(&[("proc/self/limits", text), ("dev/shm/x", "")]).root());
        assert_eq!(limits.locked_bytes, Some(8 << 20));
        assert_eq!(limits.address_space_bytes, Some(1 << 30));
        assert_eq!(limits.data_bytes, None);
        assert!(limits.shm_bytes > Some(0) && limits.shm_free_bytes <= limits.shm_bytes);
        assert_eq!(ProcessLimits::read(&Tree::new(&[]).root()), ProcessLimits::default());
    }

    #[test]
    fn own_memory_is_read() {
        let machine = Machine::new();
        let (resident, peak) = (machine.resident().unwrap(), machine.resident_peak().unwrap());
        assert!(Bytes(0) < resident && resident <= peak);
    }

    #[test]
    fn a_machine_that_tells_nothing_has_no_limit() {
        assert_eq!(machine(&Tree::new(&[])).smallest_limit(), None);
    }
}
