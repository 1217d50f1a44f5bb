//! The end of a stage on a device, for whoever waits for it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::error::StageError;
use super::lanes::Lanes;
use crate::contain::wake;
use crate::sync::{Arc, Condvar, Mutex, lock, wait};

/// A stage that runs on a device: [wait](Running::wait) for its end, or `.await` it. Dropping this lets it run to its end.
#[must_use = "the result of the stage is in here"]
pub struct Running<R, E> {
    outcome: Arc<Outcome<R, E>>,
}

struct Outcome<R, E> {
    state: Mutex<State<R, E>>,
    bell: Condvar,
}

enum State<R, E> {
    Waiting(Option<Waker>),
    There(Result<R, StageError<E>>),
    Taken,
}

/// Who is to say how the stage ended. Dropped before that, it says that the device did not run it.
pub(super) struct Promise<R, E> {
    outcome: Option<Arc<Outcome<R, E>>>,
    lanes: Arc<Lanes>,
}

pub(super) fn promise<R, E>(lanes: &Arc<Lanes>) -> (Promise<R, E>, Running<R, E>) {
    let outcome = Arc::new(Outcome { state: Mutex::new(State::Waiting(None)), bell: Condvar::new() });
    (Promise { outcome: Some(outcome.clone()), lanes: lanes.clone() }, Running { outcome })
}

impl<R, E> Promise<R, E> {
    pub(super) fn keep(mut self, result: Result<R, StageError<E>>) {
        if let Some(outcome) = self.outcome.take() {
            outcome.tell(result);
        }
    }
}

impl<R, E> Drop for Promise<R, E> {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take() {
            outcome.tell(Err(StageError::Device(self.lanes.refusal())));
        }
    }
}

impl<R, E> Outcome<R, E> {
    fn tell(&self, result: Result<R, StageError<E>>) {
        let before = std::mem::replace(&mut *lock(&self.state), State::There(result));
        self.bell.notify_all();
        if let State::Waiting(Some(waker)) = before {
            wake(waker);
        }
    }
}

impl<R, E> Running<R, E> {
    /// Blocks until the stage has ended; everything that it did not hand on has then been returned. Not for use inside of a
    /// stage.
    ///
    /// # Errors
    ///
    /// See [`StageError`].
    ///
    /// # Panics
    ///
    /// If it was polled before, and ready.
    pub fn wait(self) -> Result<R, StageError<E>> {
        let mut state = lock(&self.outcome.state);
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::There(result) => return result,
                State::Taken => panic!("a stage's end was waited for after it was ready"),
                waiting @ State::Waiting(_) => *state = waiting,
            }
            state = wait(&self.outcome.bell, state, None);
        }
    }
}

impl<R, E> Future for Running<R, E> {
    type Output = Result<R, StageError<E>>;

    /// # Panics
    ///
    /// If polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloned before the lock is taken and dropped after: both may run a user's code.
        let waker = cx.waker().clone();
        let mut state = lock(&self.outcome.state);
        match std::mem::replace(&mut *state, State::Taken) {
            State::There(result) => Poll::Ready(result),
            State::Waiting(old) => {
                *state = State::Waiting(Some(waker));
                drop(state);
                drop(old);
                Poll::Pending
            }
            State::Taken => panic!("a stage's end was polled after it was ready"),
        }
    }
}

impl<R, E> fmt::Debug for Running<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}
