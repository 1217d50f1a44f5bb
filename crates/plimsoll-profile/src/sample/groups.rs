//! Control groups, version 1 and 2: the limits on memory that they set, with all parents, and what is used of them.
//!
//! A process can be moved, and a limit changed, while it runs. [`Groups`] keeps the list of directories between readings, and
//! makes it anew when `/proc/self/cgroup` says something else than before; limits and usage are read every time.

use std::path::{Component, Path, PathBuf};

use plimsoll::Bytes;
use serde::Serialize;

use super::files::Root;
use super::machine::{Limit, Source};

/// The control groups that this process is in, and their parents.
#[derive(Clone, Debug)]
pub struct Groups {
    root: Root,
    /// `/proc/self/cgroup` when the list was made.
    membership: String,
    directories: Vec<Directory>,
}

/// What is used of the control group that has the least left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupMemory {
    /// The file with the limit.
    pub file: PathBuf,
    /// The limit.
    pub limit_bytes: u64,
    /// What all its processes use, the pages of files included.
    pub used_bytes: u64,
    /// The part of it that the kernel takes back before it kills: pages of files that were not used lately.
    pub reclaimable_bytes: u64,
    /// Anonymous memory of all its processes, pages of files and shared memory left out; `None` where the kernel does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anonymous_bytes: Option<u64>,
    /// How often a process of it was killed for want of memory; version 2 only.
    pub oom_kills: u64,
}

impl GroupMemory {
    /// What can still be had before the kernel kills.
    pub fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes.saturating_sub(self.reclaimable_bytes))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Directory {
    version: Version,
    path: PathBuf,
}

impl Groups {
    /// The groups that the process is in now.
    pub fn new(root: Root) -> Self {
        let mut groups = Self { root, membership: String::new(), directories: Vec::new() };
        groups.refresh();
        groups
    }

    /// Looks whether the process was moved to other groups; says whether it was.
    pub fn refresh(&mut self) -> bool {
        let membership = self.root.read("proc/self/cgroup").unwrap_or_default();
        if membership == self.membership {
            return false;
        }
        let mounts = self.root.read("proc/self/mountinfo").unwrap_or_default();
        let mut directories = Vec::new();
        for mount in mounts.lines().filter_map(Mount::parse) {
            for group in membership.lines().filter_map(|line| mount.group_of(line)) {
                // The own group first, then its parents up to the mount.
                for path in group.ancestors().take_while(|path| path.starts_with(&mount.point)) {
                    let directory = Directory { version: mount.version, path: path.to_owned() };
                    // A hierarchy can be mounted twice.
                    if !directories.contains(&directory) {
                        directories.push(directory);
                    }
                }
            }
        }
        self.directories = directories;
        self.membership = membership;
        true
    }

    /// Every limit that one of them sets, the own group's first.
    pub fn limits(&self) -> Vec<Limit> {
        self.directories.iter().flat_map(|directory| directory.limits(&self.root)).map(|(_, limit)| limit).collect()
    }

    /// Every one that sets a limit, with what is used of it, the own group's first.
    pub fn memories(&self) -> Vec<GroupMemory> {
        let limits = self.directories.iter().flat_map(|directory| directory.limits(&self.root));
        let memories = limits.filter_map(|(directory, limit)| {
            let Source::ControlGroup(file) = limit.source else { return None };
            Some(directory.usage(&self.root, file, limit.bytes.0))
        });
        memories.collect()
    }

    /// What is used of the one that has the least left; `None` where none sets a limit.
    pub fn tightest(&self) -> Option<GroupMemory> {
        self.memories().into_iter().min_by_key(GroupMemory::left_bytes)
    }
}

impl Directory {
    fn limits<'d>(&'d self, root: &'d Root) -> impl Iterator<Item = (&'d Self, Limit)> {
        let limit = move |file: PathBuf, bytes: Option<u64>| {
            // Version 2 writes "max" for none; version 1 writes the largest multiple of a page in 63 bits.
            let bytes = bytes.filter(|bytes| *bytes < 1 << 62)?;
            Some((self, Limit { bytes: Bytes(bytes), source: Source::ControlGroup(file) }))
        };
        let own = self.version.limit_files().iter().filter_map(move |name| {
            let file = self.path.join(name);
            limit(file.clone(), root.number(&file))
        });
        // Version 1 tells here what the parents allow as well, also those that cannot be seen from inside a container.
        let of_parents = (self.version == Version::One).then(|| self.path.join("memory.stat"));
        let of_parents = of_parents.and_then(move |file| {
            let text = root.read(&file)?;
            let value = text.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?;
            limit(file, value.trim().parse().ok())
        });
        own.chain(of_parents)
    }

    fn usage(&self, root: &Root, file: PathBuf, limit_bytes: u64) -> GroupMemory {
        let (current, inactive, anonymous) = match self.version {
            Version::One => ("memory.usage_in_bytes", "total_inactive_file ", "total_rss "),
            Version::Two => ("memory.current", "inactive_file ", "anon "),
        };
        let of = |text: Option<&str>, name: &str| -> Option<u64> {
            let value = text.and_then(|text| text.lines().find_map(|line| line.strip_prefix(name)));
            value.and_then(|value| value.trim().parse().ok())
        };
        let stat = root.read(self.path.join("memory.stat"));
        GroupMemory {
            file,
            limit_bytes,
            used_bytes: root.number(self.path.join(current)).unwrap_or(0),
            reclaimable_bytes: of(stat.as_deref(), inactive).unwrap_or(0),
            anonymous_bytes: of(stat.as_deref(), anonymous),
            oom_kills: of(root.read(self.path.join("memory.events")).as_deref(), "oom_kill ").unwrap_or(0),
        }
    }
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
        Some(if inside.components().any(|part| part == Component::ParentDir) {
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
mod tests;
