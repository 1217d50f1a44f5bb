//! Many jobs from one iterator, pulled when there is room.

use std::fmt;

use super::Pipeline;
use super::error::JobError;
use super::intake::Intake;
use super::options::JobOptions;

/// The results of [`Pipeline::run_all`]: an iterator of index and result.
///
/// Its `next` blocks the calling thread, so keep it off the pool's workers. Dropping it cancels the jobs that have not
/// ended, which is how a run stops early; [`Pipeline::drain`] waits for them.
#[must_use = "jobs are started by iterating"]
pub struct RunAll<'a, In, Out, E: Send + 'static, I: Iterator> {
    intake: Intake<'a, In, Out, E>,
    /// `None` once they have run out.
    inputs: Option<I>,
}

impl<'a, In, Out, E, I, N> RunAll<'a, In, Out, E, I>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
    I: Iterator<Item = (N, In)>,
    N: Into<JobOptions>,
{
    pub(super) fn new(pipeline: &'a Pipeline<In, Out, E>, inputs: I) -> Self {
        Self { intake: Intake::new(pipeline), inputs: Some(inputs) }
    }

    /// Yields the results in the order of their inputs, not as jobs end. A result that waits for an earlier one keeps
    /// the bytes that travel with it; [`at_most`](RunAll::at_most) bounds how many do. A job that may begin again [from its
    /// start](super::Builder::from_start) is promised all that it needs until it ends, since those behind it may hold what it would
    /// need anew.
    pub fn in_order(mut self) -> Self {
        self.intake.in_order();
        self
    }

    /// Pulls no input while `jobs` are under way or their results not yet yielded; at least 1.
    pub fn at_most(mut self, jobs: usize) -> Self {
        self.intake.at_most(jobs);
        self
    }

    /// Pulls an input and sends it off, if there is room and a next one.
    fn pull(&mut self) -> bool {
        if !self.intake.has_room() {
            return false;
        }
        match self.inputs.as_mut().and_then(Iterator::next) {
            Some((options, input)) => {
                self.intake.send(options.into(), input);
                true
            }
            None => {
                self.inputs = None;
                false
            }
        }
    }
}

impl<In, Out, E, I, N> Iterator for RunAll<'_, In, Out, E, I>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
    I: Iterator<Item = (N, In)>,
    N: Into<JobOptions>,
{
    type Item = (usize, Result<Out, JobError<E>>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // Before anything is yielded, so that the workers have something to do meanwhile.
            while self.pull() {}
            if let Some(ready) = self.intake.ready() {
                return Some(ready);
            }
            if self.intake.is_empty() {
                return None;
            }
            self.intake.wait(self.inputs.is_some());
        }
    }
}

impl<In, Out, E, I> fmt::Debug for RunAll<'_, In, Out, E, I>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
    I: Iterator,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.intake.fmt(&mut f.debug_struct("RunAll"))
    }
}
