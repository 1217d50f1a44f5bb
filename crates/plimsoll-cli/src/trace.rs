//! `--trace`: the ledger's events as lines of JSON in a file, each written out whole as it happens.
//!
//! A trace is for finding out what went on, above all when something went wrong. So a killed run leaves every line that it
//! wrote, and a trace that cannot be written is a warning, never the end of a proof. The schema is in `docs/trace.md`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll::Ledger;
use plimsoll::observe::JsonLines;

use crate::console;
use crate::exit::Failure;

/// A trace that is being written.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    lines: Arc<JsonLines<WholeLines>>,
}

impl Trace {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        // It names jobs and files of a user. (What is there already keeps its permissions: it may be a pipe.)
        std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create(true).truncate(true), 0o600);
        let file = options.open(path).map_err(|e| Failure::unwritten("trace", path, e))?;
        let file = WholeLines { file, line: Vec::new(), written: 0 };
        Ok(Self { path: path.to_owned(), lines: Arc::new(JsonLines::new(file)) })
    }

    /// Writes what happens in the ledger from now on.
    pub fn follow(&self, ledger: &Ledger) {
        ledger.observe(self.lines.clone());
        ledger.announce_limits();
    }

    /// For lines of other writers, such as samples.
    pub(crate) fn lines(&self) -> Arc<JsonLines<WholeLines>> {
        self.lines.clone()
    }

    /// Says so if the trace does not have everything.
    pub fn warn_if_incomplete(&self) {
        if let Some(error) = self.lines.take_error() {
            console::warn(format!(
                "{}: the trace ends early: {error}; the proof does not depend on it",
                self.path.display()
            ));
        }
    }
}

/// A file to which only whole lines are written, each with one call of the system.
#[derive(Debug)]
pub(crate) struct WholeLines {
    file: File,
    /// The line that has no end yet.
    line: Vec<u8>,
    /// Bytes of whole lines in the file.
    written: u64,
}

impl Write for WholeLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if self.line.ends_with(b"\n") {
            if let Err(error) = self.file.write_all(&self.line) {
                // A part of the line may be there. What is not a regular file cannot be cut, and keeps it.
                let _ = self.file.set_len(self.written);
                return Err(error);
            }
            self.written += self.line.len() as u64;
            self.line.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
