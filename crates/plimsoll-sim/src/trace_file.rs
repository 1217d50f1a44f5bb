//! A simulated run as a trace file: what a real run writes, what it was made from in its first lines, and how it ended in its last.

use std::io::{self, Write};

use plimsoll::observe::{Event, SCHEMA};
use serde::Serialize;

use crate::workload::{Setting, Workload};
use crate::{Options, Outcome, Progress, Seen, Sink, simulate};

/// Said of a run as a whole, not by its ledger.
#[derive(Serialize)]
struct Said<'a> {
    time_ns: u64,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    setting: Option<&'a Setting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    how: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// Writes each event in a line.
struct Lines<'a> {
    out: &'a mut dyn Write,
    written: io::Result<()>,
}

impl Sink for Lines<'_> {
    fn event(&mut self, event: &Event) {
        if self.written.is_ok() {
            self.written = writeln!(self.out, "{}", event.json());
        }
    }

    fn sampled(&mut self, seen: &Seen) {
        let Seen { time, resident, available, machine } = seen;
        if self.written.is_ok() {
            self.written = writeln!(
                self.out,
                r#"{{"time_ns":{time},"event":"sampled","resident_bytes":{resident},"anonymous_bytes":{resident},"machine_bytes":{machine},"machine_available_bytes":{available}}}"#
            );
        }
    }
}

/// Runs a workload as [`simulate`] does, and writes its trace as it goes. What `options` has for a timeline is not told anything.
///
/// # Errors
///
/// The first one of writing. The run goes on to its end all the same.
pub fn record(workload: &Workload, options: Options<'_>, mut out: impl Write) -> io::Result<Outcome> {
    let say = |out: &mut dyn Write, said: &Said<'_>| {
        serde_json::to_writer(&mut *out, said)?;
        out.write_all(b"\n")
    };
    writeln!(out, r#"{{"schema":"{SCHEMA}"}}"#)?;
    let setting = Setting::of(workload);
    let begun = Said { time_ns: 0, event: "simulated", setting: Some(&setting), how: None, text: None };
    say(&mut out, &begun)?;
    let mut lines = Lines { out: &mut out, written: Ok(()) };
    let Options { events_max, mut progress, .. } = options;
    // Told anew, since it is lent for longer than the sink lives.
    let mut told = |now: &Progress| {
        if let Some(progress) = &mut progress {
            progress(now);
        }
    };
    let options = Options { events_max, timeline: Some(&mut lines), progress: Some(&mut told) };
    let outcome = simulate(workload, options);
    lines.written?;
    let text = outcome.in_words();
    let (how, text) = (Some(outcome.end.name()), Some(text.as_str()));
    say(&mut out, &Said { time_ns: outcome.time.0, event: "run_ended", setting: None, how, text })?;
    out.flush()?;
    Ok(outcome)
}
