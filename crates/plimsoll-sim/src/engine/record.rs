//! A timeline of a simulated run, in the schema of real traces.

use std::sync::Arc;

use plimsoll::observe::{Event, Subject, What};
use plimsoll::{Resource, Slots};

/// Is told of everything that happens in a run, in order: see `docs/trace.md`.
pub trait Sink {
    /// Something has happened.
    fn event(&mut self, event: &Event);

    /// What is really held, now and then.
    fn sampled(&mut self, seen: &Seen) {
        let _ = seen;
    }
}

/// What is really held at a moment: what a process's samples say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The moment, in virtual nanoseconds.
    pub time: u64,
    /// Host memory of the prover, its runtime included.
    pub resident: u64,
    /// Host memory that nobody holds.
    pub available: u64,
    /// Host memory in all.
    pub machine: u64,
}

/// After how many events what is really held is looked at.
const EVENTS_SEEN: u64 = 32;

impl<F: FnMut(&Event)> Sink for F {
    fn event(&mut self, event: &Event) {
        self(event);
    }
}

/// Numbers events and passes them on.
pub(super) struct Recorder<'a> {
    sink: &'a mut dyn Sink,
    sequence: u64,
    seen: u64,
    /// What the timeline says is held, by class number; of peers, who have no ledger that would know.
    pub(super) held: Vec<u64>,
    /// The lanes of each device that are taken.
    lanes: Vec<u64>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink) -> Recorder<'a> {
        Recorder { sink, sequence: 0, seen: 0, held: Vec::new(), lanes: Vec::new() }
    }

    /// Whether it is time to look at what is really held: after so many events, at the end of a moment.
    pub(super) fn is_due(&self) -> bool {
        self.sequence >= self.seen + EVENTS_SEEN
    }

    pub(super) fn see(&mut self, seen: &Seen) {
        self.seen = self.sequence;
        self.sink.sampled(seen);
    }

    /// A lane of a device was taken or is free again.
    pub(super) fn note_lane(&mut self, time: u64, subject: Option<Subject>, device: u16, delta: i128) {
        let at = usize::from(device);
        if self.lanes.len() <= at {
            self.lanes.resize(at + 1, 0);
        }
        self.lanes[at] = (i128::from(self.lanes[at]) + delta) as u64;
        let (resource, held) = (Resource::Slots(Slots::lane(device)), self.lanes[at]);
        self.note(time, subject, What::Changed { resource, delta, held });
    }

    pub(super) fn note(&mut self, time: u64, subject: Option<Subject>, what: What) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.sink.event(&Event { sequence, time, subject, what });
    }
}

pub(super) fn subject(number: u32, name: &Arc<str>, stage: Option<&'static str>) -> Subject {
    Subject { number: number as usize, name: name.clone(), is_job: true, stage }
}
