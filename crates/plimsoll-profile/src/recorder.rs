//! A flight recorder: the last minutes of a run in a file of fixed size, readable after `kill -9` and after the OOM killer.
//!
//! # The file
//!
//! ```text
//! header   "plimsoll.ring/2", sizes                                 4 KiB
//! marks    two slots, written in turn: the newest high-water mark
//! ring     slots of lines in the schema of docs/trace.md, the oldest overwritten by the newest
//! ```
//!
//! A slot is a row of frames: the length of a text, a checksum over the number and the text, a number that rises by one from frame
//! to frame for ever, and the text. A frame is only ever written behind the last one, with one call, into pages that the kernel
//! keeps when the process dies; what is there is never written again until the ring has gone round. A signal that kills may cut the
//! call short: then the frame that was being written is not there, and all before it are. What lies behind the last frame is left
//! from the lap before and has lower numbers. Where a number is missing in the middle, something was damaged, and is left out.
//!
//! Lines come from the ledger's events and from samples. They are written when a slot is full, at every sample, and after
//! [`EVENTS_UNWRITTEN`] events: so much is lost at the most. Every slot begins with what was held when it was begun, by its
//! largest holders one by one and by the others in a sum for each class: whatever frames are still there, the sums come out right.
//!
//! The file's blocks are reserved when it is made, where the file system can do that, so that a disk that fills up later takes nothing
//! away. A recording of a run before is kept beside it, as `FILE.previous`. An error on the way is kept for whoever asks, and ends the
//! recording, never the run.

#![expect(clippy::disallowed_types, reason = "no model runs this: it writes a file")]

mod marks;
mod read;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll::Resource;
use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::observe::{Event, Observer, What};

pub use marks::{Mark, MarkHolder};
pub use read::{ReadError, Recording};

use crate::sample::{Sample, holder_lines, quoted};

/// What a recorder's file takes unless it is told otherwise.
pub const FILE_BYTES: u64 = 16 << 20;
/// After so many events the slot is written, full or not.
pub const EVENTS_UNWRITTEN: u32 = 64;

const MAGIC: &[u8; 16] = b"plimsoll.ring/2\n";
/// How recordings of every version begin.
const MAGIC_OF_ALL: &[u8] = b"plimsoll.ring/";
const HEADER_BYTES: u64 = 4096;
const MARK_BYTES: usize = 64 << 10;
const MARKS: u64 = 2;
const SLOT_BYTES: usize = 64 << 10;
/// Length, checksum, number.
const FRAME_HEAD: usize = 16;
/// A new high-water mark is one in so many parts above the last.
const MARK_STEP_DIVISOR: u64 = 50;

/// Records a ledger's events, samples, and high-water marks. Give it to [`Ledger::observe`](plimsoll::Ledger::observe), and every
/// sample to [`sample`](Recorder::sample).
#[derive(Debug)]
pub struct Recorder(Mutex<Ring>);

#[derive(Debug)]
struct Ring {
    file: File,
    slots: u64,
    /// The number of the slot that is being filled; rises for ever.
    slot: u64,
    /// How much of it is written.
    filled: usize,
    /// The number of the next frame; rises for ever.
    frame: u64,
    /// Lines that are not written yet.
    pending: Vec<u8>,
    unwritten: u32,
    held: BTreeMap<Holder, i128>,
    /// Of jobs that hold something: where they are.
    jobs: BTreeMap<usize, Stand>,
    marked: u64,
    marks: u64,
    error: Option<io::Error>,
    ended: bool,
}

/// Whose, and of which class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    number: usize,
    name: Arc<str>,
    is_job: bool,
    class: plimsoll::Class,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stand {
    stage: Option<&'static str>,
    /// In its stage, not behind it.
    runs: bool,
    ended: bool,
}

