//! The caller's handle to a job's result.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::error::JobError;
use super::landing::Handle;
use super::trip::{Delivery, Value};
use crate::contain::wake;
use crate::sync::{Condvar, Mutex, lock, wait};

/// The caller's handle to a job's result: [`wait`](Ticket::wait) for it on a thread, or `.await` it.
///
/// Dropping the ticket lets the job run to its end and drops the result there, with its bytes.
#[must_use = "the result comes through the ticket; dropping it lets the job run for nothing"]
pub struct Ticket<Out, E> {
    name: Arc<str>,
    counter: Arc<Counter<Out, E>>,
    trip: Handle<E>,
}

/// Where the result is left.
pub(super) struct Counter<Out, E> {
    state: Mutex<State<Out, E>>,
    arrived: Condvar,
}

enum State<Out, E> {
    Waiting(Option<Waker>),
    Arrived(Result<Out, JobError<E>>),
    Taken,
}

impl<Out, E> Counter<Out, E> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::Waiting(None)), arrived: Condvar::new() })
    }
}

impl<Out: Send + 'static, E: Send> Delivery<E> for Arc<Counter<Out, E>> {
    fn deliver(self: Box<Self>, result: Result<Value, JobError<E>>) {
        let result = result.map(|value| *value.downcast::<Out>().expect("the builder checked the type"));
        let before = std::mem::replace(&mut *lock(&self.state), State::Arrived(result));
        self.arrived.notify_one();
        if let State::Waiting(Some(waker)) = before {
            wake(waker);
        }
    }
}

impl<Out, E: Send + 'static> Ticket<Out, E> {
    pub(super) fn new(name: Arc<str>, counter: Arc<Counter<Out, E>>, trip: Handle<E>) -> Self {
        Self { name, counter, trip }
    }

    /// The job's name.
    pub fn job_name(&self) -> &str {
        &self.name
    }

    /// Asks the job to end early. A waiting job ends at once, a running stage is told through
    /// [`StageCx::is_cancelled`](super::StageCx::is_cancelled) and is the job's last. A job in its last stage may still
    /// succeed.
    pub fn cancel(&self) {
        self.trip.with(|trip| trip.cancel());
    }

    /// Whether the job has ended, so that [`wait`](Ticket::wait) does not block.
    pub fn has_ended(&self) -> bool {
        !matches!(*lock(&self.counter.state), State::Waiting(_))
    }

    /// Blocks the calling thread until the job has ended. Not for use inside a stage: it would keep a worker from work.
    ///
    /// # Errors
    ///
    /// See [`JobError`].
    ///
    /// # Panics
    ///
    /// If it was polled before, and ready.
    pub fn wait(self) -> Result<Out, JobError<E>> {
        let mut state = lock(&self.counter.state);
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Arrived(result) => return result,
                State::Taken => panic!("a ticket was waited for after it was ready"),
                waiting @ State::Waiting(_) => *state = waiting,
            }
            state = wait(&self.counter.arrived, state, None);
        }
    }
}

impl<Out, E> Future for Ticket<Out, E> {
    type Output = Result<Out, JobError<E>>;

    /// # Panics
    ///
    /// If polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloned before the lock is taken and dropped after: both may run a user's code.
        let waker = cx.waker().clone();
        let mut state = lock(&self.counter.state);
        let before = std::mem::replace(&mut *state, State::Taken);
        match before {
            State::Arrived(result) => Poll::Ready(result),
            State::Waiting(old) => {
                *state = State::Waiting(Some(waker));
                drop(state);
                drop(old);
                Poll::Pending
            }
            State::Taken => panic!("a ticket was polled after it was ready"),
        }
    }
}

impl<Out, E> fmt::Debug for Ticket<Out, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("job", &self.name).finish_non_exhaustive()
    }
}
