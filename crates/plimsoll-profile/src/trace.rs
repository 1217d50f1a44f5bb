//! The events of a trace, line by line: the schema of `docs/trace.md`, read back.
//!
//! A trace may come from a run that was killed, from a later version, or from the simulator. So a last line without its end is
//! noted and left out, what is not known is counted and skipped, and every error says in which line it is. Nothing is kept
//! but the line that is being read.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use plimsoll::{Resource, observe};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A longer line is no event. Names of jobs are the only part without a bound of its own.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// How many different names of classes, stages and the like are shared. Further ones are copied for each event.
const NAMES_SHARED: usize = 4096;

/// One event of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Rises by one from event to event. Samples have none.
    pub sequence: Option<u64>,
    /// Nanoseconds since the ledger was made.
    pub time: u64,
    /// Whom it happened to.
    pub subject: Option<Subject>,
    /// What happened.
    pub what: What,
}

/// A job or a free-standing reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its number: unique among those that exist.
    pub id: u64,
    /// Its name: chosen by a user, and not to be trusted.
    pub name: Arc<str>,
    /// It is a job, not a free-standing reservation.
    pub is_job: bool,
    /// The stage that it is in, or waits to enter.
    pub stage: Option<Arc<str>>,
}

/// What happened: the events of [`observe::What`], and what other writers add.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// A job was taken on.
    Submitted,
    /// A request was made.
    Asked,
    /// A request was granted.
    Granted,
    /// A job larger than a limit is admitted alone.
    Forced,
    /// A request was taken back.
    Withdrawn,
    /// A request was refused for good.
    Refused,
    /// A stage begins to run.
    Began {
        /// Where.
        place: Arc<str>,
    },
    /// A stage has ended.
    StageEnded,
    /// A stage has ended and is to be entered again.
    StageRetried,
    /// A job has gone back to before its first stage.
    Restarted,
    /// A job has its result or its error.
    Finished {
        /// How.
        how: Arc<str>,
        /// Its deadline had passed.
        late: bool,
    },
    /// A job or reservation has ended.
    Ended,
    /// More or less is held of a class.
    Changed {
        /// The class.
        class: Arc<str>,
        /// The space that it lives in.
        space: Arc<str>,
        /// Bytes that came or went.
        delta: i64,
        /// What all owners together hold of it now, in bytes.
        held: u64,
    },
    /// More or fewer slots are held.
    ChangedSlots {
        /// The kind of slots.
        slots: Arc<str>,
        /// Slots that came or went.
        delta: i64,
        /// What all owners together hold of them now.
        held: u64,
    },
    /// A space's limit was set.
    Resized {
        /// The space.
        space: Arc<str>,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A number of slots was set.
    ResizedSlots {
        /// The kind of slots.
        slots: Arc<str>,
        /// How many.
        limit: u64,
    },
    /// A device was lost.
    Retired {
        /// Its memory.
        space: Arc<str>,
        /// What was held there, in bytes.
        bytes: u64,
    },
    /// Nothing new is admitted.
    Closed,
    /// A residency is to be loaded.
    LoadStarted,
    /// A residency is there.
    Loaded,
    /// A load was given up.
    LoadFailed,
    /// A residency is to go.
    EvictionStarted,
    /// A residency is gone.
    Evicted,
    /// What the process, the allocator or a device really held: every field of the line that is a whole number, by name,
    /// such as `resident_bytes`.
    Sampled(Vec<(Arc<str>, u64)>),
    /// Somebody who has held for long, as of this moment.
    Held {
        /// What it holds, in bytes.
        bytes: u64,
        /// When it was last granted something, in nanoseconds since the ledger was made.
        since: u64,
        /// Where in the source it asked, where that is known.
        place: Option<Arc<str>>,
    },
    /// The run is a simulated one, made with this setting: what `plimsoll-sim` needs to make it again.
    Simulated(serde_json::Value),
    /// The run has ended, with all work `done` or in another way.
    RunEnded(RunEnd),
    /// Something that says no more than its name, or that nobody here looks at: `admitted`, `paused`, `reaped`, `alarm`.
    Noted(Arc<str>),
    /// An event of a later version.
    Unknown(Arc<str>),
}

