//! With tokio's clock, on tokio's runtime.
#![cfg(feature = "tokio")]

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Space};
use plimsoll_tower::{LedgerLayer, TokioTimer};
use tower_layer::Layer;
use tower_service::Service;

const A: Class = Class::new("a", Space::HOST);

#[derive(Clone)]
struct Echo;

impl Service<u64> for Echo {
    type Response = u64;
    type Error = Infallible;
    type Future = Ready<Result<u64, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(Ok(request))
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_service_lets_another_one_in() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(100)));
    let layer = LedgerLayer::new(&ledger, "echo", Demand::new().bytes(A, Bytes(100)), |bytes: &u64| {
        Demand::new().bytes(A, Bytes(*bytes))
    })
    .idle(Duration::from_secs(30), TokioTimer);
    let (mut one, mut two) = (layer.layer(Echo), layer.layer(Echo));
    poll_fn(|cx| one.poll_ready(cx)).await.unwrap();
    let start = tokio::time::Instant::now();
    poll_fn(|cx| two.poll_ready(cx)).await.unwrap();
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(30) && waited <= Duration::from_secs(61), "{waited:?}");
    assert_eq!(two.call(7).await.unwrap(), 7);
    drop((one, two));
    ledger.quiesce(Duration::ZERO).unwrap();
}
