//! The service: ready when its maximum is there.

#![expect(clippy::disallowed_types, reason = "loom does not model this crate; the lock guards one optional value")]

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// The job that waits to be admitted.
    asking: Option<Job>,
    ready: Arc<Ready>,
}

/// What a ready service holds: shared with the timer, which takes it away when nobody calls.
#[derive(Default)]
struct Ready(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    admission: Option<Admission>,
    /// It became ready, or was found ready, since the timer last looked.
    fresh: bool,
    /// The timer will look again. There is never more than one on its way, however often the service is called.
    armed: bool,
}

impl Ready {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arm(self: Arc<Ready>, idle: Duration, timer: Arc<dyn Timer>) {
        let again = timer.clone();
        timer.after(
            idle,
            Box::new(move || {
                let mut slot = self.slot();
                if slot.admission.is_some() && std::mem::take(&mut slot.fresh) {
                    drop(slot);
                    return self.arm(idle, again);
                }
                slot.armed = false;
                let idle = slot.admission.take();
                // The ledger wakes others when it is dropped, so not under the lock.
                drop(slot);
                drop(idle);
            }),
        );
    }
}

impl<S, D, F> Admitted<S, D, F> {
    pub(crate) fn new(inner: S, config: Arc<Config>, demand: D, finish: F) -> Admitted<S, D, F> {
        Admitted { inner, config, demand, finish, asking: None, ready: Arc::default() }
    }

    fn poll_admission(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AdmitError>> {
        {
            let mut slot = self.ready.slot();
            slot.fresh = true;
            if slot.admission.is_some() {
                return Poll::Ready(Ok(()));
            }
        }
        let mut job = match self.asking.take() {
            Some(job) => job,
            None => self.config.ledger.submit(self.config.spec.clone()).map_err(AdmitError::Submit)?,
        };
        match job.poll_enter(cx, 0) {
            Poll::Pending => {
                self.asking = Some(job);
                Poll::Pending
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(AdmitError::Enter(error))),
            Poll::Ready(Ok(grant)) => {
                let mut slot = self.ready.slot();
                slot.admission = Some(Admission::new(job, grant));
                let arm = self.config.idle.is_some() && !std::mem::replace(&mut slot.armed, true);
                drop(slot);
                if let Some((idle, timer)) = self.config.idle.clone().filter(|_| arm) {
                    self.ready.clone().arm(idle, timer);
                }
                Poll::Ready(Ok(()))
            }
        }
    }

    fn take_admission(&mut self, demand: &Demand) -> Result<Admission, AdmitError> {
        let ready = self.ready.slot().admission.take();
        let mut admission = match ready {
            Some(admission) => admission,
            None => {
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