impl Recorder {
    /// Makes the file, of about `bytes`. A recording that is there is kept as `PATH.previous`.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or the disk has no room for all of it, or something else than a recording is there: a device, a pipe, a
    /// file of another kind. Whatever was there stays.
    pub fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let previous = set_aside(path)?;
        Self::made(path, bytes).inspect_err(|_| {
            if let Some(previous) = previous {
                // It was moved a moment ago; if it cannot be moved back, it is still there.
                drop(fs::rename(previous, path));
            }
        })
    }

    /// Makes a file that was not there.
    fn made(path: &Path, bytes: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        // It names jobs and files of a user.
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        // From here on the file is this call's own.
        Self::prepared(file, bytes).inspect_err(|_| drop(fs::remove_file(path)))
    }

    fn prepared(file: File, bytes: u64) -> io::Result<Self> {
        let before = HEADER_BYTES + MARKS * MARK_BYTES as u64;
        let slots = (bytes.saturating_sub(before) / SLOT_BYTES as u64).max(4);
        let all = before + slots * SLOT_BYTES as u64;
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, all) {
            Ok(()) => {}
            // A file system that cannot promise room: its length at least.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => file.set_len(all)?,
            Err(error) => return Err(error.into()),
        }
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&(MARK_BYTES as u64).to_le_bytes());
        header.extend_from_slice(&MARKS.to_le_bytes());
        header.extend_from_slice(&(SLOT_BYTES as u64).to_le_bytes());
        header.extend_from_slice(&slots.to_le_bytes());
        file.write_all_at(&header, 0)?;
        let ring = Ring {
            file,
            slots,
            slot: 0,
            filled: 0,
            frame: 0,
            pending: Vec::with_capacity(SLOT_BYTES),
            unwritten: 0,
            held: BTreeMap::new(),
            jobs: BTreeMap::new(),
            marked: 0,
            marks: 0,
            error: None,
            ended: false,
        };
        Ok(Self(Mutex::new(ring)))
    }

    /// Records a sample and who has held for longest, writes out what there is, and takes a snapshot if this is a new high-water
    /// mark of what is resident or held.
    pub fn sample(&self, sample: &Sample, snapshot: &Snapshot) {
        let mut ring = self.ring();
        ring.line(&sample.json().to_string());
        for line in holder_lines(snapshot) {
            ring.line(&line);
        }
        let held = snapshot.space(plimsoll::Space::HOST).map_or(0, |usage| usage.held.0);
        let high = sample.process.map_or(0, |process| process.resident_bytes).max(held);
        if high > ring.marked + ring.marked / MARK_STEP_DIVISOR {
            ring.marked = high;
            ring.mark(&Mark::of(sample, snapshot));
        }
        ring.write();
    }

    /// Writes a line of another writer, such as a verdict or an alarm: an object of JSON with `time_ns` and `event`.
    pub fn line(&self, line: &str) {
        let mut ring = self.ring();
        ring.line(line);
        ring.write();
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // What a panic left half done is at worst a line that is cut.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that ended the recording, if one did and it was not taken yet.
    pub fn take_error(&self) -> Option<io::Error> {
        self.ring().error.take()
    }
}

impl Observer for Recorder {
    fn event(&self, event: &Event) {
        let mut ring = self.ring();
        // The line first: a slot that begins with it says what was held before.
        ring.line(&event.json().to_string());
        ring.keep(event);
        ring.unwritten += 1;
        if ring.unwritten >= EVENTS_UNWRITTEN {
            ring.write();
        }
    }
}

impl Ring {
    /// Keeps what later slots begin with.
    fn keep(&mut self, event: &Event) {
        let Some(subject) = &event.subject else { return };
        let number = subject.number;
        if let What::Changed { resource: Resource::Class(class), delta, .. } = event.what {
            let holder = Holder { number, name: subject.name.clone(), is_job: subject.is_job, class };
            let held = self.held.entry(holder.clone()).or_default();
            *held += delta;
            if *held == 0 {
                self.held.remove(&holder);
            }
        }
        if !subject.is_job {
            return;
        }
        let stand = self.jobs.entry(number).or_default();
        match event.what {
            What::Submitted => *stand = Stand::default(),
            What::Granted | What::Forced | What::Began { .. } => (stand.stage, stand.runs) = (subject.stage, true),
            What::StageEnded | What::StageRetried | What::Restarted => {
                (stand.stage, stand.runs) = (subject.stage.or(stand.stage), false);
            }
            What::Ended => stand.ended = true,
            _ => {}
        }
        if stand.ended && !self.held.keys().any(|holder| holder.number == number && holder.is_job) {
            self.jobs.remove(&number);
        }
    }

    /// Adds a line to the slot; where it does not fit, to the next one.
    fn line(&mut self, line: &str) {
        if self.ended {
            return;
        }
        let begun = self.filled > 0 || !self.pending.is_empty();
        if begun && self.filled + FRAME_HEAD + self.pending.len() + line.len() + 1 > SLOT_BYTES {
            self.write();
            (self.slot, self.filled) = (self.slot + 1, 0);
            self.carry();
        }
        // A line that no slot can hold is left out; the gap in the sequence numbers tells.
        if self.filled + FRAME_HEAD + self.pending.len() + line.len() < SLOT_BYTES {
            self.pending.extend_from_slice(line.as_bytes());
            self.pending.push(b'\n');
        }
    }

