//! A timeline of a simulated run, in the schema of real traces.

use std::sync::Arc;

use plimsoll::observe::{Event, Subject, What};

/// Is told of everything that happens in a run, in order: see `docs/trace.md`.
pub trait Sink {
    /// Something has happened.
    fn event(&mut self, event: &Event);
}

impl<F: FnMut(&Event)> Sink for F {
    fn event(&mut self, event: &Event) {
        self(event);
    }
}

/// Numbers events and passes them on.
pub(super) struct Recorder<'a> {
    sink: &'a mut dyn Sink,
    sequence: u64,
    /// What the timeline says is held, by class number; of peers, who have no ledger that would know.
    pub(super) held: Vec<u64>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink) -> Recorder<'a> {
        Recorder { sink, sequence: 0, held: Vec::new() }
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
