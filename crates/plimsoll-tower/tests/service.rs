//! Readiness, shrinking, holding, idling, failing: with a hand-driven service, timer and waker.
#![expect(clippy::disallowed_types, reason = "tests use plain locks")]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plimsoll::ledger::SubmitError;
use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Space};
use plimsoll_tower::{Admission, AdmitError, Admitted, BoxError, LedgerLayer, Timer, UntilDone};
use tower_layer::Layer;
use tower_service::Service;

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::HOST);

/// A request of this many bytes, and what the inner service makes of it.
#[derive(Clone, Copy, PartialEq)]
enum Request {
    Never(u64),
    Done(u64),
    Fails(u64),
    PanicsInCall(u64),
    PanicsInPoll(u64),
}

fn demand(request: &Request) -> Demand {
    let (Request::Never(bytes)
    | Request::Done(bytes)
    | Request::Fails(bytes)
    | Request::PanicsInCall(bytes)
    | Request::PanicsInPoll(bytes)) = *request;
    Demand::new().bytes(A, Bytes(bytes))
}

#[derive(Clone, Default, Debug)]
struct Inner {
    /// The inner service is not ready itself.
    busy: bool,
}

impl Service<Request> for Inner {
    type Response = &'static str;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<&'static str, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.busy { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let oops = || -> &'static str { std::panic::resume_unwind(Box::new("oops")) };
        if let Request::PanicsInCall(_) = request {
            oops();
        }
        Box::pin(async move {
            match request {
                Request::Never(_) => std::future::pending().await,
                Request::Fails(_) => Err("failed".into()),
                Request::PanicsInPoll(_) => Ok(oops()),
                _ => Ok("done"),
            }
        })
    }
}

type Demanding = fn(&Request) -> Demand;

fn ledger() -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(100)).bypass(2))
}

fn layer(ledger: &Ledger, most: u64) -> LedgerLayer<Demanding> {
    LedgerLayer::new(ledger, "service", Demand::new().bytes(A, Bytes(most)), demand as Demanding)
}

fn held(ledger: &Ledger) -> u64 {
    ledger.snapshot().space(Space::HOST).unwrap().held.0
}

fn poll_ready<F: plimsoll_tower::Finish<&'static str> + Clone>(
    service: &mut Admitted<Inner, Demanding, F>,
) -> Poll<Result<(), BoxError>> {
    service.poll_ready(&mut Context::from_waker(Waker::noop()))
}

fn is_ready(service: &mut Admitted<Inner, Demanding, UntilDone>) -> bool {
    matches!(poll_ready(service), Poll::Ready(Ok(())))
}

fn poll<T: Future>(future: Pin<&mut T>) -> Poll<T::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn error(result: Poll<Result<impl Sized, BoxError>>) -> AdmitError {
    let Poll::Ready(Err(error)) = result else { panic!("no error") };
    *error.downcast().unwrap()
}

#[test]
fn ready_takes_the_maximum_and_call_shrinks_it_to_the_request() {
    let ledger = ledger();
    let mut service = layer(&ledger, 60).layer(Inner::default());
    assert_eq!(held(&ledger), 0);
    assert!(is_ready(&mut service) && is_ready(&mut service));
    assert_eq!(held(&ledger), 60);
    let mut response = pin!(service.call(Request::Done(10)));
    assert_eq!(held(&ledger), 10);
    assert!(matches!(poll(response.as_mut()), Poll::Ready(Ok("done"))));
    assert_eq!(held(&ledger), 0);
}

#[test]
fn a_service_waits_for_room_and_is_woken() {
    let ledger = ledger();
    let (mut one, mut two) = (layer(&ledger, 60).layer(Inner::default()), layer(&ledger, 60).layer(Inner::default()));
    assert!(is_ready(&mut one));
    let (waker, woken) = waker();
    assert!(two.poll_ready(&mut Context::from_waker(&waker)).is_pending());
    let response = one.call(Request::Never(50));
    assert_eq!(*woken.0.lock().unwrap(), 0);
    // A request that needs less than the maximum leaves room for the other one.
    drop(response);
    assert_eq!(*woken.0.lock().unwrap(), 1);
    assert!(is_ready(&mut two));
    let _response = two.call(Request::Never(40));
    assert!(is_ready(&mut one), "60 fit beside 40");
}

struct Woken(Mutex<usize>);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

fn waker() -> (Waker, Arc<Woken>) {
    let woken = Arc::new(Woken(Mutex::new(0)));
    (Waker::from(woken.clone()), woken)
}