/// How a run ended, where its trace says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunEnd {
    /// In a word: `done`, `out-of-memory`, `stuck`.
    pub how: Arc<str>,
    /// In a sentence.
    pub text: Arc<str>,
}

impl RunEnd {
    /// All that was to be done was done.
    pub fn is_done(&self) -> bool {
        &*self.how == "done"
    }
}

/// Events of this version that are [`What::Noted`].
const NOTED: [&str; 9] =
    ["admitted", "paused", "resumed", "overdrawn", "outlived", "reaping", "reaped", "alarm", "holds_more"];

/// A trace cannot be read.
#[derive(Debug, Error)]
#[error("line {line}: {fault}")]
pub struct TraceError {
    /// The line, counted from one.
    pub line: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a line of a trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file has no line that names a schema first.
    #[error(
        "not a trace: its first line should be {{\"schema\":\"{}\"}}; write one with `plimsoll prove FILE --trace t.jsonl`",
        observe::SCHEMA
    )]
    NoSchema,
    /// The schema is another one.
    #[error(
        "the trace has the schema {found:?}, and this program reads {:?}; use the version that wrote it",
        observe::SCHEMA
    )]
    OtherSchema {
        /// The schema that it names.
        found: String,
    },
    /// A second trace begins in the same file.
    #[error("a second trace begins here; split the file before this line")]
    SecondSchema,
    /// No object of JSON, or a field has a wrong type.
    #[error("not an event: {0}; cut the trace before this line to read what comes before it")]
    NotAnEvent(#[from] serde_json::Error),
    /// A field that belongs to the event is not there.
    #[error("{event:?} without its `{field}`; cut the trace before this line to read what comes before it")]
    Missing {
        /// The event.
        event: String,
        /// The field.
        field: &'static str,
    },
    /// The line is longer than [`LINE_BYTES_MAX`].
    #[error("longer than {LINE_BYTES_MAX} bytes; this is no trace")]
    TooLong,
    /// The file could not be read.
    #[error("cannot read on: {0}")]
    Io(#[from] io::Error),
}

/// Reads the events of a trace. An error ends it.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    buffer: Vec<u8>,
    line: u64,
    names: Names,
    torn: bool,
    done: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line, which says that this is a trace.
    ///
    /// # Errors
    ///
    /// When it is none, or one of another version.
    pub fn new(input: R) -> Result<Reader<R>, TraceError> {
        let mut reader =
            Reader { input, buffer: Vec::new(), line: 0, names: Names::default(), torn: false, done: false };
        let there = reader.read_line()?;
        let schema = serde_json::from_slice(&reader.buffer).ok().and_then(|line: Line| line.schema);
        match schema {
            Some(schema) if there && schema == observe::SCHEMA => Ok(reader),
            Some(found) => Err(TraceError { line: 1, fault: Fault::OtherSchema { found } }),
            None => Err(TraceError { line: 1, fault: Fault::NoSchema }),
        }
    }

    /// Whether the last line had no end and was left out: the run was killed while it wrote. Known once all was read.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// The number of the line that was read last, counted from one.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Whether there was a line. Without its end.
    fn read_line(&mut self) -> Result<bool, TraceError> {
        self.buffer.clear();
        self.line += 1;
        let mut limited = (&mut self.input).take(LINE_BYTES_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut self.buffer);
        read.map_err(|error| TraceError { line: self.line, fault: error.into() })?;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
            return Ok(true);
        }
        if self.buffer.len() > LINE_BYTES_MAX {
            return Err(TraceError { line: self.line, fault: Fault::TooLong });
        }
        self.torn = !self.buffer.is_empty();
        Ok(self.torn)
    }

    fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        while self.read_line()? {
            if self.buffer.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let parsed = parse(&self.buffer, &mut self.names);
            match parsed {
                // It has no end, but nothing is missing from it.
                Ok(event) => {
                    self.torn = false;
                    return Ok(Some(event));
                }
                Err(_) if self.torn => return Ok(None),
                Err(fault) => return Err(TraceError { line: self.line, fault }),
            }
        }
        Ok(None)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_event().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Any line of a trace.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    schema: Option<String>,
    seq: Option<u64>,
    time_ns: Option<u64>,
    event: Option<String>,
    job: Option<String>,
    reservation: Option<String>,
    id: Option<u64>,
    stage: Option<String>,
    class: Option<String>,
    space: Option<String>,
    slots: Option<String>,
    delta: Option<i64>,
    held: Option<u64>,
    limit: Option<u64>,
    bytes: Option<u64>,
    place: Option<String>,
    how: Option<String>,
    late: bool,
    since_ns: Option<u64>,
    at: Option<String>,
    setting: Option<serde_json::Value>,
    text: Option<String>,
}

