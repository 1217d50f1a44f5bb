//! How a job is submitted: its name, how urgent it is, how long its caller waits, and whether it is the same as another.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::Rejection;
use crate::sync::{Mutex, lock};

/// What a job that nears its deadline is raised by: it goes before every job that does not.
pub const URGENT: i32 = 1 << 20;

/// How a job is submitted. A name alone will do: `pipeline.submit("block 17", input)`.
///
/// ```
/// use std::time::{Duration, Instant};
/// use plimsoll::pipeline::JobOptions;
/// let options = JobOptions::new("block 17")
///     .priority(2)
///     .deadline(Instant::now() + Duration::from_secs(60))
///     .timeout(Duration::from_secs(600))
///     .id("chain 9, block 17");
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOptions {
    pub(super) name: Arc<str>,
    pub(super) priority: i32,
    pub(super) deadline: Option<Instant>,
    pub(super) timeout: Option<Duration>,
    pub(super) id: Option<Arc<str>>,
    pub(super) in_order: bool,
}

impl JobOptions {
    /// A job of this name, of ordinary priority, that may take as long as it takes.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), priority: 0, deadline: None, timeout: None, id: None, in_order: false }
    }

    /// Sets the priority: higher goes first, for memory and for workers; 0 otherwise.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// When the result is wanted. The nearer that is, measured by how long jobs have taken so far, the more the job
    /// matters: its priority is raised by [`URGENT`], and it may be admitted from the budget's urgent reserve and beside the pace of the others. A missed
    /// deadline is reported ([`Event::DeadlineMissed`](super::Event::DeadlineMissed)), and the job goes on.
    #[must_use]
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long the caller waits, counted from the submission. Then the job is cancelled and ends with
    /// [`JobError::TimedOut`](super::JobError::TimedOut).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Gives the job an identity: while a job with the same one is under way, and after one has succeeded, a second is
    /// refused with [`Rejection::Duplicate`], so that whoever is unsure whether a submission
    /// got through may repeat it. A job that failed may be submitted again.
    ///
    /// The pipeline remembers the last [`remember`](super::Builder::remember) identities of jobs that have succeeded.
    #[must_use]
    pub fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl JobOptions {
    /// The results of others wait for this job's: if it begins again from its start it keeps its place, and what it was promised.
    pub(super) fn in_order(mut self) -> Self {
        self.in_order = true;
        self
    }

    pub(super) fn has_alarms(&self) -> bool {
        self.deadline.is_some() || self.timeout.is_some()
    }
}

impl From<&str> for JobOptions {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<&String> for JobOptions {
    fn from(name: &String) -> Self {
        Self::new(name.as_str())
    }
}

impl From<String> for JobOptions {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

/// The identities of jobs under way, and of those that have succeeded lately.
#[derive(Debug)]
pub(super) struct Ids {
    known: HashMap<Arc<str>, Known>,
    /// Oldest first.
    succeeded: VecDeque<Arc<str>>,
    remember: usize,
}

/// An identity that was taken for a job which is not under way yet: it goes back where there is no job in the end.
pub(super) struct Claimed<'a> {
    ids: &'a Mutex<Ids>,
    /// `None` once a job has it.
    id: Option<Arc<str>>,
}

impl<'a> Claimed<'a> {
    pub(super) fn new(ids: &'a Mutex<Ids>, id: Arc<str>) -> Result<Self, Rejection> {
        match lock(ids).begin(&id) {
            Ok(()) => Ok(Self { ids, id: Some(id) }),
            Err(known) => Err(Rejection::Duplicate { id, known }),
        }
    }

    /// From here on the job gives it back.
    pub(super) fn belongs_to_its_job(mut self) {
        self.id = None;
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take().filter(|_| !mutant!("panicked-submit-keeps-its-id")) {
            lock(self.ids).end(&id, false);
        }
    }
}

/// What is known of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Known {
    /// The job is under way.
    UnderWay,
    /// The job has ended with a result.
    Succeeded,
}

impl Ids {
    pub(super) fn new(remember: usize) -> Self {
        Self { known: HashMap::new(), succeeded: VecDeque::new(), remember }
    }

    /// Takes an identity for a job, unless another has it.
    pub(super) fn begin(&mut self, id: &Arc<str>) -> Result<(), Known> {
        match self.known.get(id) {
            Some(known) => Err(*known),
            None => {
                self.known.insert(id.clone(), Known::UnderWay);
                Ok(())
            }
        }
    }

    pub(super) fn end(&mut self, id: &Arc<str>, succeeded: bool) {
        if !succeeded || self.remember == 0 {
            self.known.remove(id);
            return;
        }
        if self.succeeded.len() == self.remember
            && let Some(oldest) = self.succeeded.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(id.clone(), Known::Succeeded);
        self.succeeded.push_back(id.clone());
    }
}
