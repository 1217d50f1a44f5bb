//! What is wrong with a workload, where, and what to write instead.

use std::fmt;

/// A workload that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadError {
    /// The file, as the caller called it.
    pub file: String,
    /// The line, counted from one.
    pub line: Option<usize>,
    /// What is wrong.
    pub fault: String,
    /// What to do about it.
    pub fix: String,
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.fault)?;
        if !self.fix.is_empty() {
            write!(f, "; {}", self.fix)?;
        }
        Ok(())
    }
}

impl std::error::Error for WorkloadError {}

/// The line of a byte in a text, counted from one.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}
