//! For how long a lane's kernels run, by the device's own clock.
//!
//! A proof's kernels are one span on the device, from the first to the last, in which nothing waits but for points that pass
//! through. Such a wait has a mark in the stream before it and one behind it; the time between the two does not count.

use crate::error::CudaError;
use crate::raw::{Event, EventKind, Stream};

/// Marks of one proof after the other.
#[derive(Debug)]
pub(crate) struct Clock {
    begun: Event,
    ended: Event,
    /// Pairs, in the order in which they were set: where a wait began, and where it ended.
    marks: Vec<Event>,
    set: usize,
    running: bool,
}

impl Clock {
    pub(crate) fn new() -> Result<Self, CudaError> {
        let timed = || Event::new(EventKind::Timed);
        Ok(Self { begun: timed()?, ended: timed()?, marks: Vec::new(), set: 0, running: false })
    }

    pub(crate) fn begins(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.set = 0;
        self.running = true;
        self.begun.record(stream)
    }

    /// Called before what waits is put into the stream, and behind it. Outside of a proof nothing is counted.
    pub(crate) fn marks(&mut self, stream: &Stream) -> Result<(), CudaError> {
        if !self.running {
            return Ok(());
        }
        if self.set == self.marks.len() {
            self.marks.push(Event::new(EventKind::Timed)?);
        }
        self.marks[self.set].record(stream)?;
        self.set += 1;
        Ok(())
    }

    pub(crate) fn ends(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.running = false;
        self.ended.record(stream)
    }

    /// Waits for the end.
    pub(crate) fn nanoseconds(&self) -> Result<u64, CudaError> {
        self.ended.synchronise()?;
        let mut milliseconds = self.begun.milliseconds_to(&self.ended)?;
        for pair in self.marks[..self.set].chunks_exact(2) {
            milliseconds -= pair[0].milliseconds_to(&pair[1])?;
        }
        Ok((milliseconds.max(0.0) * 1e6) as u64)
    }
}
