//! The layer: what a service declares.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use plimsoll::{Demand, JobSpec, Ledger, Profile};
use tower_layer::Layer;

use crate::service::Admitted;
use crate::{Admission, Timer};

/// Puts services behind a ledger. See the [crate's documentation](crate).
///
/// `D` says what a request needs; `F` what becomes of the admission when there is a response.
pub struct LedgerLayer<D, F = UntilDone> {
    pub(crate) config: Arc<Config>,
    pub(crate) demand: D,
    pub(crate) finish: F,
}

/// Returns the bytes when the response is there: what [`LedgerLayer::finish`] changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilDone;

/// Decides what becomes of an admission when there is a response.
pub trait Finish<R> {
    /// The response that the caller sees.
    type Response;

    /// Puts the two together, or drops the admission.
    fn finish(&self, response: R, admission: Admission) -> Self::Response;
}

impl<R> Finish<R> for UntilDone {
    type Response = R;

    fn finish(&self, response: R, admission: Admission) -> R {
        drop(admission);
        response
    }
}

impl<R, O, F: Fn(R, Admission) -> O> Finish<R> for F {
    type Response = O;

    fn finish(&self, response: R, admission: Admission) -> O {
        self(response, admission)
    }
}

#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) ledger: Ledger,
    pub(crate) spec: JobSpec,
    pub(crate) idle: Option<(Duration, Arc<dyn Timer>)>,
}

impl<D> LedgerLayer<D> {
    /// A layer for services that need at most `most` for a request, and `demand(&request)` for the request at hand.
    /// `name` is what reports and errors call the service's jobs.
    pub fn new(ledger: &Ledger, name: &'static str, most: Demand, demand: D) -> LedgerLayer<D> {
        let spec = JobSpec::new(name, Profile::new().stage("request", most, Demand::new()));
        let config = Config { ledger: ledger.clone(), spec, idle: None };
        LedgerLayer { config: Arc::new(config), demand, finish: UntilDone }
    }
}

impl<D, F> LedgerLayer<D, F> {
    /// Sets the priority of the service's jobs: higher goes first, 0 otherwise.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> LedgerLayer<D, F> {
        Arc::make_mut(&mut self.config).spec.priority = priority;
        self
    }

    /// Lets a service that is ready and is not called give everything back after at least `idle`, and at most twice that; also
    /// one that was woken because it can be ready, and is not polled again. It then becomes ready anew when it is polled.
    #[must_use]
    pub fn idle(mut self, idle: Duration, timer: impl Timer) -> LedgerLayer<D, F> {
        Arc::make_mut(&mut self.config).idle = Some((idle, Arc::new(timer)));
        self
    }

    /// Lets the response carry the admission on, where bytes live longer than the response's future: in a body that is
    /// still to be sent, for instance. `finish` is given both, and drops the admission where it is not needed.
    #[must_use]
    pub fn finish<G>(self, finish: G) -> LedgerLayer<D, G> {
        let LedgerLayer { config, demand, .. } = self;
        LedgerLayer { config, demand, finish }
    }
}

impl<S, D: Clone, F: Clone> Layer<S> for LedgerLayer<D, F> {
    type Service = Admitted<S, D, F>;

    fn layer(&self, inner: S) -> Admitted<S, D, F> {
        Admitted::new(inner, self.config.clone(), self.demand.clone(), self.finish.clone())
    }
}

impl<D: Clone, F: Clone> Clone for LedgerLayer<D, F> {
    fn clone(&self) -> LedgerLayer<D, F> {
        LedgerLayer { config: self.config.clone(), demand: self.demand.clone(), finish: self.finish.clone() }
    }
}

impl<D, F> fmt::Debug for LedgerLayer<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LedgerLayer({})", self.config.spec.name)
    }
}
