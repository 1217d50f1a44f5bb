//! Reading a recording back, whatever state its process left it in.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use plimsoll::observe;
use serde_json::Value;
use thiserror::Error;

use super::{HEADER_BYTES, MAGIC, Mark, SLOT_HEAD, checksum, quoted};
use crate::diagnose::{Books, Series};
use crate::trace;

/// What a recorder has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The newest high-water mark.
    pub mark: Option<Mark>,
    /// What was in the ring, oldest first: lines of a trace, and what was held when each slot was begun.
    slots: Vec<String>,
    /// Slots that were there and could not be read.
    pub damaged: u64,
    /// Older slots that were overwritten.
    pub overwritten: u64,
}

/// A recording cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It does not begin as a recording does.
    #[error("not a recording; one is written by `plimsoll prove FILE --record ring`")]
    NotARecording,
    /// Its sizes contradict each other.
    #[error("its header is damaged; nothing behind it can be found")]
    Damaged,
}

impl Recording {
    /// Whether a file begins as a recording does.
    pub fn is_one(start: &[u8]) -> bool {
        start.starts_with(MAGIC)
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If there is no recording in it. Damaged slots are no error; they are counted.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::parse(&fs::read(path)?)
    }

    fn parse(bytes: &[u8]) -> Result<Self, ReadError> {
        if !Self::is_one(bytes) {
            return Err(ReadError::NotARecording);
        }
        let number = |at: usize| -> Option<u64> {
            let field = bytes.get(MAGIC.len() + at * 8..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*field))
        };
        let sizes = (|| Some((number(0)?, number(1)?, number(2)?, number(3)?)))();
        let (mark_bytes, marks, slot_bytes, slots) = sizes.ok_or(ReadError::Damaged)?;
        let limit = bytes.len() as u64;
        let sane =
            |size: u64, count: u64| size > SLOT_HEAD as u64 && size.checked_mul(count).is_some_and(|all| all <= limit);
        if !sane(mark_bytes, marks) || !sane(slot_bytes, slots) {
            return Err(ReadError::Damaged);
        }
        let mut damaged = 0;
        let mut table = |first: u64, size: u64, count: u64| {
            let mut found: Vec<(u64, String)> = Vec::new();
            for index in 0..count {
                let at = (first + index * size) as usize;
                match slot(bytes.get(at..).unwrap_or_default(), size as usize) {
                    Slot::Whole(number, text) => found.push((number, text)),
                    Slot::Empty => {}
                    Slot::Damaged => damaged += 1,
                }
            }
            found.sort_by_key(|(number, _)| *number);
            found
        };
        let found_marks = table(HEADER_BYTES, mark_bytes, marks);
        let found = table(HEADER_BYTES + marks * mark_bytes, slot_bytes, slots);
        let overwritten = found.first().map_or(0, |(number, _)| *number);
        Ok(Self {
            mark: found_marks.iter().rev().find_map(|(_, text)| serde_json::from_str(text).ok()),
            slots: found.into_iter().map(|(_, text)| text).collect(),
            damaged,
            overwritten,
        })
    }

    /// The recording as a trace: what was held when it begins comes first.
    pub fn trace(&self) -> String {
        let mut text = format!("{{\"schema\":\"{}\"}}\n", observe::SCHEMA);
        for (index, slot) in self.slots.iter().enumerate() {
            let time = slot.lines().find_map(time_of).unwrap_or(0);
            let mut totals = std::collections::BTreeMap::<String, i64>::new();
            for line in slot.lines() {
                match carried(line) {
                    None => {
                        text.push_str(line);
                        text.push('\n');
                    }
                    // What is held at the beginning of a later slot follows from the slots before.
                    Some(holds) if index == 0 => {
                        let total = totals.entry(holds.class.clone()).or_default();
                        *total += holds.bytes;
                        let Holds { kind, who, id, class, space, bytes } = holds;
                        let _ = writeln!(
                            text,
                            r#"{{"time_ns":{time},"event":"changed","{kind}":{},"id":{id},"class":{},"space":{},"delta":{bytes},"held":{total}}}"#,
                            quoted(&who),
                            quoted(&class),
                            quoted(&space)
                        );
                    }
                    Some(_) => {}
                }
            }
        }
        text
    }

    /// The recording as the diagnosis sees it.
    ///
    /// # Errors
    ///
    /// If a line is none of a trace, which a whole slot does not have.
    pub fn series(&self) -> Result<Series, trace::TraceError> {
        let mut books = Books::new();
        for event in trace::Reader::new(self.trace().as_bytes())? {
            books.event(&event?);
        }
        Ok(books.series())
    }
}

enum Slot {
    Empty,
    Whole(u64, String),
    Damaged,
}

fn slot(bytes: &[u8], size: usize) -> Slot {
    let Some((head, rest)) = bytes.split_first_chunk::<SLOT_HEAD>() else { return Slot::Damaged };
    let [l0, l1, l2, l3, c0, c1, c2, c3, number @ ..] = *head;
    let (length, sum, number) =
        (u32::from_le_bytes([l0, l1, l2, l3]), u32::from_le_bytes([c0, c1, c2, c3]), u64::from_le_bytes(number));
    if length == 0 && sum == 0 && number == 0 {
        return Slot::Empty;
    }
    let text = (length as usize <= size - SLOT_HEAD).then(|| rest.get(..length as usize)).flatten();
    match text.filter(|text| checksum(number, text) == sum).and_then(|text| String::from_utf8(text.to_vec()).ok()) {
        Some(text) => Slot::Whole(number, text),
        None => Slot::Damaged,
    }
}

struct Holds {
    kind: &'static str,
    who: String,
    id: u64,
    class: String,
    space: String,
    bytes: i64,
}

/// What is said to be held at the beginning of a slot. `None`: another line.
fn carried(line: &str) -> Option<Holds> {
    if !line.starts_with(r#"{"event":"holds"#) {
        return None;
    }
    let value: Value = serde_json::from_str(line).unwrap_or_default();
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let (kind, who) = match text("job") {
        Some(who) => ("job", who),
        None => ("reservation", text("reservation").unwrap_or_default()),
    };
    Some(Holds {
        kind,
        who,
        id: value["id"].as_u64().unwrap_or(0),
        class: text("class").unwrap_or_default(),
        space: text("space").unwrap_or_default(),
        bytes: value["bytes"].as_i64().unwrap_or(0),
    })
}

fn time_of(line: &str) -> Option<u64> {
    let value: Value = serde_json::from_str(line).ok()?;
    value["time_ns"].as_u64()
}