#[test]
fn nothing_is_held_while_the_inner_service_is_not_ready() {
    let ledger = ledger();
    let mut service = layer(&ledger, 60).layer(Inner { busy: true });
    assert!(!is_ready(&mut service));
    assert_eq!(held(&ledger), 0);
}

#[test]
fn a_clone_is_not_ready() {
    let ledger = ledger();
    let mut service = layer(&ledger, 60).layer(Inner::default());
    assert!(is_ready(&mut service));
    let mut clone = service.clone();
    assert_eq!(held(&ledger), 60);
    assert!(!is_ready(&mut clone), "the clone needs bytes of its own");
    let response = clone.call(Request::Done(1));
    assert_eq!(error(poll(pin!(response))), AdmitError::NotReady);
    assert!(is_ready(&mut service), "and this one keeps its");
}

#[test]
fn whoever_is_dropped_returns_everything() {
    let ledger = ledger();
    let mut service = layer(&ledger, 100).layer(Inner::default());
    assert!(is_ready(&mut service));
    let mut waiting = service.clone();
    assert!(!is_ready(&mut waiting));
    drop(waiting);
    assert!(ledger.snapshot().waiters.is_empty(), "a waiting service that is dropped waits no more");
    let response = service.call(Request::Never(70));
    assert_eq!(held(&ledger), 70);
    drop(response);
    assert_eq!(held(&ledger), 0);
    assert!(is_ready(&mut service));
    drop(service);
    assert_eq!(held(&ledger), 0);
    ledger.quiesce(Duration::ZERO).unwrap();
}

#[test]
fn failures_and_panics_return_everything() {
    let ledger = ledger();
    let mut service = layer(&ledger, 100).layer(Inner::default());
    assert!(is_ready(&mut service));
    assert!(matches!(poll(pin!(service.call(Request::Fails(70)))), Poll::Ready(Err(_))));
    assert_eq!(held(&ledger), 0);
    assert!(is_ready(&mut service));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(service.call(Request::PanicsInCall(70))))).is_err());
    assert_eq!(held(&ledger), 0);
    assert!(is_ready(&mut service));
    let response = service.call(Request::PanicsInPoll(70));
    assert!(catch_unwind(AssertUnwindSafe(move || drop(poll(pin!(response))))).is_err());
    assert_eq!(held(&ledger), 0);
    ledger.quiesce(Duration::ZERO).unwrap();
}

#[test]
fn what_never_fits_is_an_error_at_once() {
    let ledger = ledger();
    let mut service = layer(&ledger, 101).layer(Inner::default());
    assert!(matches!(error(poll_ready(&mut service)), AdmitError::Submit(SubmitError::NeverFits(_))));
    let mut service = layer(&ledger, 50).layer(Inner::default());
    assert!(is_ready(&mut service));
    let response = service.call(Request::Done(51));
    assert_eq!(error(poll(pin!(response))), AdmitError::AboveMost { resource: A.into(), requested: 51, most: 50 });
    assert_eq!(held(&ledger), 0);
    ledger.close();
    assert!(matches!(error(poll_ready(&mut service)), AdmitError::Submit(SubmitError::Closed { .. })));
}

