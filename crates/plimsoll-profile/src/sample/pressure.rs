//! Pressure stall information: how long tasks waited for memory (psi(7)).

use std::path::Path;

use serde::Serialize;

use super::files::Root;

/// How much of the last ten seconds tasks waited for memory, in percent, and for how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// Part of the time in which at least one task waited.
    pub some_percent: f64,
    /// Part of the time in which all tasks waited at once.
    pub full_percent: f64,
    /// Microseconds in which at least one task waited, since the beginning.
    pub some_us: u64,
    /// Microseconds in which all tasks waited at once, since the beginning.
    pub full_us: u64,
}

impl Pressure {
    /// Reads it of the machine; `None` where the kernel does not keep it.
    pub fn read(root: &Root) -> Option<Self> {
        Self::of(root, Path::new("proc/pressure/memory"))
    }

    /// Reads it from a file in the format of psi, such as a control group's `memory.pressure`.
    pub fn of(root: &Root, file: &Path) -> Option<Self> {
        let text = root.read(file)?;
        let (some_percent, some_us) = line(&text, "some")?;
        // A kernel older than 5.13 has no `full` for the whole machine.
        let (full_percent, full_us) = line(&text, "full").unwrap_or((0.0, 0));
        Some(Self { some_percent, full_percent, some_us, full_us })
    }
}

fn line(text: &str, kind: &str) -> Option<(f64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
    let field = |name| line.split_ascii_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    Some((field("avg10")?.parse().ok()?, field("total")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::Tree;
    use super::*;

    #[test]
    fn both_lines_are_read() {
        let text =
            "some avg10=1.50 avg60=0.40 avg300=0.10 total=12345\nfull avg10=0.25 avg60=0.0 avg300=0.0 total=77\n";
        let tree = Tree::new(&[("proc/pressure/memory", text)]);
        let pressure = Pressure { some_percent: 1.5, full_percent: 0.25, some_us: 12345, full_us: 77 };
        assert_eq!(Pressure::read(&tree.root()), Some(pressure));
    }

    #[test]
    fn what_is_missing_is_none_not_zero() {
        for text in [&[][..], &[("proc/pressure/memory", "")], &[("proc/pressure/memory", "some avg10=x total=1")]] {
            assert_eq!(Pressure::read(&Tree::new(text).root()), None);
        }
        let tree = Tree::new(&[("proc/pressure/memory", "some avg10=2.00 avg60=0 avg300=0 total=9\n")]);
        assert_eq!(Pressure::read(&tree.root()).unwrap().full_us, 0);
    }
}