    /// Begins a slot with what is held: the largest holders as far as half of the slot goes, and the others in a sum for each class.
    fn carry(&mut self) {
        let mut holders: Vec<(&Holder, i128)> =
            self.held.iter().map(|(holder, held)| (holder, *held)).filter(|(_, held)| *held > 0).collect();
        holders.sort_by_key(|(_, held)| std::cmp::Reverse(*held));
        let mut lines = String::from("{\"event\":\"holds_all\"}\n");
        let mut others: BTreeMap<(&str, String), (u64, i128)> = BTreeMap::new();
        for (Holder { number, name, is_job, class }, held) in holders {
            let space = class.space().key().to_string();
            if lines.len() > SLOT_BYTES / 2 {
                let (count, bytes) = others.entry((class.name(), space)).or_default();
                (*count, *bytes) = (*count + 1, *bytes + held);
                continue;
            }
            let kind = if *is_job { "job" } else { "reservation" };
            let (who, of) = (quoted(name), quoted(class.name()));
            let stand = if *is_job { self.jobs.get(number).copied().unwrap_or_default() } else { Stand::default() };
            let stage = stand.stage.map_or(String::new(), |stage| format!(r#","stage":{}"#, quoted(stage)));
            let how = match stand {
                Stand { ended: true, .. } => r#","how":"ended""#,
                Stand { runs: true, .. } => r#","how":"runs""#,
                _ => "",
            };
            let _ = writeln!(
                lines,
                r#"{{"event":"holds","{kind}":{who},"id":{number},"class":{of},"space":"{space}","bytes":{held}{stage}{how}}}"#
            );
        }
        for ((class, space), (count, bytes)) in others {
            // A program with thousands of classes would fill the slot with them.
            if lines.len() > SLOT_BYTES * 3 / 4 {
                lines.push_str("{\"event\":\"holds_more\"}\n");
                break;
            }
            let of = quoted(class);
            let _ = writeln!(
                lines,
                r#"{{"event":"holds_others","class":{of},"space":"{space}","bytes":{bytes},"count":{count}}}"#
            );
        }
        self.pending.extend_from_slice(lines.as_bytes());
    }

    fn write(&mut self) {
        self.unwritten = 0;
        if self.ended || self.pending.is_empty() {
            return;
        }
        let slot = HEADER_BYTES + MARKS * MARK_BYTES as u64 + self.slot % self.slots * SLOT_BYTES as u64;
        let mut text = std::mem::take(&mut self.pending);
        self.put(&text, self.frame, slot + self.filled as u64);
        (self.frame, self.filled) = (self.frame + 1, self.filled + FRAME_HEAD + text.len());
        text.clear();
        self.pending = text;
    }

    fn mark(&mut self, mark: &Mark) {
        let mark = mark.fitting(MARK_BYTES - FRAME_HEAD);
        let at = HEADER_BYTES + self.marks % MARKS * MARK_BYTES as u64;
        self.put(mark.as_bytes(), self.marks, at);
        self.marks += 1;
    }

    fn put(&mut self, text: &[u8], number: u64, at: u64) {
        if self.ended {
            return;
        }
        let mut bytes = Vec::with_capacity(FRAME_HEAD + text.len());
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&checksum(number, text).to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(text);
        if let Err(error) = self.file.write_all_at(&bytes, at) {
            (self.error, self.ended) = (Some(error), true);
        }
    }
}

/// Moves the recording of a run before out of the way, and says where to.
fn set_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    let refuse = |kind, why: &str| Err(io::Error::new(kind, why.to_owned()));
    let there = match fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !there.is_file() {
        return refuse(
            io::ErrorKind::InvalidInput,
            "there is something that is no file; name a file for the recording",
        );
    }
    let mut start = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    if there.len() == 0 {
        // Such as `mktemp` makes.
        fs::remove_file(path)?;
        return Ok(None);
    }
    if !start.starts_with(MAGIC_OF_ALL) {
        return refuse(io::ErrorKind::AlreadyExists, "there is a file that is no recording; it is left as it is");
    }
    let mut previous = path.as_os_str().to_owned();
    previous.push(".previous");
    let previous = PathBuf::from(previous);
    if fs::symlink_metadata(&previous).is_ok_and(|there| !there.is_file()) {
        return refuse(io::ErrorKind::AlreadyExists, "beside it is something else named .previous");
    }
    fs::rename(path, &previous)?;
    Ok(Some(previous))
}

fn checksum(number: u64, text: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(text);
    hasher.finalize()
}

#[cfg(test)]
mod tests;
