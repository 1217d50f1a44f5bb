//! Events as lines of JSON: the schema of `docs/trace.md`.

use std::fmt;
use std::io::{self, Write};

use super::{Event, Observer, Subject, What};
use crate::Resource;
use crate::sync::{self, Mutex};

/// The schema's name and version, as the first line of a trace says it.
pub const SCHEMA: &str = "plimsoll.trace/1";

impl Event {
    /// The event as one line of JSON, without the line's end.
    pub fn json(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(|f| {
            let Event { sequence, time, subject, what } = self;
            write!(f, r#"{{"seq":{sequence},"time_ns":{time},"event":"{}""#, what.name())?;
            if let Some(Subject { number, name, is_job, stage }) = subject {
                let key = if *is_job { "job" } else { "reservation" };
                write!(f, r#","{key}":{},"id":{number}"#, quoted(name))?;
                if let Some(stage) = stage {
                    write!(f, r#","stage":{}"#, quoted(stage))?;
                }
            }
            match what {
                What::Changed { resource: Resource::Class(class), delta, held } => {
                    let (name, space) = (quoted(class.name()), class.space().key());
                    write!(f, r#","class":{name},"space":"{space}","delta":{delta},"held":{held}"#)?;
                }
                What::Changed { resource: Resource::Slots(slots), delta, held } => {
                    write!(f, r#","slots":{},"delta":{delta},"held":{held}"#, quoted(&slots.key().to_string()))?;
                }
                What::Overdrawn { class, bytes } => {
                    let (name, space) = (quoted(class.name()), class.space().key());
                    write!(f, r#","class":{name},"space":"{space}","bytes":{}"#, bytes.0)?;
                }
                What::Reaping { space, bytes } => write!(f, r#","space":"{}","bytes":{}"#, space.key(), bytes.0)?,
                What::Reaped { space, bytes, nanos, panicked } => {
                    let (space, bytes) = (space.key(), bytes.0);
                    write!(f, r#","space":"{space}","bytes":{bytes},"took_ns":{nanos},"panicked":{panicked}"#)?;
                }
                What::Began { place } => write!(f, r#","place":"{place}""#)?,
                What::Finished { how, late } => write!(f, r#","how":"{how}","late":{late}"#)?,
                What::Resized { space, limit } => write!(f, r#","space":"{}","limit":{}"#, space.key(), limit.0)?,
                What::ResizedSlots { slots, limit } => {
                    write!(f, r#","slots":{},"limit":{limit}"#, quoted(&slots.key().to_string()))?;
                }
                What::Retired { space, bytes } => write!(f, r#","space":"{}","bytes":{}"#, space.key(), bytes.0)?,
                _ => {}
            }
            f.write_str("}")
        })
    }
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> impl fmt::Display + '_ {
    fmt::from_fn(move |f| {
        f.write_str("\"")?;
        for c in text.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
                c => fmt::Write::write_char(f, c)?,
            }
        }
        f.write_str("\"")
    })
}

/// Writes every event as a line of JSON. Give it a buffered writer.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll::observe::JsonLines;
/// # use plimsoll::{Bytes, Class, Ledger, Space};
/// # const SCRATCH: Class = Class::new("scratch", Space::HOST);
/// let trace = Arc::new(JsonLines::new(Vec::new()));
/// let ledger = Ledger::unlimited();
/// ledger.observe(trace.clone());
/// drop(ledger.reserve(SCRATCH, Bytes(4096)).try_now()?);
/// drop(ledger);
/// let lines = String::from_utf8(Arc::into_inner(trace).unwrap().finish()?)?;
/// assert!(lines.contains(r#""class":"scratch","space":"host","delta":4096,"held":4096}"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JsonLines<W> {
    /// Only one thread calls an observer at a time; the lock is there for those who observe several ledgers with it.
    output: Mutex<Output<W>>,
}

#[derive(Debug)]
struct Output<W> {
    writer: W,
    failed: bool,
    /// Not taken yet.
    error: Option<io::Error>,
}

impl<W: Write> JsonLines<W> {
    /// Writes to `writer`, first a line that names the schema.
    pub fn new(writer: W) -> JsonLines<W> {
        let mut output = Output { writer, failed: false, error: None };
        output.line(format_args!(r#"{{"schema":"{SCHEMA}"}}"#));
        JsonLines { output: Mutex::new(output) }
    }

    /// Writes a line of another writer, such as what was sampled of the process: one object of JSON, with `time_ns` and `event`,
    /// and without a number in the sequence.
    pub fn line(&self, line: impl fmt::Display) {
        sync::lock(&self.output).line(line);
    }

    /// The error that ended the writing, if one did and it was not taken yet.
    pub fn take_error(&self) -> Option<io::Error> {
        sync::lock(&self.output).error.take()
    }

    /// Writes out what is buffered, also where somebody still holds the ledger that writes here: a reservation that was forgotten, for
    /// one.
    ///
    /// # Errors
    ///
    /// The error that ended the writing, unless it was [taken](JsonLines::take_error); or that of the writer's own flush.
    pub fn flush(&self) -> io::Result<()> {
        let mut output = sync::lock(&self.output);
        match output.error.take() {
            Some(error) => Err(error),
            None => output.writer.flush(),
        }
    }

    /// Writes out what is buffered, and gives the writer back.
    ///
    /// # Errors
    ///
    /// The error that ended the writing, unless it was [taken](JsonLines::take_error). Nothing was written after it.
    pub fn finish(self) -> io::Result<W> {
        let mut output = self.output.into_inner();
        match output.error {
            Some(error) => Err(error),
            None => output.writer.flush().map(|()| output.writer),
        }
    }
}

impl<W: Write> Output<W> {
    fn line(&mut self, line: impl fmt::Display) {
        if !self.failed {
            self.error = writeln!(self.writer, "{line}").err();
            self.failed = self.error.is_some();
        }
    }
}

impl<W: Write + Send> Observer for JsonLines<W> {
    fn event(&self, event: &Event) {
        sync::lock(&self.output).line(event.json());
    }
}
