//! Watching a run: what the process really holds is sampled, written into the trace and the flight recorder, held against the
//! ledger, and kept under the line: the ledger's limit is lowered where the process holds more beside it than was kept for that.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::{Bytes, Ledger};
use plimsoll_profile::reconcile::SlackKeeper;
use plimsoll_profile::recorder::{FILE_BYTES, Recorder};
use plimsoll_profile::sample::{Reader, holder_lines};
use plimsoll_profile::watch::{Look, Watch, Watching};

use crate::exit::Failure;
use crate::trace::Trace;
use crate::{console, heap, metrics};

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
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let recorder = Recorder::create(path, FILE_BYTES).map_err(|e| Failure::unwritten("recording", path, e))?;
        Ok(Self { path: path.to_owned(), recorder: Arc::new(recorder) })
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

/// What is watched, and who is told.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// How often; never if that is zero.
    pub period: Duration,
    /// The most that the process is to hold.
    pub line: Bytes,
    /// The ledger's limit is never lowered below this, and never raised.
    pub floor: Bytes,
    /// Is told what is seen.
    pub trace: Option<&'a Trace>,
    /// Likewise.
    pub record: Option<&'a Record>,
    /// Somebody may ask for the verdict while it runs.
    pub with_verdict: bool,
    /// Metrics are served.
    pub with_metrics: bool,
    /// Where heap profiles go.
    pub heap_profiles: Option<&'a Path>,
    /// Work is done on devices, whose drivers are asked as well.
    pub with_cards: bool,
}

impl Watched<'_> {
    /// Starts. What cannot be started is a warning: the proof does not depend on it.
    pub fn start(&self, ledger: &Ledger) -> Option<Watching> {
        let &Watched { period, line, floor, trace, record, with_verdict, with_metrics, heap_profiles, with_cards } =
            self;
        if period.is_zero() {
            return None;
        }
        let reader = Reader::new();
        let reader = if line < OTHERS_FROM { reader.without_others() } else { reader };
        let reader = if with_cards { with_nvml(reader) } else { reader };
        let keeper = SlackKeeper::new(ledger, line, floor).lowering_only();
        let lines = trace.map(Trace::lines);
        let recorder = record.map(|record| record.recorder.clone());
        let tell = move |look: &Look<'_>| {
            if let Some(lines) = &lines {
                lines.line(look.sample.json());
                for line in holder_lines(look.snapshot) {
                    lines.line(line);
                }
            }
            if let Some(recorder) = &recorder {
                recorder.sample(look.sample, look.snapshot);
            }
            for (space, alarm) in look.alarms {
                let words = format!("{space}: {alarm}");
                let line = alarm_line(look.sample.time, &words);
                if let Some(lines) = &lines {
                    lines.line(&line);
                }
                if let Some(recorder) = &recorder {
                    recorder.line(&line);
                }
                console::warn(format!("ledger and kernel differ. {words}\n{}", in_a_table(look)));
            }
        };
        let watch = Watch::new(ledger).with_reader(reader).under(line).every(period).keeping(keeper).tell(tell);
        let watch = match heap_profiles {
            Some(folder) => watch.tell(heap::at_high_water(folder, Bytes(line.0 / 2))),
            None => watch,
        };
        let watch = if with_metrics { watch.tell(metrics::watch) } else { watch };
        let watch = if with_verdict { watch.with_verdict() } else { watch };
        watch.start().inspect_err(|error| console::warn(format!("the process is not watched: {error}"))).ok()
    }
}

/// Asks NVIDIA's driver about its cards as well, where the program is built for it and the driver is there.
#[cfg(feature = "nvml")]
fn with_nvml(reader: Reader) -> Reader {
    match plimsoll_profile::sample::Nvml::load() {
        Ok(nvml) => reader.with_devices(Box::new(nvml)),
        Err(why) => {
            console::warn(format!("memory of cards is not sampled: {why}"));
            reader
        }
    }
}

#[cfg(not(feature = "nvml"))]
fn with_nvml(reader: Reader) -> Reader {
    reader
}

/// The alarm as a line of a trace.
fn alarm_line(time: u64, words: &str) -> String {
    format!(r#"{{"time_ns":{time},"event":"alarm","text":{}}}"#, serde_json::Value::from(words))
}

fn in_a_table(look: &Look<'_>) -> String {
    let mut text = String::new();
    for table in look.tables {
        let _ = writeln!(text, "{table}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_a_line_that_readers_of_traces_know() {
        let trace = format!("{{\"schema\":\"{}\"}}\n{}\n", plimsoll::observe::SCHEMA, alarm_line(7, "host: \"odd\""));
        let timeline = plimsoll_profile::Timeline::read(trace.as_bytes()).unwrap();
        assert!(timeline.unknown.is_empty() && timeline.end_ns == 7);
    }
}