fn parse(text: &[u8], names: &mut Names) -> Result<Event, Fault> {
    let line: Line = serde_json::from_slice(text)?;
    if line.schema.is_some() {
        return Err(Fault::SecondSchema);
    }
    let event = line.event.unwrap_or_default();
    let missing =
        |field| Fault::Missing { event: if event.is_empty() { "a line".into() } else { event.clone() }, field };
    if event.is_empty() {
        return Err(missing("event"));
    }
    let time = line.time_ns.ok_or_else(|| missing("time_ns"))?;
    let (name, is_job) = match (line.job, line.reservation) {
        (Some(name), _) => (Some(name), true),
        (None, name) => (name, false),
    };
    let stage = line.stage.map(|stage| names.share(stage));
    let subject = match name {
        Some(name) => Some(Subject { id: line.id.ok_or_else(|| missing("id"))?, name: name.into(), is_job, stage }),
        None => None,
    };
    let what = match event.as_str() {
        "submitted" => What::Submitted,
        "asked" => What::Asked,
        "granted" => What::Granted,
        "forced" => What::Forced,
        "withdrawn" => What::Withdrawn,
        "refused" => What::Refused,
        "began" => What::Began { place: names.share(line.place.unwrap_or_default()) },
        "stage_ended" => What::StageEnded,
        "stage_retried" => What::StageRetried,
        "restarted" => What::Restarted,
        "finished" => What::Finished { how: names.share(line.how.unwrap_or_default()), late: line.late },
        "ended" => What::Ended,
        "closed" => What::Closed,
        "load_started" => What::LoadStarted,
        "loaded" => What::Loaded,
        "load_failed" => What::LoadFailed,
        "eviction_started" => What::EvictionStarted,
        "evicted" => What::Evicted,
        "changed" => {
            let delta = line.delta.ok_or_else(|| missing("delta"))?;
            let held = line.held.ok_or_else(|| missing("held"))?;
            match (line.class, line.slots) {
                (Some(class), _) => {
                    let space = names.share(line.space.ok_or_else(|| missing("space"))?);
                    What::Changed { class: names.share(class), space, delta, held }
                }
                (None, Some(slots)) => What::ChangedSlots { slots: names.share(slots), delta, held },
                (None, None) => return Err(missing("class")),
            }
        }
        "resized" => {
            let limit = line.limit.ok_or_else(|| missing("limit"))?;
            match (line.space, line.slots) {
                (Some(space), _) => What::Resized { space: names.share(space), limit },
                (None, Some(slots)) => What::ResizedSlots { slots: names.share(slots), limit },
                (None, None) => return Err(missing("space")),
            }
        }
        "retired" => What::Retired {
            space: names.share(line.space.ok_or_else(|| missing("space"))?),
            bytes: line.bytes.ok_or_else(|| missing("bytes"))?,
        },
        "sampled" => {
            let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(text)?;
            let known = ["seq", "time_ns", "event", "id"];
            let values = fields.into_iter().filter(|(name, _)| !known.contains(&name.as_str()));
            let numbers = values.filter_map(|(name, value)| Some((name, value.as_u64()?)));
            What::Sampled(numbers.map(|(name, value)| (names.share(name), value)).collect())
        }
        "held" => What::Held {
            bytes: line.bytes.ok_or_else(|| missing("bytes"))?,
            since: line.since_ns.ok_or_else(|| missing("since_ns"))?,
            place: line.at.map(|at| names.share(at)),
        },
        "simulated" => What::Simulated(line.setting.ok_or_else(|| missing("setting"))?),
        "run_ended" => What::RunEnded(RunEnd {
            how: names.share(line.how.ok_or_else(|| missing("how"))?),
            text: line.text.unwrap_or_default().into(),
        }),
        noted if NOTED.contains(&noted) => What::Noted(names.share(event)),
        _ => What::Unknown(names.share(event)),
    };
    Ok(Event { sequence: line.seq, time, subject, what })
}

