//! The service: ready when its maximum is there.

#![expect(clippy::disallowed_types, reason = "loom does not model this crate; the lock guards one optional value")]

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use plimsoll::{Demand, Job};
use tower_service::Service;

use crate::layer::{Config, Finish};
use crate::{Admission, AdmitError, BoxError, Timer};

/// A service behind a ledger: what [`LedgerLayer`](crate::LedgerLayer) makes. A clone is not ready.
pub struct Admitted<S, D, F> {
    inner: S,
    config: Arc<Config>,
    demand: D,
    finish: F,
    ready: Arc<Ready>,
}

/// What a service holds or waits for: shared with the timer, which takes it away when nobody calls.
#[derive(Default)]
struct Ready(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    stand: Stand,
    /// It became ready, or was polled, since the timer last looked.
    fresh: bool,
    /// The timer will look again. There is never more than one on its way, however often the service is called.
    armed: bool,
}

#[derive(Default)]
#[expect(clippy::large_enum_variant, reason = "each service has one")]
enum Stand {
    #[default]
    Nothing,
    /// This job waits to be admitted; or it was, and nobody has looked since.
    Asking(Job),
    Ready(Admission),
}

impl Stand {
    /// Whether something is held for a call that may never come.
    fn holds(&self) -> bool {
        match self {
            Stand::Nothing => false,
            Stand::Asking(job) => !job.is_waiting(),
            Stand::Ready(_) => true,
        }
    }
}

impl Ready {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a poll brought.
    fn put(self: &Arc<Ready>, stand: Stand, idle: Option<&(Duration, Arc<dyn Timer>)>) {
        let mut slot = self.slot();
        slot.stand = stand;
        let arm = idle.filter(|_| !std::mem::replace(&mut slot.armed, true));
        drop(slot);
        if let Some((idle, timer)) = arm {
            Ready::arm(Arc::downgrade(self), *idle, timer.clone());
        }
    }

    /// The timer knows of a service only while it is there.
    fn arm(this: Weak<Ready>, idle: Duration, timer: Arc<dyn Timer>) {
        let again = timer.clone();
        timer.after(
            idle,
            Box::new(move || {
                let Some(ready) = this.upgrade() else { return };
                let mut slot = ready.slot();
                let waits = matches!(slot.stand, Stand::Asking(_)) && !slot.stand.holds();
                if waits || (slot.stand.holds() && std::mem::take(&mut slot.fresh)) {
                    drop(slot);
                    return Ready::arm(this, idle, again);
                }
                slot.armed = false;
                let unused = std::mem::take(&mut slot.stand);
                // The ledger wakes others when it is dropped, so not under the lock.
                drop(slot);
                drop(unused);
            }),
        );
    }
}

impl<S, D, F> Admitted<S, D, F> {
    pub(crate) fn new(inner: S, config: Arc<Config>, demand: D, finish: F) -> Admitted<S, D, F> {
        Admitted { inner, config, demand, finish, ready: Arc::default() }
    }

    fn poll_admission(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AdmitError>> {
        let asking = {
            let mut slot = self.ready.slot();
            slot.fresh = true;
            match std::mem::take(&mut slot.stand) {
                Stand::Ready(admission) => {
                    slot.stand = Stand::Ready(admission);
                    return Poll::Ready(Ok(()));
                }
                Stand::Asking(job) => Some(job),
                Stand::Nothing => None,
            }
        };
        // Polled outside of the lock, which the timer may take meanwhile and find nothing.
        let mut job = match asking {
            Some(job) => job,
            None => self.config.ledger.submit(self.config.spec.clone()).map_err(AdmitError::Submit)?,
        };
        let polled = job.poll_enter(cx, 0);
        let idle = self.config.idle.as_ref();
        match polled {
            Poll::Pending => {
                self.ready.put(Stand::Asking(job), idle);
                Poll::Pending
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(AdmitError::Enter(error))),
            Poll::Ready(Ok(grant)) => {
                self.ready.put(Stand::Ready(Admission::new(job, grant)), idle);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn take_admission(&mut self, demand: &Demand) -> Result<Admission, AdmitError> {
        let stand = std::mem::take(&mut self.ready.slot().stand);
        let mut admission = match stand {
            Stand::Ready(admission) => admission,
            Stand::Asking(_) | Stand::Nothing => {
                drop(stand);
                let mut job = self.config.ledger.submit(self.config.spec.clone()).map_err(AdmitError::Submit)?;
                let grant = job.enter(0).try_now().map_err(|_| AdmitError::NotReady)?;
                Admission::new(job, grant)
            }
        };
        admission.shrink_to(demand)?;
        Ok(admission)
    }
}

impl<S, D, F, R> Service<R> for Admitted<S, D, F>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
    D: Fn(&R) -> Demand,
    F: Finish<S::Response> + Clone,
{
    type Response = F::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future, F>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner service first: while it is not ready nothing is held for it.
        if let Err(error) = ready!(self.inner.poll_ready(cx)) {
            return Poll::Ready(Err(error.into()));
        }
        self.poll_admission(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let demand = (self.demand)(&request);
        match self.take_admission(&demand) {
            Ok(admission) => {
                // Where `call` panics the admission is dropped with it.
                let inner = self.inner.call(request);
                ResponseFuture { inner: Some(inner), held: Ok(Some((admission, self.finish.clone()))) }
            }
            Err(error) => ResponseFuture { inner: None, held: Err(error) },
        }
    }
}

impl<S: Clone, D: Clone, F: Clone> Clone for Admitted<S, D, F> {
    /// Not ready, whatever this one is: bytes cannot be had twice.
    fn clone(&self) -> Admitted<S, D, F> {
        Admitted::new(self.inner.clone(), self.config.clone(), self.demand.clone(), self.finish.clone())
    }
}

impl<S: fmt::Debug, D, F> fmt::Debug for Admitted<S, D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admitted").field(&self.config.spec.name).field(&self.inner).finish()
    }
}

pin_project_lite::pin_project! {
    /// The response of an [`Admitted`] service. Dropping it returns what the request held.
    pub struct ResponseFuture<T, F> {
        // Dropped in this order: the work, then what paid for it.
        #[pin]
        inner: Option<T>,
        held: Result<Option<(Admission, F)>, AdmitError>,
    }
}

impl<T, F, R, E> Future for ResponseFuture<T, F>
where
    T: Future<Output = Result<R, E>>,
    E: Into<BoxError>,
    F: Finish<R>,
{
    type Output = Result<F::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else {
            let Err(error) = this.held else { panic!("polled after it was done") };
            return Poll::Ready(Err(error.clone().into()));
        };
        let result = ready!(inner.poll(cx));
        // The work's own buffers go before the bytes that pay for them.
        this.inner.set(None);
        let Ok(Some((admission, finish))) = this.held.as_mut().map(Option::take) else {
            panic!("polled after it was done")
        };
        Poll::Ready(match result {
            Ok(response) => Ok(finish.finish(response, admission)),
            Err(error) => Err(error.into()),
        })
    }
}

impl<T, F> fmt::Debug for ResponseFuture<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
