//! Byte budgets: who gets the bytes, in which order, and what is done where there are too few.

use std::collections::{BTreeMap, VecDeque};

use super::{Grant, JobId, Need, Point, Policy};

/// The whole peak is reserved at the start. A request adds its bytes first and looks then; where that was too much it takes
/// them back and waits for the next release, which wakes everybody who waits by then (cuzk's present budget).
///
/// Adding, taking back and beginning to wait are three moments, `gap` apart: what others see between them is the fault.
#[derive(Clone, Debug)]
pub struct OptimisticBudget {
    limit: u64,
    used: u64,
    gap: u64,
    held: BTreeMap<JobId, Need>,
    /// Requests on their way to waiting: what they have yet to do, and when.
    undoing: VecDeque<(u64, Step, JobId, Need)>,
    waiting: VecDeque<(JobId, Need)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Undo,
    Wait,
}

impl OptimisticBudget {
    /// A budget of `limit` bytes, with `gap` between the steps of a request that does not fit.
    pub fn new(limit: u64, gap: u64) -> Self {
        let (held, undoing, waiting) = (BTreeMap::new(), VecDeque::new(), VecDeque::new());
        Self { limit, used: 0, gap, held, undoing, waiting }
    }

    fn attempt(&mut self, job: JobId, need: Need, now: u64, grants: &mut Vec<Grant>) {
        self.used += need.peak;
        if self.used <= self.limit {
            self.held.insert(job, need);
            grants.push(Grant::Start(job));
        } else {
            self.undoing.push_back((now + self.gap, Step::Undo, job, need));
            self.wake(now, grants);
        }
    }

    fn release(&mut self, bytes: u64, now: u64, grants: &mut Vec<Grant>) {
        self.used -= bytes;
        // Whoever waits now is woken, and tries again in the order in which they began to wait; the others are not.
        for (job, need) in std::mem::take(&mut self.waiting) {
            self.attempt(job, need, now, grants);
        }
    }
}

impl Policy for OptimisticBudget {
    fn request(&mut self, job: JobId, need: Need, now: u64, grants: &mut Vec<Grant>) {
        self.wake(now, grants);
        self.attempt(job, need, now, grants);
    }

    fn at(&mut self, job: JobId, point: Point, now: u64, grants: &mut Vec<Grant>) {
        self.wake(now, grants);
        match point {
            Point::Produced => grants.push(Grant::HandOver(job)),
            Point::Taken => {}
            Point::Freed => {
                if let Some(need) = self.held.get_mut(&job) {
                    let early = std::mem::take(&mut need.freed_early);
                    need.peak -= early;
                    self.release(early, now, grants);
                }
            }
            Point::Delivered => {
                if let Some(need) = self.held.remove(&job) {
                    self.release(need.peak, now, grants);
                }
            }
        }
    }

    fn due(&self) -> Option<u64> {
        self.undoing.iter().map(|entry| entry.0).min()
    }

    fn wake(&mut self, now: u64, _: &mut Vec<Grant>) {
        while let Some(at) = self.undoing.iter().position(|entry| entry.0 <= now) {
            let (due, step, job, need) = self.undoing.remove(at).expect("found above");
            match step {
                // Nobody is told that these bytes are free again.
                Step::Undo => {
                    self.used -= need.peak;
                    self.undoing.push_back((due + self.gap, Step::Wait, job, need));
                }
                Step::Wait => self.waiting.push_back((job, need)),
            }
        }
    }
}

/// The whole peak is acquired at the start, strictly in order of arrival (tokio's `acquire_many`).
#[derive(Clone, Debug)]
pub struct StrictFifo {
    free: u64,
    held: BTreeMap<JobId, u64>,
    waiting: VecDeque<(JobId, u64)>,
}

