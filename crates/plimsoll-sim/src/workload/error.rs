//! What is wrong with a workload, where, and what to write instead.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

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

/// More is no file that anybody wrote, or no file at all.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a file of text; `fix` is what to do where it cannot be read.
pub(super) fn read(path: &Path, fix: &str) -> Result<String, WorkloadError> {
    let error = |fault: String, fix: &str| WorkloadError {
        file: path.display().to_string(),
        line: None,
        fault,
        fix: fix.to_owned(),
    };
    let file = File::open(path).map_err(|why| error(why.to_string(), fix))?;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|why| error(why.to_string(), fix))?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(error("it is larger than 16 MiB".into(), "write distributions instead of lists, or split it"));
    }
    Ok(text)
}

/// The line of a byte in a text, counted from one.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}
