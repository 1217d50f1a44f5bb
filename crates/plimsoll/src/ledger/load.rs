//! What falls to a job to be loaded before it enters its first stage.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::error::EnterError;
use super::job::Job;
use super::residency::{AnyLoad, Key};
use super::shell::{Answer, Verdict, Waited};
use super::state::ResidencyId;

impl Job {
    /// Asks to enter the first stage, and for what falls to this job to be loaded for that: `None` once there is nothing
    /// left to load, and the stage is granted. Take it with [`enter(0)`](Job::enter) then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Space};
    /// # const KEYS: Class = Class::new("keys", Space::HOST);
    /// # const SCRATCH: Class = Class::new("scratch", Space::HOST);
    /// # let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::MIB));
    /// let key = ledger.residency::<Vec<u8>>("key", KEYS, Bytes(1000), Duration::from_secs(15))?;
    /// let profile = Profile::new().stage("prove", Demand::new().bytes(SCRATCH, Bytes(100)), Demand::new());
    /// let mut job = ledger.submit(JobSpec::new("job", profile).needs(&key))?;
    /// while let Some(load) = job.load().wait()? {
    ///     let load = load.of(&key).expect("the job needs nothing else");
    ///     load.fill(vec![7; 1000])?;
    /// }
    /// let grant = job.enter(0).wait()?;
    /// assert_eq!(grant.pinned(&key).expect("the job needs it")[0], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A job that needs no residencies, or has been in its first stage, has nothing to load.
    pub fn load(&mut self) -> NextLoad<'_> {
        NextLoad { job: self, over: false }
    }

    /// Polls for what [`load`](Job::load) waits for, for callers that keep the job in a structure of their own. The request
    /// stands as that of [`poll_enter`](Job::poll_enter) does.
    ///
    /// # Errors
    ///
    /// See [`EnterError`].
    pub fn poll_load(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<AnyLoad>, EnterError>> {
        if self.has_nothing_to_load() {
            return Poll::Ready(Ok(None));
        }
        let seat = match self.waiting {
            Some((seat, _)) => seat,
            None => match self.inner.ask(self.place, |now, state, out| self.ask(now, 0, state, out))? {
                Answer::Now(_, verdict) => return Poll::Ready(self.arrives(verdict).map(|()| None)),
                Answer::Later(seat) => self.waiting.insert((seat, 0)).0,
            },
        };
        if let Some(verdict) = self.inner.poll(seat, cx.waker()) {
            self.waiting = None;
            return Poll::Ready(self.arrives(verdict).map(|()| None));
        }
        // Looked at after the waker was left: a load that falls to the job from now on fires it.
        match self.take_load() {
            Some(load) => Poll::Ready(Ok(Some(load))),
            None => Poll::Pending,
        }
    }

    fn has_nothing_to_load(&mut self) -> bool {
        if self.waiting.is_some_and(|(_, stage)| stage != 0) {
            self.cancel_enter();
        }
        self.needs.is_empty() || self.arrived.is_some() || (self.waiting.is_none() && self.is_admitted())
    }

    fn wait_for_load(&mut self, timeout: Option<Duration>) -> Result<Option<AnyLoad>, EnterError> {
        if self.has_nothing_to_load() {
            return Ok(None);
        }
        let seat = match self.waiting {
            Some((seat, _)) => seat,
            None => match self.inner.ask(self.place, |now, state, out| self.ask(now, 0, state, out))? {
                Answer::Now(_, verdict) => return self.arrives(verdict).map(|()| None),
                Answer::Later(seat) => self.waiting.insert((seat, 0)).0,
            },
        };
        loop {
            match self.inner.wait(seat, timeout) {
                Waited::MustLoad => {
                    if let Some(load) = self.take_load() {
                        return Ok(Some(load));
                    }
                }
                Waited::Verdict(verdict) => {
                    self.waiting = None;
                    return self.arrives(verdict).map(|()| None);
                }
                Waited::TimedOut(shortage) => {
                    self.waiting = None;
                    let after = timeout.unwrap_or_default();
                    return Err(EnterError::TimedOut { after, shortage: Box::new(shortage) });
                }
            }
        }
    }

    fn try_load_now(&mut self) -> Result<Option<AnyLoad>, EnterError> {
        loop {
            if let Poll::Ready(result) = self.poll_load(&mut Context::from_waker(Waker::noop())) {
                return result;
            }
            // Without one, it was answered since: look again.
            if let Some(shortage) = self.inner.read(|state| state.shortage_while_it_waits(self.id)) {
                self.cancel_enter();
                return Err(EnterError::WouldWait(Box::new(shortage)));
            }
        }
    }

    /// Keeps a verdict for `enter`, or says why there is none.
    fn arrives(&mut self, verdict: Verdict) -> Result<(), EnterError> {
        match verdict {
            Verdict::Granted(granted) => {
                self.arrived = Some((0, granted));
                Ok(())
            }
            refused => match self.conclude(0, refused) {
                Err(error) => Err(error),
                Ok(_) => unreachable!("it is refused"),
            },
        }
    }

    /// Begins the load that falls to the job.
    fn take_load(&mut self) -> Option<AnyLoad> {
        let (id, payer) = self.inner.read(|state| state.take_load(self.id))?;
        Some(AnyLoad::new(self.key_of(id).expect("the job keeps what it needs").clone(), payer, self.place))
    }

    /// Whether a load falls to the job, which asks for a stage instead: the residency's name.
    pub(super) fn must_load(&self) -> Option<StdArc<str>> {
        if self.needs.is_empty() {
            return None;
        }
        self.key_of(self.inner.next_load(self.id)?).map(|key| key.name.clone())
    }

    fn key_of(&self, residency: ResidencyId) -> Option<&StdArc<Key>> {
        self.needs.iter().find(|(_, need)| need.id() == residency)?.1.key.as_ref()
    }
}

