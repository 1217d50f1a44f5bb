//! What this process holds, as the kernel counts it.

use serde::Serialize;

use super::files::{Root, field, plain_field};

/// Above this the exact count is not asked for: the kernel walks all page tables for it, with the lock held that `mmap` needs.
const EXACT_RESIDENT_MAX: u64 = 256 << 20;

/// What this process holds now, from `/proc/self/{status,stat,smaps_rollup}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessMemory {
    /// All that is resident (`VmRSS`, and huge pages of the pool, `HugetlbPages`): the sum of the next three.
    pub resident_bytes: u64,
    /// Anonymous pages: heap, stacks, private mappings that were written to (`RssAnon`), and huge pages of the pool.
    pub anonymous_bytes: u64,
    /// Pages of mapped files, the program's code among them (`RssFile`).
    pub file_bytes: u64,
    /// Shared memory (`RssShmem`). Pinned memory shows up here with some drivers.
    pub shared_bytes: u64,
    /// The most that was ever resident (`VmHWM`). Not `ru_maxrss`, which a program inherits from whoever started it.
    pub peak_bytes: u64,
    /// What was swapped out (`VmSwap`).
    pub swapped_bytes: u64,
    /// What is locked or pinned (`VmLck` and `VmPin`).
    pub locked_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Page faults that needed no reading.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Freed with `MADV_FREE` and not taken back by the kernel yet; counts as resident. Known of small processes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lazily_freed_bytes: Option<u64>,
    /// In transparent huge pages. Known of small processes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_bytes: Option<u64>,
}

impl ProcessMemory {
    /// Reads it; `None` where there is no `/proc/self/status`, or no `VmRSS` in it.
    pub fn read(root: &Root) -> Option<Self> {
        let mut memory = Self::quick(root)?;
        if memory.resident_bytes <= EXACT_RESIDENT_MAX
            && let Some(rollup) = root.read("proc/self/smaps_rollup")
        {
            memory.lazily_freed_bytes = field(&rollup, "LazyFree");
            memory.huge_bytes = field(&rollup, "AnonHugePages");
        }
        Some(memory)
    }

    /// Reads what costs the same however much the process holds.
    pub fn quick(root: &Root) -> Option<Self> {
        let status = root.read("proc/self/status")?;
        let resident = field(&status, "VmRSS")?;
        let part = |name| field(&status, name).unwrap_or(0);
        // Pages of the pool of huge ones are none of VmRSS; they are memory of the process all the same.
        let pool = part("HugetlbPages");
        // Kernels before 4.5 do not split it.
        let anonymous = field(&status, "RssAnon").unwrap_or(resident).saturating_add(pool);
        let resident = resident.saturating_add(pool);
        let (minor, major) = root.read("proc/self/stat").as_deref().and_then(faults).unwrap_or((0, 0));
        Some(Self {
            resident_bytes: resident,
            anonymous_bytes: anonymous,
            file_bytes: part("RssFile"),
            shared_bytes: part("RssShmem"),
            peak_bytes: part("VmHWM").max(resident),
            swapped_bytes: part("VmSwap"),
            locked_bytes: part("VmLck") + part("VmPin"),
            threads: plain_field(&status, "Threads").and_then(|text| text.parse().ok()).unwrap_or(0),
            minor_faults: minor,
            major_faults: major,
            ..Self::default()
        })
    }

    /// What buffers are made of: everything but the pages of files.
    pub fn unfiled_bytes(&self) -> u64 {
        self.anonymous_bytes + self.shared_bytes
    }
}

/// Minor and major faults, from `/proc/self/stat`. The second field is the program's name in brackets, and may contain both
/// spaces and brackets.
fn faults(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    // The first is field 3 of proc_pid_stat(5); minflt is field 10, majflt field 12.
    let minor = fields.nth(7)?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some((minor, major))
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::Tree;
    use super::*;

    const STATUS: &str = "Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t  700 kB\nRssAnon:\t 400 kB\nRssFile:\t 250 kB\n\
                          RssShmem:\t  50 kB\nVmLck:\t 8 kB\nVmPin:\t 4 kB\nVmSwap:\t 12 kB\nThreads:\t5\n";

    #[test]
    fn everything_is_read() {
        let tree = Tree::new(&[
            ("proc/self/status", STATUS),
            ("proc/self/stat", "7 (a) b (c) S 1 2 3 4 5 6 77 8 99 10 11 12\n"),
            ("proc/self/smaps_rollup", "AnonHugePages: 64 kB\nLazyFree:   20 kB\n"),
        ]);
        let memory = ProcessMemory::read(&tree.root()).unwrap();
        let kib = |kib: u64| kib << 10;
        let expected = ProcessMemory {
            resident_bytes: kib(700),
            anonymous_bytes: kib(400),
            file_bytes: kib(250),
            shared_bytes: kib(50),
            peak_bytes: kib(900),
            swapped_bytes: kib(12),
            locked_bytes: kib(12),
            threads: 5,
            minor_faults: 77,
            major_faults: 99,
            lazily_freed_bytes: Some(kib(20)),
            huge_bytes: Some(kib(64)),
        };
        assert_eq!(memory, expected);
    }

    /// A thread may have any bytes for a name; that is no reason to see nothing.
    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let tree = Tree::new(&[]);
        tree.write("proc/self/status", [&b"Name:\tx\xff\xfe\n"[..], STATUS.as_bytes()].concat());
        tree.write("proc/self/stat", b"7 (a\xff) S 1 2 3 4 5 6 77 8 99 10 11 12\n");
        let memory = ProcessMemory::read(&tree.root()).unwrap();
        assert_eq!((memory.resident_bytes, memory.minor_faults, memory.major_faults), (700 << 10, 77, 99));
    }

    #[test]
    fn an_old_or_strange_kernel_tells_less() {
        let tree = Tree::new(&[("proc/self/status", "VmRSS:\t 700 kB\n"), ("proc/self/stat", "garbage")]);
        let memory = ProcessMemory::read(&tree.root()).unwrap();
        assert_eq!((memory.anonymous_bytes, memory.peak_bytes, memory.minor_faults), (700 << 10, 700 << 10, 0));
        assert_eq!(ProcessMemory::read(&Tree::new(&[("proc/self/status", "Name: kthread\n")]).root()), None);
        assert_eq!(ProcessMemory::read(&Tree::new(&[]).root()), None);
    }

    #[test]
    fn huge_pages_of_the_pool_are_memory_too() {
        let tree = Tree::new(&[("proc/self/status", "VmRSS:\t 700 kB\nRssAnon:\t 400 kB\nHugetlbPages:\t 2048 kB\n")]);
        let memory = ProcessMemory::read(&tree.root()).unwrap();
        assert_eq!((memory.resident_bytes, memory.anonymous_bytes), (2748 << 10, 2448 << 10));
    }

    #[test]
    fn a_large_process_is_not_walked() {
        let large = "VmRSS:\t 1048576 kB\n";
        let tree = Tree::new(&[("proc/self/status", large), ("proc/self/smaps_rollup", "LazyFree: 20 kB\n")]);
        assert_eq!(ProcessMemory::read(&tree.root()).unwrap().lazily_freed_bytes, None);
    }

    #[test]
    fn touching_memory_shows() {
        let before = ProcessMemory::quick(&Root::default()).unwrap();
        let buffer = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = ProcessMemory::quick(&Root::default()).unwrap();
        assert!(after.anonymous_bytes >= before.anonymous_bytes + (60 << 20), "{before:?} {after:?}");
        assert!(after.minor_faults > before.minor_faults);
        drop(buffer);
    }
}