impl StrictFifo {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { free: limit, held: BTreeMap::new(), waiting: VecDeque::new() }
    }

    fn serve(&mut self, grants: &mut Vec<Grant>) {
        while let Some(&(job, bytes)) = self.waiting.front()
            && bytes <= self.free
        {
            self.waiting.pop_front();
            self.free -= bytes;
            self.held.insert(job, bytes);
            grants.push(Grant::Start(job));
        }
    }
}

impl Policy for StrictFifo {
    fn request(&mut self, job: JobId, need: Need, _: u64, grants: &mut Vec<Grant>) {
        self.waiting.push_back((job, need.peak));
        self.serve(grants);
    }

    fn at(&mut self, job: JobId, point: Point, _: u64, grants: &mut Vec<Grant>) {
        match point {
            Point::Produced => grants.push(Grant::HandOver(job)),
            Point::Taken | Point::Freed => {}
            Point::Delivered => {
                self.free += self.held.remove(&job).unwrap_or(0);
                self.serve(grants);
            }
        }
    }
}

/// Bytes are counted as they are needed; where there are too few, the job fails (DataFusion's greedy pool).
#[derive(Clone, Debug)]
pub struct ReserveOrFail {
    free: u64,
    held: BTreeMap<JobId, u64>,
}

impl ReserveOrFail {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { free: limit, held: BTreeMap::new() }
    }

    fn give_back(&mut self, job: JobId) {
        self.free += self.held.remove(&job).unwrap_or(0);
    }
}

impl Policy for ReserveOrFail {
    fn request(&mut self, job: JobId, _: Need, _: u64, grants: &mut Vec<Grant>) {
        self.held.insert(job, 0);
        grants.push(Grant::Start(job));
    }

    fn grow(&mut self, job: JobId, bytes: u64, _: u64, grants: &mut Vec<Grant>) {
        if bytes > self.free {
            self.give_back(job);
            grants.push(Grant::Refused(job));
            return;
        }
        self.free -= bytes;
        *self.held.entry(job).or_default() += bytes;
        grants.push(Grant::Grown(job));
    }

    fn shrink(&mut self, job: JobId, bytes: u64) {
        let held = self.held.entry(job).or_default();
        let gone = bytes.min(*held);
        *held -= gone;
        self.free += gone;
    }

    fn at(&mut self, job: JobId, point: Point, _: u64, grants: &mut Vec<Grant>) {
        match point {
            Point::Produced => grants.push(Grant::HandOver(job)),
            Point::Taken | Point::Freed => {}
            Point::Delivered => self.give_back(job),
        }
    }
}

/// The whole peak is reserved at the start; after each release everybody who fits goes, the largest first (ceno).
#[derive(Clone, Debug)]
pub struct Greedy {
    free: u64,
    held: BTreeMap<JobId, u64>,
    /// Largest first, then in order of arrival.
    waiting: Vec<(JobId, u64)>,
}

impl Greedy {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { free: limit, held: BTreeMap::new(), waiting: Vec::new() }
    }

    fn backfill(&mut self, grants: &mut Vec<Grant>) {
        let Self { free, held, waiting } = self;
        waiting.retain(|&(job, bytes)| {
            if bytes > *free {
                return true;
            }
            *free -= bytes;
            held.insert(job, bytes);
            grants.push(Grant::Start(job));
            false
        });
    }
}

impl Policy for Greedy {
    fn request(&mut self, job: JobId, need: Need, _: u64, grants: &mut Vec<Grant>) {
        let at = self.waiting.partition_point(|entry| entry.1 >= need.peak);
        self.waiting.insert(at, (job, need.peak));
        self.backfill(grants);
    }

    fn at(&mut self, job: JobId, point: Point, _: u64, grants: &mut Vec<Grant>) {
        match point {
            Point::Produced => grants.push(Grant::HandOver(job)),
            Point::Taken | Point::Freed => {}
            Point::Delivered => {
                self.free += self.held.remove(&job).unwrap_or(0);
                self.backfill(grants);
            }
        }
    }
}