/// A request for what falls to a job to be loaded: take it with [`wait`](NextLoad::wait),
/// [`wait_for`](NextLoad::wait_for), [`try_now`](NextLoad::try_now) or `.await`. The future needs no runtime and may be
/// dropped at any point.
#[must_use = "a request does nothing until it is waited for"]
#[derive(Debug)]
pub struct NextLoad<'a> {
    job: &'a mut Job,
    /// It was answered: the job's request stands.
    over: bool,
}

impl NextLoad<'_> {
    /// Blocks the thread until something falls to the job to be loaded, or its first stage is granted.
    ///
    /// # Errors
    ///
    /// See [`EnterError`].
    pub fn wait(self) -> Result<Option<AnyLoad>, EnterError> {
        self.wait_at_most(None)
    }

    /// Blocks the thread, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`wait`](NextLoad::wait), and [`EnterError::TimedOut`].
    pub fn wait_for(self, timeout: Duration) -> Result<Option<AnyLoad>, EnterError> {
        self.wait_at_most(Some(timeout))
    }

    pub(super) fn wait_at_most(mut self, timeout: Option<Duration>) -> Result<Option<AnyLoad>, EnterError> {
        self.over = true;
        self.job.wait_for_load(timeout)
    }

    /// What there is now.
    ///
    /// # Errors
    ///
    /// [`EnterError::WouldWait`] where [`wait`](NextLoad::wait) would wait, and its other errors.
    pub fn try_now(mut self) -> Result<Option<AnyLoad>, EnterError> {
        self.over = true;
        self.job.try_load_now()
    }
}

impl Future for NextLoad<'_> {
    type Output = Result<Option<AnyLoad>, EnterError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = self.job.poll_load(cx);
        self.over = result.is_ready();
        result
    }
}

impl Drop for NextLoad<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.job.cancel_enter();
        }
    }
}
