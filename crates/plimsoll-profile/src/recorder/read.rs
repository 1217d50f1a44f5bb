//! Reading a recording back, whatever state its process left it in.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use plimsoll::observe;
use serde_json::Value;
use thiserror::Error;

use super::{FRAME_HEAD, HEADER_BYTES, MAGIC, MAGIC_OF_ALL, Mark, checksum, quoted};
use crate::diagnose::{Books, Series};
use crate::trace;

/// A longer file is none that a recorder has made.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What a recorder has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The newest high-water mark.
    pub mark: Option<Mark>,
    /// What was in the ring, oldest first: runs of lines between which nothing is missing. Each begins with what was held then.
    pieces: Vec<String>,
    /// Places at which something is missing between what could be read.
    pub damaged: u64,
    /// Older frames that were overwritten.
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
    /// A recorder of another version has made it.
    #[error("a recording of another version; read it with the version that wrote it")]
    OtherVersion,
    /// It is longer than any recording.
    #[error("longer than {FILE_BYTES_MAX} bytes; no recorder has made it")]
    TooLong,
    /// Its sizes contradict each other.
    #[error("its header is damaged; nothing behind it can be found")]
    Damaged,
}

impl Recording {
    /// Whether a file begins as a recording does.
    pub fn is_one(start: &[u8]) -> bool {
        start.starts_with(MAGIC_OF_ALL)
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If there is no recording in it. Damaged places are no error; they are counted.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        if file.metadata()?.len() > FILE_BYTES_MAX {
            return Err(ReadError::TooLong);
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Self::parse(&bytes)
    }

    /// Reads what was in such a file.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn parse(bytes: &[u8]) -> Result<Self, ReadError> {
        if !Self::is_one(bytes) {
            return Err(ReadError::NotARecording);
        }
        if !bytes.starts_with(MAGIC) {
            return Err(ReadError::OtherVersion);
        }
        let number = |at: usize| -> Option<u64> {
            let field = bytes.get(MAGIC.len() + at * 8..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*field))
        };
        let sizes = (|| Some((number(0)?, number(1)?, number(2)?, number(3)?)))();
        let (mark_bytes, marks, slot_bytes, slots) = sizes.ok_or(ReadError::Damaged)?;
        let limit = bytes.len() as u64;
        let sane =
            |size: u64, count: u64| size > FRAME_HEAD as u64 && size.checked_mul(count).is_some_and(|all| all <= limit);
        if !sane(mark_bytes, marks) || !sane(slot_bytes, slots) {
            return Err(ReadError::Damaged);
        }
        let table = |first: u64, size: u64, count: u64| {
            let places = (0..count).map(move |index| (first + index * size, first + (index + 1) * size));
            places.map(|(from, to)| {
                let to = (to as usize).min(bytes.len());
                bytes.get(from as usize..to).unwrap_or_default()
            })
        };
        let newest = table(HEADER_BYTES, mark_bytes, marks)
            .filter_map(frame)
            .filter_map(|(number, text, _)| Some((number, serde_json::from_str::<Mark>(text).ok()?)))
            .max_by_key(|(number, _)| *number);
        let mut rows: Vec<Row> = table(HEADER_BYTES + marks * mark_bytes, slot_bytes, slots).filter_map(row).collect();
        rows.sort_by_key(|row| row.first);
        let overwritten = rows.first().map_or(0, |row| row.first);
        let (mut pieces, mut damaged, mut next) = (Vec::<String>::new(), 0, None);
        for Row { first, after, text } in rows {
            match pieces.last_mut().filter(|_| next == Some(first)) {
                Some(piece) => piece.push_str(&text),
                None => {
                    damaged += u64::from(next.is_some());
                    pieces.push(text);
                }
            }
            next = Some(after);
        }
        Ok(Self { mark: newest.map(|(_, mark)| mark), pieces, damaged, overwritten })
    }

    /// The recording as a trace: what was held when it begins comes first, and where something is missing, what had become different
    /// meanwhile.
    pub fn trace(&self) -> String {
        let mut text = format!("{{\"schema\":\"{}\"}}\n", observe::SCHEMA);
        let mut told = Told::default();
        for piece in &self.pieces {
            // What is held at the beginning of a slot in the middle of a piece follows from what comes before.
            let mut lines = piece.lines().peekable();
            told.time = piece.lines().find_map(time_of).unwrap_or(told.time).max(told.time);
            if lines.next_if(|line| line.starts_with(HOLDS_ALL)).is_some() {
                let carried: Vec<Holds> =
                    std::iter::from_fn(|| lines.next_if(|line| is_carried(line))).filter_map(carried).collect();
                told.begin(&carried, &mut text);
            }
            for line in lines.filter(|line| !is_carried(line)) {
                told.line(line, &mut text);
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

/// Frames that follow each other in a slot.
struct Row {
    /// The first one's number.
    first: u64,
    /// The number after the last one's.
    after: u64,
    text: String,
}

/// The frames at a slot's beginning. What comes after them is of the lap before, or was not written to its end.
fn row(mut bytes: &[u8]) -> Option<Row> {
    let (first, text, length) = frame(bytes)?;
    let mut row = Row { first, after: first.checked_add(1)?, text: text.to_owned() };
    bytes = &bytes[length..];
    while let Some((number, text, length)) = frame(bytes)
        && number == row.after
        && let Some(after) = number.checked_add(1)
    {
        row.text.push_str(text);
        (row.after, bytes) = (after, &bytes[length..]);
    }
    Some(row)
}

/// A frame's number and text, and how long it is. `None`: there is none, or not all of it.
fn frame(bytes: &[u8]) -> Option<(u64, &str, usize)> {
    let (head, rest) = bytes.split_first_chunk::<FRAME_HEAD>()?;
    let [l0, l1, l2, l3, c0, c1, c2, c3, number @ ..] = *head;
    let (length, sum, number) =
        (u32::from_le_bytes([l0, l1, l2, l3]), u32::from_le_bytes([c0, c1, c2, c3]), u64::from_le_bytes(number));
    let text = rest.get(..length as usize).filter(|text| !text.is_empty() && checksum(number, text) == sum)?;
    Some((number, std::str::from_utf8(text).ok()?, FRAME_HEAD + text.len()))
}

/// What a slot says first, before what is held.
const HOLDS_ALL: &str = r#"{"event":"holds_all""#;

/// The owner to whom the sum of all small holders is put down. No ledger gives such a number.
const OTHERS: u64 = u64::MAX;

struct Holds {
    is_job: bool,
    who: String,
    id: u64,
    class: String,
    space: String,
    bytes: i64,
    stage: Option<String>,
    how: String,
}

/// Whether a line is one of those with which slots begin.
fn is_carried(line: &str) -> bool {
    line.starts_with(r#"{"event":"holds"#)
}

/// What is said to be held at the beginning of a slot.
fn carried(line: &str) -> Option<Holds> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let (class, space, bytes) = (text("class")?, text("space")?, value["bytes"].as_i64()?);
    let how = text("how").unwrap_or_default();
    if value["event"] == "holds_others" {
        let who = format!("{} others", value["count"].as_u64().unwrap_or(0));
        return Some(Holds { is_job: false, who, id: OTHERS, class, space, bytes, stage: None, how });
    }
    let (is_job, who) = match text("job") {
        Some(who) => (true, who),
        None => (false, text("reservation")?),
    };
    Some(Holds { is_job, who, id: value["id"].as_u64()?, class, space, bytes, stage: text("stage"), how })
}

/// Bytes by class and space.
type ByClass = BTreeMap<(String, String), i64>;

/// What the trace has told so far of who holds what.
#[derive(Default)]
struct Told {
    time: u64,
    /// By owner and by class and space: name, and bytes.
    held: BTreeMap<(u64, bool), (String, ByClass)>,
    totals: BTreeMap<(String, String), i64>,
}

impl Told {
    /// A piece begins: what is held now, however it came about.
    fn begin(&mut self, carried: &[Holds], text: &mut String) {
        let now: BTreeMap<(u64, bool, &str, &str), i64> =
            carried.iter().map(|holds| ((holds.id, holds.is_job, &*holds.class, &*holds.space), holds.bytes)).collect();
        // What went meanwhile.
        for ((id, is_job), (who, held)) in self.held.clone() {
            for ((class, space), bytes) in held {
                let left = now.get(&(id, is_job, &*class, &*space)).copied().unwrap_or(0);
                if left < bytes {
                    self.change((id, is_job), &who, &class, &space, left - bytes, text);
                }
            }
            if !self.held.contains_key(&(id, is_job)) {
                self.say((id, is_job), &who, None, "ended", text);
            }
        }
        // What came, and where it is.
        for Holds { is_job, who, id, class, space, bytes, stage, how } in carried {
            let (owner, is_new) = ((*id, *is_job), !self.held.contains_key(&(*id, *is_job)));
            let before = self.held.get(&owner).and_then(|(_, held)| held.get(&(class.clone(), space.clone())));
            let more = bytes.saturating_sub(before.copied().unwrap_or(0));
            if is_new && let Some(stage) = stage {
                self.say(owner, who, Some(stage), "granted", text);
            }
            self.change(owner, who, class, space, more, text);
            match (is_new, how.as_str(), stage) {
                (true, "ended", _) => self.say(owner, who, None, "ended", text),
                (true, "", Some(stage)) => self.say(owner, who, Some(stage), "stage_ended", text),
                _ => {}
            }
        }
    }

    /// A line of the ring.
    fn line(&mut self, line: &str, text: &mut String) {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        self.time = value["time_ns"].as_u64().unwrap_or(self.time).max(self.time);
        let owner = match (value["job"].as_str(), value["reservation"].as_str()) {
            (Some(who), _) => Some((who, true)),
            (None, who) => who.map(|who| (who, false)),
        };
        if value["event"] == "changed"
            && let (Some((who, is_job)), Some(class), Some(space)) =
                (owner, value["class"].as_str(), value["space"].as_str())
            && let (Some(id), Some(delta)) = (value["id"].as_u64(), value["delta"].as_i64())
        {
            let key = (class.to_owned(), space.to_owned());
            let has = self.held.get(&(id, is_job)).and_then(|(_, held)| held.get(&key)).copied().unwrap_or(0);
            let among_others =
                self.held.get(&(OTHERS, false)).and_then(|(_, held)| held.get(&key)).copied().unwrap_or(0);
            // What it returns and was not told to have was in the sum of the small ones.
            let from_others = delta.saturating_add(has).saturating_neg().clamp(0, among_others);
            if from_others > 0 {
                let others = self.held.get(&(OTHERS, false)).map_or_else(String::new, |(who, _)| who.clone());
                self.change((OTHERS, false), &others, class, space, -from_others, text);
                self.change((id, is_job), who, class, space, from_others, text);
            }
            self.note((id, is_job), who, class, space, delta);
        }
        text.push_str(line);
        text.push('\n');
    }

    fn note(&mut self, owner: (u64, bool), who: &str, class: &str, space: &str, delta: i64) -> i64 {
        let key = (class.to_owned(), space.to_owned());
        let (_, held) = self.held.entry(owner).or_insert_with(|| (who.to_owned(), BTreeMap::new()));
        let bytes = held.entry(key.clone()).or_default();
        *bytes = bytes.saturating_add(delta);
        if *bytes == 0 {
            held.remove(&key);
        }
        if held.is_empty() {
            self.held.remove(&owner);
        }
        let total = self.totals.entry(key).or_default();
        *total = total.saturating_add(delta);
        *total
    }

    fn change(&mut self, owner: (u64, bool), who: &str, class: &str, space: &str, delta: i64, text: &mut String) {
        if delta == 0 {
            return;
        }
        let total = self.note(owner, who, class, space, delta).max(0);
        let (time, kind) = (self.time, if owner.1 { "job" } else { "reservation" });
        let (who, of, space) = (quoted(who), quoted(class), quoted(space));
        let _ = writeln!(
            text,
            r#"{{"time_ns":{time},"event":"changed","{kind}":{who},"id":{},"class":{of},"space":{space},"delta":{delta},"held":{total}}}"#,
            owner.0
        );
    }

    fn say(&self, owner: (u64, bool), who: &str, stage: Option<&str>, event: &str, text: &mut String) {
        let (time, kind) = (self.time, if owner.1 { "job" } else { "reservation" });
        let stage = stage.map_or(String::new(), |stage| format!(r#","stage":{}"#, quoted(stage)));
        let _ = writeln!(
            text,
            r#"{{"time_ns":{time},"event":"{event}","{kind}":{},"id":{}{stage}}}"#,
            quoted(who),
            owner.0
        );
    }
}

fn time_of(line: &str) -> Option<u64> {
    let value: Value = serde_json::from_str(line).ok()?;
    value["time_ns"].as_u64()
}
