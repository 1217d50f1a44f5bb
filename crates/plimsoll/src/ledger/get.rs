//! A request for a residency by itself: blocking wait and future in one.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin as StdPin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::error::{EnterError, SubmitError};
use super::job::{Job, JobSpec};
use super::residency::{Got, Pin, Residency, Vacant};
use super::state::AccountId;
use crate::{Demand, Profile};

/// A request for a residency, outside of any job.
///
/// Take it with [`wait`](Get::wait), [`wait_for`](Get::wait_for), [`try_now`](Get::try_now) or `.await`. The future needs
/// no runtime and may be dropped at any point: a load that has fallen to it meanwhile falls to the next one who waits.
#[must_use = "a request does nothing until it is waited for"]
#[derive(Debug)]
pub struct Get<T> {
    residency: Residency<T>,
    priority: i32,
    place: &'static Location<'static>,
    /// Whoever pins a residency is a job in flight: this one does nothing else.
    job: Option<Job>,
}

impl<T: Send + Sync + 'static> Get<T> {
    pub(super) fn new(residency: Residency<T>, place: &'static Location<'static>) -> Get<T> {
        Get { residency, priority: 0, place, job: None }
    }

    /// Sets the priority: higher goes first, 0 otherwise.
    pub fn priority(mut self, priority: i32) -> Get<T> {
        self.priority = priority;
        self
    }

    /// Blocks the thread until the value is there, or to load it falls to the caller.
    ///
    /// # Errors
    ///
    /// If it never fits the limit, its device is or gets lost, the ledger is or becomes closed, or whoever loads it says that it cannot be loaded
    /// ([`Load::fail`](super::Load::fail)).
    pub fn wait(self) -> Result<Got<T>, EnterError> {
        self.wait_at_most(None)
    }

    /// Blocks the thread, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`wait`](Get::wait), and [`EnterError::TimedOut`].
    pub fn wait_for(self, timeout: Duration) -> Result<Got<T>, EnterError> {
        self.wait_at_most(Some(timeout))
    }

    /// Takes what there is now: the value, or its load.
    ///
    /// # Errors
    ///
    /// [`EnterError::WouldWait`] where [`wait`](Get::wait) would wait, as for somebody else's load; and its other errors.
    pub fn try_now(mut self) -> Result<Got<T>, EnterError> {
        let mut job = self.submit()?;
        match job.load().try_now()? {
            None => self.pinned(job),
            Some(load) => Ok(self.vacant(load, job)),
        }
    }

    fn wait_at_most(mut self, timeout: Option<Duration>) -> Result<Got<T>, EnterError> {
        let mut job = self.submit()?;
        match job.load().wait_at_most(timeout)? {
            None => self.pinned(job),
            Some(load) => Ok(self.vacant(load, job)),
        }
    }

    fn submit(&mut self) -> Result<Job, EnterError> {
        if let Some(job) = self.job.take() {
            return Ok(job);
        }
        let key = &self.residency.key;
        let profile = Profile::new().stage("use", Demand::new(), Demand::new());
        let spec = JobSpec::new(&key.name, profile).priority(self.priority).needs(&self.residency);
        match key.inner.read(|state| state.submit(AccountId::ROOT, spec.clone())) {
            Ok(id) => {
                let JobSpec { name, profile, needs, .. } = spec;
                Ok(Job::new(key.inner.clone(), id, name, vec![profile])
                    .with_needs(needs, Vec::new())
                    .with_place(self.place))
            }
            Err(SubmitError::NeverFits(error)) => Err(EnterError::NeverFits(error)),
            Err(SubmitError::Closed { job }) => Err(EnterError::Closed { job }),
            Err(SubmitError::Lost(lost)) => Err(EnterError::Lost(lost)),
            Err(error) => unreachable!("it asks for nothing but the residency: {error}"),
        }
    }

    fn pinned(&self, job: Job) -> Result<Got<T>, EnterError> {
        Ok(Got::Pinned(Pin::new(&self.residency.key, job)?))
    }

    fn vacant(&self, load: super::AnyLoad, job: Job) -> Got<T> {
        match load.of(&self.residency) {
            Ok(load) => Got::Vacant(Vacant::new(load, job)),
            Err(other) => unreachable!("it needs nothing else: {other:?}"),
        }
    }
}

impl<T: Send + Sync + 'static> Future for Get<T> {
    type Output = Result<Got<T>, EnterError>;

    fn poll(mut self: StdPin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut job = self.submit()?;
        match job.poll_load(cx) {
            Poll::Pending => {
                self.job = Some(job);
                Poll::Pending
            }
            Poll::Ready(Ok(None)) => Poll::Ready(self.pinned(job)),
            Poll::Ready(Ok(Some(load))) => Poll::Ready(Ok(self.vacant(load, job))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}
