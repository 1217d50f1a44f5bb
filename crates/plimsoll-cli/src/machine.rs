//! What the machine gives: memory limits of the control groups, memory available, and what this process holds.
//!
//! Everything is read from `/proc` and the control-group mounts, under a root that tests replace.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll::Bytes;

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

/// The machine as seen through the files of `/proc` and `/sys`.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// The machine that this process runs on.
    pub fn new() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// A machine whose files lie under `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The smallest of all control-group limits (v2 and v1, own group and parents) and the memory available. `None` if the
    /// machine tells neither.
    pub fn smallest_limit(&self) -> Option<Limit> {
        let mut limits = self.control_group_limits();
        if let Some(bytes) = self.available() {
            limits.push(Limit { bytes, source: Source::Available });
        }
        limits.into_iter().min_by_key(|limit| limit.bytes)
    }

    /// The memory that new processes can use without swapping, as the kernel estimates it.
    pub fn available(&self) -> Option<Bytes> {
        field(&self.read("proc/meminfo")?, "MemAvailable")
    }

    /// The most that this process ever held in RAM (VmHWM).
    pub fn resident_peak(&self) -> Option<Bytes> {
        field(&self.read("proc/self/status")?, "VmHWM")
    }

    /// What this process holds in RAM now (VmRSS).
    pub fn resident(&self) -> Option<Bytes> {
        field(&self.read("proc/self/status")?, "VmRSS")
    }

    /// Every limit that some control group of this process sets.
    pub fn control_group_limits(&self) -> Vec<Limit> {
        let (Some(groups), Some(mounts)) = (self.read("proc/self/cgroup"), self.read("proc/self/mountinfo")) else {
            return Vec::new();
        };
        let mut limits = Vec::new();
        for mount in mounts.lines().filter_map(Mount::parse) {
            for group in groups.lines().filter_map(|line| mount.group_of(line)) {
                // The own group first, then its parents up to the mount.
                for directory in group.ancestors().take_while(|directory| directory.starts_with(&mount.point)) {
                    limits.extend(
                        mount.version.limit_files().iter().filter_map(|name| self.limit(&directory.join(name))),
                    );
                }
            }
        }
        limits
    }

    fn limit(&self, file: &Path) -> Option<Limit> {
        let text = self.read(file.strip_prefix("/").unwrap_or(file))?;
        // Version 2 writes "max" for none; version 1 writes the largest multiple of a page in 63 bits.
        let bytes = text.trim().parse::<u64>().ok().filter(|bytes| *bytes < 1 << 62)?;
        Some(Limit { bytes: Bytes(bytes), source: Source::ControlGroup(file.to_owned()) })
    }

    fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }
}

/// The value of `name: … kB`, in bytes.
fn field(text: &str, name: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib.checked_mul(1024)?))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl Version {
    fn limit_files(self) -> &'static [&'static str] {
        match self {
            Self::One => &["memory.limit_in_bytes"],
            // Above `high` the kernel throttles the process instead of ending it: a limit all the same.
            Self::Two => &["memory.max", "memory.high"],
        }
    }
}

/// A control-group hierarchy that can limit memory, and where it is mounted.
#[derive(Debug)]
struct Mount {
    version: Version,
    /// The group that is visible at the mount point.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// Parses a line of mountinfo (proc(5)): `id parent dev root point options [tags…] - type source super-options`.
    fn parse(line: &str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Self { version, root: PathBuf::from(unescape(root)), point: PathBuf::from(unescape(point)) })
    }

    /// The directory of this process's group, from a line of `/proc/self/cgroup`: `id:controllers:path`.
    fn group_of(&self, line: &str) -> Option<PathBuf> {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = match self.version {
            Version::Two => id == "0" && controllers.is_empty(),
            Version::One => controllers.split(',').any(|controller| controller == "memory"),
        };
        if !ours {
            return None;
        }
        // In a container the path may be seen from outside, or lie outside: then the mount itself is the best that is known.
        let inside = Path::new(path).strip_prefix(&self.root).unwrap_or(Path::new(""));
        Some(if inside.components().any(|part| part == std::path::Component::ParentDir) {
            self.point.clone()
        } else {
            self.point.join(inside)
        })
    }
}

/// mountinfo writes spaces, tabs, newlines and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .into_iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new(files: &[(&str, &str)]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = directory.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(directory)
        }

        fn machine(&self) -> Machine {
            Machine::at(self.0.path())
        }
    }

    fn check(files: &[(&str, &str)], bytes: u64, source: &str) {
        let fake = Fake::new(files);
        let limit = fake.machine().smallest_limit().expect("a limit");
        assert_eq!((limit.bytes, limit.source.to_string().as_str()), (Bytes(bytes), source));
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n");
    const V2: (&str, &str) =
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    const V1: (&str, &str) = (
        "proc/self/mountinfo",
        "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
         35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n",
    );

    #[test]
    fn available_memory_without_control_groups() {
        check(&[MEMINFO], 8_000_000 * 1024, "available memory");
    }

    #[test]
    fn own_group_of_version_2() {
        let files = [
            MEMINFO,
            V2,
            ("proc/self/cgroup", "0::/user.slice/a.scope\n"),
            ("sys/fs/cgroup/user.slice/a.scope/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/user.slice/a.scope/memory.high", "max\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
        ];
        check(&files, 1 << 30, "control group limit /sys/fs/cgroup/user.slice/a.scope/memory.max");
    }

    #[test]
    fn parents_of_version_2_count() {
        let files = [
            MEMINFO,
            V2,
            ("proc/self/cgroup", "0::/user.slice/a.scope/deep\n"),
            ("sys/fs/cgroup/user.slice/a.scope/deep/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/a.scope/memory.max", "4294967296\n"),
            ("sys/fs/cgroup/user.slice/memory.high", "2147483648\n"),
        ];
        check(&files, 2 << 30, "control group limit /sys/fs/cgroup/user.slice/memory.high");
    }

    #[test]
    fn parents_of_version_1_count_and_its_no_limit_does_not() {
        let files = [
            MEMINFO,
            V1,
            ("proc/self/cgroup", "4:memory:/jobs/7\n1:cpu:/\n0::/\n"),
            ("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "3221225472\n"),
        ];
        check(&files, 3 << 30, "control group limit /sys/fs/cgroup/memory/jobs/memory.limit_in_bytes");
    }

    #[test]
    fn group_seen_from_outside_its_container() {
        let files = [
            MEMINFO,
            (
                "proc/self/mountinfo",
                "35 31 0:32 /docker/f00 /sys/fs/cgroup/memory ro master:11 - cgroup cgroup rw,memory\n",
            ),
            ("proc/self/cgroup", "4:memory:/docker/f00\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
        ];
        check(&files, 512 << 20, "control group limit /sys/fs/cgroup/memory/memory.limit_in_bytes");
    }

    #[test]
    fn group_outside_the_namespace_takes_the_mount() {
        let files = [
            MEMINFO,
            V2,
            ("proc/self/cgroup", "0::/../other\n"),
            ("sys/fs/cgroup/memory.max", "268435456\n"),
            ("sys/fs/other/memory.max", "1\n"),
        ];
        check(&files, 256 << 20, "control group limit /sys/fs/cgroup/memory.max");
    }

    #[test]
    fn own_memory_is_read() {
        let machine = Machine::new();
        let (resident, peak) = (machine.resident().unwrap(), machine.resident_peak().unwrap());
        assert!(Bytes(0) < resident && resident <= peak);
    }

    #[test]
    fn a_machine_that_tells_nothing_has_no_limit() {
        assert_eq!(Fake::new(&[]).machine().smallest_limit(), None);
    }
}
