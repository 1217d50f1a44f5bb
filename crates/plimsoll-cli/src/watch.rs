//! Watching a run: what the process really holds is sampled, written into the trace and the flight recorder, and the ledger's
//! limit is lowered where the process holds more beside the ledger than was kept for it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::{Bytes, Ledger};
use plimsoll_profile::reconcile::SlackKeeper;
use plimsoll_profile::recorder::{FILE_BYTES, Recorder};
use plimsoll_profile::sample::files::Root;
use plimsoll_profile::sample::process::ProcessMemory;
use plimsoll_profile::sample::{Reader, Sampler, allocator, holder_lines};

use crate::console;
use crate::trace::Trace;

/// The flight recorder's file.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    recorder: Arc<Recorder>,
}

impl Record {
    /// Makes the file.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or the disk has no room for it.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), recorder: Arc::new(Recorder::create(path, FILE_BYTES)?) })
    }

    /// Records what happens in the ledger from now on.
    pub fn follow(&self, ledger: &Ledger) {
        ledger.observe(self.recorder.clone());
    }

    /// Says so if the recording does not have everything.
    pub fn warn_if_incomplete(&self) {
        if let Some(error) = self.recorder.take_error() {
            let path = self.path.display();
            console::warn(format!("{path}: the recording ends early: {error}; the proof does not depend on it"));
        }
    }
}

/// To look at every other process takes memory as well; below this line it is not done.
const OTHERS_FROM: Bytes = Bytes(256 << 20);

/// Starts to look every `period`; nothing is started if that is zero, or if nobody
/// asked for a trace or a recording. The ledger's limit is never raised, and never lowered
/// below `floor`. What cannot be started is a warning: the proof does not depend on it.
pub fn watch(
    ledger: &Ledger,
    period: Duration,
    line: Bytes,
    floor: Bytes,
    trace: Option<&Trace>,
    record: Option<&Record>,
) -> Option<Sampler> {
    if period.is_zero() || (trace.is_none() && record.is_none()) {
        return None;
    }
    let mut reader = Reader::new().with_line(line.0);
    if line < OTHERS_FROM {
        reader = reader.without_others();
    }
    let mut keeper = SlackKeeper::new(ledger, line, floor).lowering_only();
    let allocator = allocator::detect();
    let lines = trace.map(Trace::lines);
    let recorder = record.map(|record| record.recorder.clone());
    let root = Root::default();
    let sink = move |sample: plimsoll_profile::sample::Sample, snapshot: &plimsoll::ledger::snapshot::Snapshot| {
        keeper.follow(&sample, snapshot, allocator.as_deref(), || ProcessMemory::quick(&root));
        if let Some(lines) = &lines {
            lines.line(sample.json());
            for line in holder_lines(snapshot) {
                lines.line(line);
            }
        }
        if let Some(recorder) = &recorder {
            recorder.sample(&sample, snapshot);
        }
    };
    Sampler::start(ledger, reader, period, sink)
        .inspect_err(|error| console::warn(format!("the process is not watched: {error}")))
        .ok()
}
