//! The kernel's files, under a root that tests replace by a tree of their own.

use std::fs;
use std::path::{Path, PathBuf};

/// Where `/proc`, `/sys` and `/dev` are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self::new("/")
    }
}

impl Root {
    /// A root; `/` for the machine that this process runs on.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where a file really lies. An absolute path is taken from the root as well.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file; `None` where it cannot be read, because what one kernel tells another does not. Names of processes and
    /// paths in it may be any bytes: what is no UTF-8 is replaced, and the rest is read.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The one number in a file; `None` for `max` and whatever else is no number.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }
}

/// The value of `name: … kB`, in bytes.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let kib = plain_field(text, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kib.checked_mul(1024)
}

/// The value of `name: …`.
pub(crate) fn plain_field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree of files as a kernel would show them.
    #[derive(Debug)]
    pub(crate) struct Tree(tempfile::TempDir);

    impl Tree {
        pub(crate) fn new(files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (path, text) in files {
                tree.write(path, text);
            }
            tree
        }

        pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub(crate) fn root(&self) -> Root {
            Root::new(self.0.path())
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "VmRSSX:\t 7 kB\nVmRSS:\t  12 kB\nThreads:\t3\nHuge: 99999999999999999999 kB\nOdd: 5 MB\n";
        assert_eq!(field(text, "VmRSS"), Some(12 << 10));
        assert_eq!(plain_field(text, "Threads"), Some("3"));
        for absent in ["VmHWM", "Huge", "Odd", "Threads"] {
            assert_eq!(field(text, absent), None, "{absent}");
        }
    }

    #[test]
    fn absolute_paths_stay_under_the_root() {
        let tree = Tree::new(&[("sys/fs/cgroup/memory.max", "12\n"), ("sys/fs/cgroup/memory.high", "max\n")]);
        assert_eq!(tree.root().number("/sys/fs/cgroup/memory.max"), Some(12));
        assert_eq!(tree.root().number("/sys/fs/cgroup/memory.high"), None);
        assert_eq!(tree.root().number("/sys/fs/cgroup/memory.low"), None);
    }
}
