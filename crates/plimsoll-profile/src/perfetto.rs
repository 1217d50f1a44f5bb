//! A trace for Perfetto (<https://ui.perfetto.dev>) and Chrome's `about:tracing`: the JSON trace event format, or Perfetto's own.
//!
//! Each job is a track, its stages and waits are slices on it, an arrow (a *flow*) leads from each of its stages to the next;
//! what is held of each class is a counter, and so are limits, slots and samples. Events are written as they come, so that the
//! memory it takes does not depend on the length of the trace. Times are microseconds.
//!
//! Sources: "Trace Event Format", Google, 2016; `protos/perfetto/trace/perfetto_trace.proto`.

mod packets;

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use serde_json::{Value, json};

use self::packets::Packets;
use crate::trace::{Event, Subject, What};

/// The process that jobs are shown in; counters are in another.
const JOBS: u32 = 1;
const BOOKS: u32 = 2;

/// Writes the events of a trace one after another.
#[derive(Debug)]
pub struct Export<W> {
    writer: W,
    format: Format,
    owners: HashMap<u64, Owner>,
    /// Flows made so far: each has a number of its own.
    flows: u64,
    /// The time of the last event.
    now: u64,
}

/// How it is written down.
#[derive(Debug)]
enum Format {
    /// As JSON; nothing is written yet.
    Json { first: bool },
    /// As packets of Perfetto's.
    Packets(Packets),
}

/// What is open on the track of a job.
#[derive(Debug, Default)]
struct Owner {
    name: Option<Arc<str>>,
    waits: Option<u64>,
    granted: Option<u64>,
    runs: Option<u64>,
    /// The stage that it is in, or waits to enter.
    stage: Option<Arc<str>>,
    /// The last stage ended with this flow.
    flow: Option<u64>,
}

fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

impl<W: Write> Export<W> {
    /// Begins the file.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn new(mut writer: W) -> io::Result<Export<W>> {
        writer.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Export::begin(writer, Format::Json { first: true })
    }

    /// Begins a file in Perfetto's own format (`.pftrace`).
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn in_packets(writer: W) -> io::Result<Export<W>> {
        Export::begin(writer, Format::Packets(Packets::default()))
    }

    fn begin(writer: W, format: Format) -> io::Result<Export<W>> {
        let mut export = Export { writer, format, owners: HashMap::new(), flows: 0, now: 0 };
        for (pid, name) in [(JOBS, "jobs"), (BOOKS, "books")] {
            export.put(&json!({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}))?;
        }
        Ok(export)
    }

    fn put(&mut self, value: &Value) -> io::Result<()> {
        put(&mut self.writer, &mut self.format, value)
    }

    fn slice(&mut self, id: u64, name: &str, kind: &str, from: u64, to: u64) -> io::Result<()> {
        let (ts, dur) = (micros(from), micros(to.saturating_sub(from)));
        self.put(&json!({"ph": "X", "pid": JOBS, "tid": id.wrapping_add(1), "name": name, "cat": kind, "ts": ts, "dur": dur}))
    }

    fn counter(&mut self, time: u64, name: &str, unit: &str, value: u64) -> io::Result<()> {
        self.put(&json!({"ph": "C", "pid": BOOKS, "name": name, "ts": micros(time), "args": {unit: value}}))
    }

    /// Writes what follows from an event.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let time = event.time;
        self.now = self.now.max(time);
        match &event.what {
            What::Changed { class, space, held, .. } => {
                self.counter(time, &format!("{class} in {space}"), "bytes", *held)?;
            }
            What::ChangedSlots { slots, held, .. } => self.counter(time, slots, "slots", *held)?,
            What::Resized { space, limit } => self.counter(time, &format!("limit of {space}"), "bytes", *limit)?,
            What::ResizedSlots { slots, limit } => self.counter(time, &format!("limit of {slots}"), "slots", *limit)?,
            What::Sampled(values) => {
                for (name, value) in values {
                    self.counter(time, name, "value", *value)?;
                }
            }
            _ => {}
        }
        match &event.subject {
            Some(subject) if subject.is_job => self.of_job(time, subject, &event.what),
            _ => Ok(()),
        }
    }

    fn of_job(&mut self, time: u64, subject: &Subject, what: &What) -> io::Result<()> {
        let Subject { id, name, stage, .. } = subject;
        let stage: &str = stage.as_deref().unwrap_or("–");
        let owner = self.owners.entry(*id).or_default();
        // A number is given again: the track gets the name of whoever has it now.
        let renamed = owner.name.as_ref() != Some(name);
        if renamed {
            *owner = Owner { name: Some(name.clone()), ..Owner::default() };
        }
        owner.stage = subject.stage.clone().or_else(|| owner.stage.take());
        let mut slices: Vec<(String, &str, u64)> = Vec::new();
        let mut ends = false;
        match what {
            What::Asked => owner.waits = Some(time),
            What::Granted => {
                slices.extend(owner.waits.take().map(|asked| (format!("wait for {stage}"), "wait", asked)));
                owner.granted = Some(time);
            }
            What::Withdrawn | What::Refused => {
                slices.extend(owner.waits.take().map(|asked| (format!("wait for {stage}, in vain"), "wait", asked)));
            }
            What::Began { .. } => owner.runs = Some(time),
            What::StageEnded | What::StageRetried | What::Restarted => {
                let began = owner.runs.take().or(owner.granted);
                owner.granted = None;
                slices.extend(began.map(|began| (stage.to_owned(), "stage", began)));
                ends = began.is_some();
            }
            What::Ended => {
                self.owners.remove(id);
            }
            _ => {}
        }
        if renamed {
            let name = json!({"ph": "M", "pid": JOBS, "tid": id.wrapping_add(1), "name": "thread_name", "args": {"name": **name}});
            self.put(&name)?;
        }
        for (slice, kind, from) in slices {
            if time > from || kind == "stage" {
                self.slice(*id, &slice, kind, from, time)?;
            }
            if kind == "stage" {
                self.flow(*id, from, time, ends)?;
            }
        }
        Ok(())
    }

    /// Ends the flow from the stage before in the slice that is just written, and begins one to the next stage.
    fn flow(&mut self, id: u64, from: u64, to: u64, ends: bool) -> io::Result<()> {
        let next = ends.then(|| {
            self.flows += 1;
            self.flows
        });
        let Some(owner) = self.owners.get_mut(&id) else { return Ok(()) };
        let last = std::mem::replace(&mut owner.flow, next);
        let mut flow = |ph: &str, number: u64, time: u64| {
            let mut value = json!({"ph": ph, "pid": JOBS, "tid": id.wrapping_add(1), "name": "job", "cat": "flow", "id": number, "ts": micros(time)});
            if ph == "f" {
                value["bp"] = "e".into();
            }
            put(&mut self.writer, &mut self.format, &value)
        };
        if let Some(last) = last {
            flow("f", last, from)?;
        }
        if let Some(next) = next {
            flow("s", next, to.saturating_sub(1).max(from))?;
        }
        Ok(())
    }

    /// Draws what goes on, of jobs that have not ended: of a run that was killed, that is what it was doing.
    fn draw_open(&mut self) -> io::Result<()> {
        let mut open: Vec<(u64, String, &str, u64)> = Vec::new();
        for (id, owner) in &self.owners {
            let stage = owner.stage.as_deref().unwrap_or("–");
            open.extend(owner.waits.map(|since| (*id, format!("wait for {stage}, not over"), "wait", since)));
            let runs = owner.runs.or(owner.granted);
            open.extend(runs.map(|since| (*id, format!("{stage}, not over"), "stage", since)));
        }
        open.sort_unstable();
        for (id, name, kind, since) in open {
            self.slice(id, &name, kind, since, self.now)?;
        }
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.draw_open()?;
        if let Format::Json { .. } = self.format {
            self.writer.write_all(b"\n]}\n")?;
        }
        self.writer.flush()?;
        Ok(self.writer)
    }
}

