//! A flight recorder: the last minutes of a run in a file of fixed size, readable after `kill -9` and after the OOM killer.
//!
//! # The file
//!
//! ```text
//! header   "plimsoll.ring/1", sizes                                 4 KiB
//! marks    two slots, written in turn: the newest high-water mark
//! ring     slots of lines in the schema of docs/trace.md, the oldest overwritten by the newest
//! ```
//!
//! A slot begins with its length, a checksum and a number that rises from slot to slot. It is written with one call, into pages
//! that the kernel keeps when the process dies. A slot that was cut in two (the machine itself lost power) fails its checksum
//! and is left out.
//!
//! Lines come from the ledger's events and from samples. They are written when a slot is full, at every sample, and after
//! [`EVENTS_UNWRITTEN`] events, so what is lost is at most that. Every slot begins with what was held when it was begun: whatever
//! slots are still there, the sums come out right.
//!
//! The file's blocks are reserved when it is made, so that a disk that fills up later takes nothing away. An error on the way is
//! kept for whoever asks, and ends the recording, never the run.

#![expect(clippy::disallowed_types, reason = "no model runs this: it writes a file")]

mod marks;
mod read;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll::Resource;
use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::observe::{Event, Observer, Subject, What};

pub use marks::{Mark, MarkHolder};
pub use read::{ReadError, Recording};

use crate::sample::{Sample, holder_lines, quoted};

/// What a recorder's file takes unless it is told otherwise.
pub const FILE_BYTES: u64 = 16 << 20;
/// After so many events the slot is written, full or not.
pub const EVENTS_UNWRITTEN: u32 = 64;

const MAGIC: &[u8; 16] = b"plimsoll.ring/1\n";
const HEADER_BYTES: u64 = 4096;
const MARK_BYTES: usize = 64 << 10;
const MARKS: u64 = 2;
const SLOT_BYTES: usize = 64 << 10;
/// Length, checksum, number.
const SLOT_HEAD: usize = 16;
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
    number: u64,
    slot: Vec<u8>,
    unwritten: u32,
    held: BTreeMap<Holder, i128>,
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

impl Recorder {
    /// Makes the file, of about `bytes`, or empties it.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or the disk has no room for all of it.
    pub fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        // It names jobs and files of a user.
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        let before = HEADER_BYTES + MARKS * MARK_BYTES as u64;
        let slots = (bytes.saturating_sub(before) / SLOT_BYTES as u64).max(4);
        let all = before + slots * SLOT_BYTES as u64;
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, all) {
            Ok(()) => {}
            // A file system that cannot promise room: its length at least.
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(all)?,
            Err(error) => {
                drop(std::fs::remove_file(path));
                return Err(error.into());
            }
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
            number: 0,
            slot: Vec::with_capacity(SLOT_BYTES),
            unwritten: 0,
            held: BTreeMap::new(),
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
        if let (What::Changed { resource: Resource::Class(class), delta, .. }, Some(subject)) =
            (event.what, &event.subject)
        {
            let Subject { number, name, is_job, .. } = subject.clone();
            let holder = Holder { number, name, is_job, class };
            let held = ring.held.entry(holder.clone()).or_default();
            *held += delta;
            if *held == 0 {
                ring.held.remove(&holder);
            }
        }
        ring.unwritten += 1;
        if ring.unwritten >= EVENTS_UNWRITTEN {
            ring.write();
        }
    }
}

impl Ring {
    /// Adds a line to the slot; where it does not fit, to the next one.
    fn line(&mut self, line: &str) {
        if self.ended {
            return;
        }
        if !self.slot.is_empty() && self.slot.len() + line.len() + 1 > SLOT_BYTES - SLOT_HEAD {
            self.write();
            self.number += 1;
            self.slot.clear();
            self.carry();
        }
        // A line that no slot can hold is left out; the gap in the sequence numbers tells.
        if self.slot.len() + line.len() < SLOT_BYTES - SLOT_HEAD {
            self.slot.extend_from_slice(line.as_bytes());
            self.slot.push(b'\n');
        }
    }

    /// Begins a slot with what is held, as far as half of it goes.
    fn carry(&mut self) {
        let mut lines = String::new();
        for (Holder { number, name, is_job, class }, held) in &self.held {
            let kind = if *is_job { "job" } else { "reservation" };
            let (who, of, space) = (quoted(name), quoted(class.name()), class.space().key());
            let _ = writeln!(
                lines,
                r#"{{"event":"holds","{kind}":{who},"id":{number},"class":{of},"space":"{space}","bytes":{held}}}"#
            );
            if lines.len() > SLOT_BYTES / 2 {
                lines.push_str("{\"event\":\"holds_more\"}\n");
                break;
            }
        }
        self.slot.extend_from_slice(lines.as_bytes());
    }

    fn write(&mut self) {
        self.unwritten = 0;
        if self.ended || self.slot.is_empty() {
            return;
        }
        let at = HEADER_BYTES + MARKS * MARK_BYTES as u64 + self.number % self.slots * SLOT_BYTES as u64;
        let text = std::mem::take(&mut self.slot);
        self.put(&text, self.number, at);
        self.slot = text;
    }

    fn mark(&mut self, mark: &Mark) {
        let mark = mark.fitting(MARK_BYTES - SLOT_HEAD);
        let at = HEADER_BYTES + self.marks % MARKS * MARK_BYTES as u64;
        self.put(mark.as_bytes(), self.marks, at);
        self.marks += 1;
    }

    fn put(&mut self, text: &[u8], number: u64, at: u64) {
        if self.ended {
            return;
        }
        let mut bytes = Vec::with_capacity(SLOT_HEAD + text.len());
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&checksum(number, text).to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(text);
        if let Err(error) = self.file.write_all_at(&bytes, at) {
            (self.error, self.ended) = (Some(error), true);
        }
    }
}

fn checksum(number: u64, text: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(text);
    hasher.finalize()
}

#[cfg(test)]
mod tests;
