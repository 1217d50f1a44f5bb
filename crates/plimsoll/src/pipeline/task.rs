//! Stages that are futures: I/O, remote calls, whatever waits more than it computes.
//!
//! A job that was granted such a stage goes aboard a [`Voyage`], the future that the runtime polls. The stage's own future
//! lies in the trip's luggage like a value between stages: whoever takes the luggage out drives alone, so that a
//! cancellation drops the future at once wherever it is parked, on the canceller's thread, also when the runtime stands
//! still. The voyage is woken afterwards and ends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::cx::Stop;
use super::landing::Handle;
use super::trip::Value;
use crate::contain::contain;
use crate::ledger::{Charged, Grant, TakeError, VecError};
use crate::sync::{Mutex, lock};
use crate::{Bytes, Class, Reservation};

/// A future that a [`Runtime`] is to poll to its end.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes the stage's future from what the stage before made, which it takes out or leaves there for another run.
pub(super) type StartFn<E> = Box<dyn Fn(TaskCx, &mut Option<Value>) -> StageFuture<E> + Send + Sync>;

pub(super) type StageFuture<E> = Pin<Box<dyn Future<Output = Result<Value, E>> + Send>>;

/// Where the futures of async stages run.
#[derive(Clone)]
pub struct Runtime {
    spawn: Arc<dyn Fn(Task) + Send + Sync>,
}

impl Runtime {
    /// A runtime that starts a future with `spawn`, which returns at once. A future that is dropped before its end, as
    /// when the runtime shuts down, ends its job with [`JobError::Forsaken`](super::JobError::Forsaken).
    ///
    /// ```
    /// # use plimsoll::pipeline::Runtime;
    /// // Any executor will do; this one gives each future a thread.
    /// let runtime = Runtime::new(|task| drop(std::thread::spawn(|| pollster::block_on(task))));
    /// # mod pollster { pub fn block_on<F>(_: F) {} }
    /// ```
    pub fn new(spawn: impl Fn(Task) + Send + Sync + 'static) -> Self {
        Self { spawn: Arc::new(spawn) }
    }

    /// A tokio runtime. Jobs of a runtime that has been shut down end with
    /// [`JobError::Forsaken`](super::JobError::Forsaken).
    #[cfg(feature = "tokio")]
    pub fn tokio(handle: tokio::runtime::Handle) -> Self {
        Self::new(move |task| drop(handle.spawn(task)))
    }

    pub(super) fn spawn(&self, task: Task) {
        // If it panics the task is dropped, and the job knows.
        drop(contain(|| (self.spawn)(task)));
    }

    pub(super) fn is(&self, other: &Runtime) -> bool {
        Arc::ptr_eq(&self.spawn, &other.spawn)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

/// What an async stage sees of its job. It may be cloned and moved; once the stage has ended its grant is empty.
#[derive(Clone, Debug)]
pub struct TaskCx {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    job: Arc<str>,
    stage: &'static str,
    stop: Arc<Stop>,
    grant: Mutex<Option<Grant>>,
}

impl TaskCx {
    pub(super) fn new(job: Arc<str>, stage: &'static str, stop: Arc<Stop>, grant: Grant) -> (Self, GrantOfTask) {
        let shared = Arc::new(Shared { job, stage, stop, grant: Mutex::new(Some(grant)) });
        (Self { shared: shared.clone() }, GrantOfTask { shared })
    }

    /// Calls `f` with everything that the stage was granted; `None` once the stage has ended, when a clone of this has
    /// outlived it. Another call inside of `f` would wait for itself; so would whoever cancels the job there, for its end waits
    /// for `f`.
    pub fn with_grant<R>(&self, f: impl FnOnce(&mut Grant) -> R) -> Option<R> {
        lock(&self.shared.grant).as_mut().map(f)
    }

    /// Takes bytes of a class as a reservation, as [`Grant::take`].
    ///
    /// # Errors
    ///
    /// If the grant has not so many left, or the stage has ended.
    pub fn take(&self, class: Class, bytes: Bytes) -> Result<Reservation, TakeError> {
        self.with_grant(|grant| grant.take(class, bytes)).unwrap_or_else(|| Err(self.too_late(class, bytes)))
    }

    /// A vector of this capacity, paid for from the grant, as [`Grant::vec`].
    ///
    /// # Errors
    ///
    /// If the grant has not so many bytes left, the stage has ended, or the allocator refuses.
    pub fn vec<T>(&self, class: Class, capacity: usize) -> Result<Charged<Vec<T>>, VecError> {
        let late = || Err(VecError::Take(self.too_late(class, Bytes::of::<T>(capacity))));
        self.with_grant(|grant| grant.vec(class, capacity)).unwrap_or_else(late)
    }

    fn too_late(&self, class: Class, requested: Bytes) -> TakeError {
        TakeError { job: self.shared.job.clone(), stage: self.shared.stage, class, requested, left: Bytes::ZERO }
    }

    /// The job's name.
    pub fn job_name(&self) -> &str {
        &self.shared.job
    }

    /// The stage's name.
    pub fn stage_name(&self) -> &'static str {
        self.shared.stage
    }

    /// Whether somebody wants the job to end. The stage's future is dropped then, as soon as it is not being polled; what
    /// it started elsewhere may look.
    pub fn is_cancelled(&self) -> bool {
        self.shared.stop.is_set()
    }
}

/// The pipeline's hand on the grant that a stage's future works with. Dropping it ends the stage, whoever still has a
/// [`TaskCx`].
pub(super) struct GrantOfTask {
    shared: Arc<Shared>,
}

impl GrantOfTask {
    pub(super) fn take(&self) -> Option<Grant> {
        lock(&self.shared.grant).take()
    }
}

impl Drop for GrantOfTask {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// What a runtime polls: drives a trip through its async stages.
pub(super) struct Voyage<E: Send + 'static> {
    /// `None` when there is nothing more to do.
    trip: Option<Handle<E>>,
    /// Of the trip's luggage, when this was sent for it.
    edition: Option<u64>,
    /// The trip's future is polled by this voyage.
    aboard: bool,
}

impl<E: Send + 'static> Voyage<E> {
    pub(super) fn start(trip: Handle<E>, edition: Option<u64>, runtime: &Runtime) {
        runtime.spawn(Box::pin(Voyage { trip: Some(trip), edition, aboard: false }));
    }
}

impl<E: Send + 'static> Future for Voyage<E> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { trip, aboard, .. } = &mut *self;
        let Some(under_way) = &*trip else { return Poll::Ready(()) };
        let poll = under_way.with(|trip| trip.sail(cx, aboard)).unwrap_or(Poll::Ready(()));
        if poll.is_ready() {
            *trip = None;
        }
        poll
    }
}

impl<E: Send + 'static> Drop for Voyage<E> {
    fn drop(&mut self) {
        if let Some(trip) = self.trip.take() {
            trip.with(|trip| match self.aboard {
                true => trip.stranded(),
                false => trip.forsaken(self.edition),
            });
        }
    }
}
