//! A count of permits and a bounded channel: three engines that differ in when the permit comes back.

use std::collections::{BTreeSet, VecDeque};

use super::{Channel, Grant, JobId, Need, Point, Policy};

/// When a permit comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// When the producer's task ends, before its product is in the channel (early cuzk).
    Produced,
    /// When the product is in the channel (cuzk's phase 12, with a channel of as many).
    HandedOver,
    /// With the result.
    Delivered,
}

/// So many permits, given in order of arrival, and a channel of so many products.
#[derive(Clone, Debug)]
pub struct Count {
    free: u64,
    back: Return,
    channel: Channel,
    waiting: VecDeque<JobId>,
    /// Those who have a permit.
    held: BTreeSet<JobId>,
}

impl Count {
    /// `permits` that come back at `back`, and room for `channel` products.
    pub fn new(permits: u64, back: Return, channel: usize) -> Self {
        Self { free: permits, back, channel: Channel::new(channel), waiting: VecDeque::new(), held: BTreeSet::new() }
    }

    fn start(&mut self, job: JobId, grants: &mut Vec<Grant>) {
        self.held.insert(job);
        grants.push(Grant::Start(job));
    }

    /// The job has got to where permits come back; whoever has none any more gives none back.
    fn back(&mut self, job: JobId, at: Return, grants: &mut Vec<Grant>) {
        // With the result, and where a job ends early, nothing stays behind.
        if (self.back == at || at == Return::Delivered) && self.held.remove(&job) {
            match self.waiting.pop_front() {
                Some(next) => self.start(next, grants),
                None => self.free += 1,
            }
        }
    }

    fn handed_over(&mut self, job: JobId, grants: &mut Vec<Grant>) {
        grants.push(Grant::HandOver(job));
        self.back(job, Return::HandedOver, grants);
    }
}

impl Policy for Count {
    fn request(&mut self, job: JobId, _: Need, _: u64, grants: &mut Vec<Grant>) {
        if self.free == 0 {
            self.waiting.push_back(job);
        } else {
            self.free -= 1;
            self.start(job, grants);
        }
    }

    fn at(&mut self, job: JobId, point: Point, _: u64, grants: &mut Vec<Grant>) {
        match point {
            Point::Produced => {
                self.back(job, Return::Produced, grants);
                if self.channel.send(job) {
                    self.handed_over(job, grants);
                }
            }
            Point::Taken => {
                if let Some(next) = self.channel.taken() {
                    self.handed_over(next, grants);
                }
            }
            Point::Freed => {}
            Point::Delivered => self.back(job, Return::Delivered, grants),
        }
    }
}