#[test]
fn a_response_may_carry_the_bytes_on() {
    let ledger = ledger();
    let layer = layer(&ledger, 60)
        .finish(|response: &'static str, mut admission: Admission| (response, admission.grant().take_all(A)));
    let mut service = layer.layer(Inner::default());
    assert!(matches!(poll_ready(&mut service), Poll::Ready(Ok(()))));
    let response = service.call(Request::Done(30));
    let Poll::Ready(Ok((_, body))) = poll(pin!(response)) else { panic!("it is done") };
    assert_eq!((held(&ledger), body.bytes()), (30, Bytes(30)));
    drop(body);
    assert_eq!(held(&ledger), 0);
}

type Callback = Box<dyn FnOnce() + Send>;

/// Fires when told to.
#[derive(Clone, Default)]
struct ByHand(Arc<Mutex<Vec<Callback>>>);

impl Timer for ByHand {
    fn after(&self, delay: Duration, then: Callback) {
        assert_eq!(delay, Duration::from_secs(30));
        self.0.lock().unwrap().push(then);
    }
}

impl ByHand {
    fn fire(&self) -> usize {
        let due = std::mem::take(&mut *self.0.lock().unwrap());
        let count = due.len();
        due.into_iter().for_each(|then| then());
        count
    }
}

#[test]
fn an_idle_service_gives_its_bytes_back() {
    let ledger = ledger();
    let timer = ByHand::default();
    let layer = layer(&ledger, 60).idle(Duration::from_secs(30), timer.clone());
    let mut service = layer.layer(Inner::default());
    assert!(is_ready(&mut service));
    assert_eq!((timer.fire(), held(&ledger)), (1, 60), "it became ready since the timer was set");
    assert_eq!((timer.fire(), held(&ledger)), (1, 0), "and nobody called since");
    assert_eq!(timer.fire(), 0);
    // Polled again, it is ready again; a call that comes without is served where there is room.
    assert!(is_ready(&mut service));
    timer.fire();
    timer.fire();
    let response = service.call(Request::Never(10));
    assert_eq!(held(&ledger), 10);
    let all = ledger.reserve(A, Bytes(90)).try_now().unwrap();
    assert_eq!(error(poll(pin!(service.call(Request::Done(10))))), AdmitError::NotReady);
    drop((response, all));
}

/// What the timer knows of a service keeps nothing of it.
#[test]
fn a_service_that_is_dropped_gives_its_bytes_back_at_once() {
    let ledger = ledger();
    let timer = ByHand::default();
    let layer = layer(&ledger, 60).idle(Duration::from_secs(30), timer.clone());
    let mut service = layer.layer(Inner::default());
    assert!(is_ready(&mut service));
    drop(service);
    assert_eq!(held(&ledger), 0);
    assert_eq!((timer.fire(), timer.fire()), (1, 0));
    // Also one that was granted what it waited for, and has not looked.
    let all = ledger.reserve(A, Bytes(100)).try_now().unwrap();
    let mut service = layer.layer(Inner::default());
    assert!(!is_ready(&mut service));
    drop(all);
    assert_eq!(held(&ledger), 60);
    drop(service);
    assert_eq!((held(&ledger), timer.fire(), timer.fire()), (0, 1, 0));
}

#[test]
fn a_service_that_was_woken_and_is_not_polled_gives_its_bytes_back() {
    let ledger = ledger();
    let timer = ByHand::default();
    let mut service = layer(&ledger, 60).idle(Duration::from_secs(30), timer.clone()).layer(Inner::default());
    let all = ledger.reserve(A, Bytes(100)).try_now().unwrap();
    let (waker, woken) = waker();
    assert!(service.poll_ready(&mut Context::from_waker(&waker)).is_pending());
    for _ in 0..3 {
        assert_eq!((timer.fire(), ledger.snapshot().waiters.len()), (1, 1), "while it waits it keeps its place");
    }
    drop(all);
    assert_eq!((*woken.0.lock().unwrap(), held(&ledger)), (1, 60));
    assert_eq!((timer.fire(), held(&ledger)), (1, 60), "it was polled since the timer was set");
    assert_eq!((timer.fire(), held(&ledger)), (1, 0));
    assert_eq!(timer.fire(), 0);
    assert!(is_ready(&mut service));
    assert_eq!(held(&ledger), 60);
}

#[test]
fn a_busy_service_has_one_timer_and_keeps_its_bytes() {
    let ledger = ledger();
    let timer = ByHand::default();
    let mut service = layer(&ledger, 60).idle(Duration::from_secs(30), timer.clone()).layer(Inner::default());
    for _ in 0..10 {
        assert!(is_ready(&mut service));
        drop(service.call(Request::Never(60)));
        assert!(is_ready(&mut service));
        assert_eq!((timer.fire(), held(&ledger)), (1, 60));
    }
    // Its response is none of the timer's business.
    let response = service.call(Request::Never(60));
    assert_eq!((timer.fire(), timer.fire(), held(&ledger)), (1, 0, 60));
    drop(response);
}

/// Several services at one ledger: the one that needs most is passed K times and no more.
#[test]
fn a_large_service_is_not_starved_by_small_ones() {
    let ledger = ledger();
    let mut large = layer(&ledger, 80).layer(Inner::default());
    let small = layer(&ledger, 20);
    let mut first = small.layer(Inner::default());
    assert!(is_ready(&mut first));
    let mut other = ledger.reserve(B, Bytes(10)).try_now().unwrap();
    assert!(!is_ready(&mut large));
    let mut ready = Vec::new();
    for _ in 0..4 {
        let mut service = small.layer(Inner::default());
        if is_ready(&mut service) {
            ready.push(service);
        }
    }
    assert_eq!(ready.len(), 2, "the budget's bypass");
    other.shrink_to(Bytes(0)).unwrap();
    drop((ready, first));
    assert!(is_ready(&mut large));
}
