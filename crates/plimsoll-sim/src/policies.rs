//! How other engines decide when a job may start: permits, byte budgets, queues.
//!
//! A [`Policy`] is pure: it is told what happens and when, and says who may go on. What a job is in its eyes is a producer's
//! task (synthesis), a channel to the device's worker, the device, and the rest:
//!
//! ```text
//! request ──▶ Start ── grow … ── Produced ──▶ HandOver ── Taken ── Freed ── Delivered
//! ```
//!
//! Everything that a job says is said in this order; `Start` and `HandOver` are answers. The order in which permits come
//! back is that of the engines' sources; their code is not in here.

mod budget;
mod count;

use std::collections::VecDeque;

pub use self::budget::{Greedy, OptimisticBudget, ReserveOrFail, StrictFifo};
pub use self::count::{Count, Return};

/// A job, by number.
pub type JobId = u64;

/// What a job will hold, as far as a policy asks for it beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The most that it holds at once.
    pub peak: u64,
    /// What of that is given back when the device's kernels are done.
    pub freed_early: u64,
}

/// Where a job has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The producer's task has made its product.
    Produced,
    /// The device's worker took the product out of the channel.
    Taken,
    /// The large buffers are gone.
    Freed,
    /// The result is out, and everything else gone. Also where a job ends early.
    Delivered,
}

/// Who may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The job may start.
    Start(JobId),
    /// The product is in the channel.
    HandOver(JobId),
    /// The job got what it wanted to grow by.
    Grown(JobId),
    /// There is no room: the job fails, and what it did is lost. It holds nothing any more.
    Refused(JobId),
}

/// An engine's admission.
pub trait Policy {
    /// A job wants to start.
    fn request(&mut self, job: JobId, need: Need, now: u64, grants: &mut Vec<Grant>);

    /// A job that has started needs more bytes than before. Only a policy that counts as it goes cares.
    fn grow(&mut self, job: JobId, bytes: u64, now: u64, grants: &mut Vec<Grant>) {
        let _ = (bytes, now);
        grants.push(Grant::Grown(job));
    }

    /// So many bytes of a job are gone. Only a policy that counts as it goes cares.
    fn shrink(&mut self, job: JobId, bytes: u64) {
        let _ = (job, bytes);
    }

    /// A job has got to a point.
    fn at(&mut self, job: JobId, point: Point, now: u64, grants: &mut Vec<Grant>);

    /// When the policy wants to be called by itself.
    fn due(&self) -> Option<u64> {
        None
    }

    /// That time has come.
    fn wake(&mut self, now: u64, grants: &mut Vec<Grant>) {
        let _ = (now, grants);
    }
}

/// No limit at all: everything starts at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Policy for Unlimited {
    fn request(&mut self, job: JobId, _: Need, _: u64, grants: &mut Vec<Grant>) {
        grants.push(Grant::Start(job));
    }

    fn at(&mut self, job: JobId, point: Point, _: u64, grants: &mut Vec<Grant>) {
        if point == Point::Produced {
            grants.push(Grant::HandOver(job));
        }
    }
}

/// A bounded channel: senders wait in order for room.
#[derive(Clone, Debug)]
struct Channel {
    room: usize,
    senders: VecDeque<JobId>,
}

impl Channel {
    fn new(room: usize) -> Self {
        Self { room: room.max(1), senders: VecDeque::new() }
    }

    /// Whether the product is in at once.
    fn send(&mut self, job: JobId) -> bool {
        if self.room > 0 {
            self.room -= 1;
            return true;
        }
        self.senders.push_back(job);
        false
    }

    /// One product was taken out; whose is in now.
    fn taken(&mut self) -> Option<JobId> {
        let next = self.senders.pop_front();
        self.room += usize::from(next.is_none());
        next
    }
}

#[cfg(test)]
mod tests;