/// Names that come again and again, each kept once.
#[derive(Debug, Default)]
struct Names(std::collections::HashSet<Arc<str>>);

impl Names {
    fn share(&mut self, name: String) -> Arc<str> {
        if let Some(shared) = self.0.get(name.as_str()) {
            return shared.clone();
        }
        let name: Arc<str> = name.into();
        if self.0.len() < NAMES_SHARED {
            self.0.insert(name.clone());
        }
        name
    }
}

/// An event as the ledger tells it to its observers.
impl From<&observe::Event> for Event {
    fn from(event: &observe::Event) -> Event {
        let subject = event.subject.as_ref().map(|subject| Subject {
            id: subject.number as u64,
            name: subject.name.clone(),
            is_job: subject.is_job,
            stage: subject.stage.map(Arc::from),
        });
        let what = match event.what {
            observe::What::Changed { resource, delta, held } => {
                let delta = i64::try_from(delta).unwrap_or(if delta < 0 { i64::MIN } else { i64::MAX });
                match resource {
                    Resource::Class(class) => What::Changed {
                        class: class.name().into(),
                        space: class.space().key().to_string().into(),
                        delta,
                        held,
                    },
                    Resource::Slots(slots) => What::ChangedSlots { slots: slots.key().to_string().into(), delta, held },
                }
            }
            observe::What::Resized { space, limit } => {
                What::Resized { space: space.key().to_string().into(), limit: limit.0 }
            }
            observe::What::ResizedSlots { slots, limit } => {
                What::ResizedSlots { slots: slots.key().to_string().into(), limit }
            }
            observe::What::Retired { space, bytes } => {
                What::Retired { space: space.key().to_string().into(), bytes: bytes.0 }
            }
            observe::What::Began { place } => What::Began { place: place.into() },
            observe::What::Finished { how, late } => What::Finished { how: how.into(), late },
            observe::What::Submitted => What::Submitted,
            observe::What::Asked => What::Asked,
            observe::What::Granted => What::Granted,
            observe::What::Forced => What::Forced,
            observe::What::Withdrawn => What::Withdrawn,
            observe::What::Refused => What::Refused,
            observe::What::StageEnded => What::StageEnded,
            observe::What::StageRetried => What::StageRetried,
            observe::What::Restarted => What::Restarted,
            observe::What::Ended => What::Ended,
            observe::What::Closed => What::Closed,
            observe::What::LoadStarted => What::LoadStarted,
            observe::What::Loaded => What::Loaded,
            observe::What::LoadFailed => What::LoadFailed,
            observe::What::EvictionStarted => What::EvictionStarted,
            observe::What::Evicted => What::Evicted,
            ref other if NOTED.contains(&other.name()) => What::Noted(other.name().into()),
            ref other => What::Unknown(other.name().into()),
        };
        Event { sequence: Some(event.sequence), time: event.time, subject, what }
    }
}

#[cfg(test)]
mod tests;
