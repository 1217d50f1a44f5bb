//! What is known of each stage while a trace is read, and the spans and waits that it leaves.

use std::collections::VecDeque;
use std::sync::Arc;

use super::bins::{Axis, High, Mean};
use super::quantiles::Times;
use super::{SPANS_MAX, Span, StageLine, WAITS_KEPT, Wait};

/// One stage.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: Arc<str>,
    pub(super) runs: u64,
    pub(super) retries: u64,
    pub(super) queue: High,
    pub(super) running: Mean,
    pub(super) run: Times,
    pub(super) wait: Times,
    pub(super) place_wait: Times,
}

impl Stage {
    pub(super) fn new(name: Arc<str>, begin: u64) -> Stage {
        Stage {
            name,
            runs: 0,
            retries: 0,
            queue: High::default(),
            running: Mean::new(begin),
            run: Times::default(),
            wait: Times::default(),
            place_wait: Times::default(),
        }
    }

    pub(super) fn fold(&mut self) {
        self.queue.fold();
        self.running.fold();
    }

    pub(super) fn finish(self, axis: &Axis, end: u64) -> StageLine {
        let (running, running_all) = self.running.finish(axis, end);
        let (queue, queue_peak) = self.queue.finish(axis, end);
        StageLine {
            stage: self.name,
            runs: self.runs,
            retries: self.retries,
            queue_peak,
            queue,
            running,
            running_all,
            run: self.run.quantiles(),
            wait: self.wait.quantiles(),
            place_wait: self.place_wait.quantiles(),
        }
    }
}

/// Spans: all of them, or, when there are too many, those around the peak.
#[derive(Debug, Default)]
pub(super) struct Spans {
    recent: VecDeque<Span>,
    /// Those around the highest peak so far: half from before it, half from after.
    around: Vec<Span>,
    /// The bytes of that peak.
    peak: u64,
    count: u64,
}

const RECENT: usize = SPANS_MAX / 2;

impl Spans {
    pub(super) fn add(&mut self, span: Span) {
        self.count += 1;
        if self.around.len() < SPANS_MAX {
            self.around.push(span.clone());
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(span);
    }

    /// Most was held so far. What was kept around a peak that was hardly lower stays, so that a slow rise costs little.
    pub(super) fn peak(&mut self, bytes: u64) {
        if self.count > RECENT as u64 && bytes > self.peak.saturating_add(self.peak / 64) {
            self.around = self.recent.iter().cloned().collect();
            self.peak = bytes;
        }
    }

    /// By the time of their grant, and how many were left out.
    pub(super) fn finish(self) -> (Vec<Span>, u64) {
        let Spans { around: mut spans, count, .. } = self;
        spans.sort_by_key(|span| (span.granted_ns, span.id));
        let left_out = count - spans.len() as u64;
        (spans, left_out)
    }
}

/// The longest waits.
#[derive(Debug, Default)]
pub(super) struct Waits(Vec<Wait>);

impl Waits {
    pub(super) fn add(&mut self, wait: u64, make: impl FnOnce() -> Wait) {
        if wait == 0 || self.0.len() == WAITS_KEPT && self.0.last().is_some_and(|last| last.wait_ns >= wait) {
            return;
        }
        let place = self.0.partition_point(|other| other.wait_ns >= wait);
        self.0.insert(place, make());
        self.0.truncate(WAITS_KEPT);
    }

    pub(super) fn finish(self) -> Vec<Wait> {
        self.0
    }
}