fn put(writer: &mut impl Write, format: &mut Format, value: &Value) -> io::Result<()> {
    match format {
        Format::Json { first } => {
            writer.write_all(if std::mem::take(first) { b"\n" } else { b",\n" })?;
            Ok(serde_json::to_writer(writer, value)?)
        }
        Format::Packets(packets) => writer.write_all(packets.of(value).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(events: &[(u64, What)]) -> Vec<Value> {
        let mut export = Export::new(Vec::new()).unwrap();
        for (time, what) in events {
            let subject = Subject { id: 0, name: "a \"job\"".into(), is_job: true, stage: Some("prove".into()) };
            export.event(&Event { sequence: None, time: *time, subject: Some(subject), what: what.clone() }).unwrap();
        }
        let text = export.finish().unwrap();
        let all: Value = serde_json::from_slice(&text).unwrap();
        all["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn stages_are_slices_with_arrows_between_them_and_bytes_are_counters() {
        let began = || What::Began { place: "worker".into() };
        let hold = What::Changed { class: "aux".into(), space: "host".into(), delta: 5, held: 5 };
        let events = export(&[
            (1000, What::Asked),
            (3000, What::Granted),
            (3000, hold),
            (4000, began()),
            (9000, What::StageEnded),
            (9000, What::Granted),
            (9000, began()),
            (12_000, What::StageEnded),
            (12_000, What::Ended),
        ]);
        let of = |ph: &str| events.iter().filter(|event| event["ph"] == ph).collect::<Vec<_>>();
        let slices: Vec<_> = of("X")
            .iter()
            .map(|event| (event["name"].as_str().unwrap(), event["ts"].as_f64(), event["dur"].as_f64()))
            .collect();
        assert_eq!(
            slices,
            [
                ("wait for prove", Some(1.0), Some(2.0)),
                ("prove", Some(4.0), Some(5.0)),
                ("prove", Some(9.0), Some(3.0))
            ]
        );
        assert_eq!(of("C").len(), 1);
        assert_eq!((of("C")[0]["name"].as_str(), of("C")[0]["args"]["bytes"].as_u64()), (Some("aux in host"), Some(5)));
        // Every arrow that ends has begun, under the same number, inside of the slice before.
        let (starts, ends) = (of("s"), of("f"));
        assert_eq!((starts.len(), ends.len()), (2, 1));
        assert_eq!(starts[0]["id"], ends[0]["id"]);
        assert!(starts[0]["ts"].as_f64() < Some(9.0) && ends[0]["ts"].as_f64() == Some(9.0));
    }

    /// What a run that was killed was doing is what one wants to see of it.
    #[test]
    fn what_is_not_over_is_drawn_up_to_the_end() {
        let began = || What::Began { place: "worker".into() };
        let events = export(&[(1000, What::Asked), (3000, What::Granted), (4000, began()), (9000, What::Closed)]);
        let open: Vec<_> = events.iter().filter(|event| event["name"] == "prove, not over").collect();
        assert_eq!((open.len(), open[0]["ts"].as_f64(), open[0]["dur"].as_f64()), (1, Some(4.0), Some(5.0)));
        let events = export(&[(1000, What::Asked), (9000, What::Closed)]);
        assert!(events.iter().any(|event| event["name"] == "wait for prove, not over"));
    }
}
