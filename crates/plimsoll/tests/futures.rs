//! The futures need no runtime: a `block_on` made of the standard library's parts drives them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Space};

const A: Class = Class::new("a", Space::HOST);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls only when woken, so a lost wakeup hangs the test.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn ledger() -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(10)))
}

#[test]
fn reservations_and_stages_are_awaited_without_a_runtime() {
    let ledger = ledger();
    let profile = Profile::new().stage("s", Demand::new().bytes(A, Bytes(7)), Demand::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    drop(block_on(async { ledger.reserve(A, Bytes(6)).await }).unwrap());
                }
            });
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut job = ledger.submit(JobSpec::new("job", profile.clone())).unwrap();
                    drop(block_on(job.enter(0)).unwrap());
                }
            });
        }
    });
    assert!(ledger.snapshot().is_empty() && ledger.snapshot().waiters.is_empty());
}

/// Polls once, with a waker that nobody hears.
fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn growth_is_awaited_and_may_be_given_up_at_any_point() {
    let ledger = ledger();
    let mut held = ledger.reserve(A, Bytes(2)).max(Bytes(6)).wait().unwrap();
    assert!(block_on(held.grow_async(Bytes(1))).is_ok());
    assert_eq!(held.bytes(), Bytes(3));
    assert!(block_on(held.grow_async(Bytes(4))).unwrap_err().to_string().contains(".max()"));
    // Two may grow to more than there is, one after the other.
    let mut second = ledger.reserve(A, Bytes(2)).max(Bytes(7)).wait().unwrap();
    assert!(block_on(second.grow_async(Bytes(2))).is_ok());
    let waits = |held: &mut plimsoll::Reservation, more: u64| {
        let mut growth = pin!(held.grow_async(Bytes(more)));
        let waits = poll(growth.as_mut()).is_pending();
        assert_eq!(ledger.snapshot().waiters.len(), usize::from(waits));
        waits
    };
    // Given up while it waits: nothing is left of it.
    assert!(block_on(held.grow_async(Bytes(3))).is_ok() && waits(&mut second, 3));
    assert_eq!((second.bytes(), ledger.snapshot().waiters.len()), (Bytes(4), 0));
    // Given up after it was granted, and before anybody has looked: the bytes are free again.
    {
        let mut growth = pin!(second.grow_async(Bytes(3)));
        assert!(poll(growth.as_mut()).is_pending());
        drop(held);
        assert_eq!(ledger.snapshot().spaces[0].held, Bytes(7), "it was granted");
    }
    assert_eq!((second.bytes(), ledger.snapshot().spaces[0].held), (Bytes(4), Bytes(4)));
    // Heard of by whoever waits.
    let held = ledger.reserve(A, Bytes(6)).wait().unwrap();
    let woken = std::thread::scope(|scope| {
        let waits = scope.spawn(|| block_on(second.grow_async(Bytes(3))).map(|()| second.bytes()));
        drop(held);
        waits.join().unwrap()
    });
    assert_eq!(woken.unwrap(), Bytes(7));
    drop(second);
    assert!(ledger.snapshot().is_empty());
}

#[test]
#[should_panic(expected = "not polled again")]
fn growth_that_was_answered_is_not_asked_for_again() {
    let ledger = ledger();
    let mut held = ledger.reserve(A, Bytes(1)).max(Bytes(3)).wait().unwrap();
    let mut growth = pin!(held.grow_async(Bytes(1)));
    assert!(poll(growth.as_mut()).is_ready());
    let _ = poll(growth.as_mut());
}

/// A request that was polled keeps its place however it is waited for then, and is not asked for a second time.
#[test]
fn a_request_that_was_polled_may_be_waited_for() {
    let ledger = ledger();
    let waiting = || ledger.snapshot().waiters.len();
    // Named requests go another way than plain ones.
    for name in [None, Some("named")] {
        let polled = |bytes| {
            let request = ledger.reserve(A, Bytes(bytes));
            let mut request = match name {
                None => request,
                Some(name) => request.name(name),
            };
            assert!(poll(std::pin::Pin::new(&mut request)).is_pending());
            request
        };
        let held = ledger.reserve(A, Bytes(10)).wait().unwrap();
        assert!(polled(1).try_now().unwrap_err().to_string().contains("needs 1 B"));
        assert_eq!(waiting(), 0, "given up");
        let error = polled(2).wait_for(std::time::Duration::from_millis(1)).unwrap_err();
        assert!(matches!(error, plimsoll::ledger::ReserveError::TimedOut { .. }), "{error}");
        assert_eq!(waiting(), 0, "given up");
        let (request, tried) = (polled(3), polled(4));
        drop(held);
        assert_eq!(ledger.snapshot().spaces[0].held, Bytes(7), "both are granted");
        let (waited, tried) = (request.wait().unwrap(), tried.try_now().unwrap());
        assert_eq!((waited.bytes(), tried.bytes(), ledger.snapshot().spaces[0].held), (Bytes(3), Bytes(4), Bytes(7)));
        // Granted while it is waited for.
        let request = polled(9);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| request.wait().unwrap().bytes());
            drop((waited, tried));
            assert_eq!(waits.join().unwrap(), Bytes(9));
        });
        assert!(ledger.snapshot().is_empty() && waiting() == 0);
    }
}

/// Looks at the ledger when its last clone is dropped, as a waker may that holds a task.
struct Looks(Ledger);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.0.snapshot();
    }
}

#[test]
fn a_waker_is_dropped_where_it_may_use_the_ledger() {
    let ledger = ledger();
    let held = ledger.reserve(A, Bytes(10)).wait().unwrap();
    let profile = Profile::new().stage("s", Demand::new().bytes(A, Bytes(7)), Demand::new());
    let mut job = ledger.submit(JobSpec::new("job", profile)).unwrap();
    let moment = std::time::Duration::from_millis(1);
    let waker = || Waker::from(Arc::new(Looks(ledger.clone())));
    assert!(job.poll_enter(&mut Context::from_waker(&waker()), 0).is_pending());
    assert!(job.enter(0).wait_for(moment).is_err());
    let mut request = ledger.reserve(A, Bytes(1));
    assert!(std::pin::Pin::new(&mut request).poll(&mut Context::from_waker(&waker())).is_pending());
    assert!(request.wait_for(moment).is_err());
    drop(held);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker's own affair");
    }
}

#[test]
fn a_waker_that_panics_keeps_nobody_else_from_being_told() {
    let ledger = ledger();
    for name in ["", "named"] {
        let held = ledger.reserve(A, Bytes(10)).wait().unwrap();
        let ask = || if name.is_empty() { ledger.reserve(A, Bytes(5)) } else { ledger.reserve(A, Bytes(5)).name(name) };
        let (mut first, mut second) = (pin!(ask()), pin!(ask()));
        let panics = Waker::from(Arc::new(Panics));
        assert!(first.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
        let told = Waker::from(Arc::new(Unpark(std::thread::current())));
        assert!(second.as_mut().poll(&mut Context::from_waker(&told)).is_pending());
        drop(held);
        // Returns at once if it was told, and never otherwise.
        std::thread::park();
        assert!(poll(second).is_ready() && poll(first).is_ready());
    }
}

#[cfg(feature = "tokio")]
mod with_tokio {
    use std::time::Duration;

    use plimsoll::ledger::{EnterError, ReserveError};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_time_out_says_what_was_waited_for() {
        let ledger = ledger();
        let held = ledger.reserve(A, Bytes(8)).name("held").try_now().unwrap();
        let start = tokio::time::Instant::now();
        let after = Duration::from_secs(3600);
        let error = ledger.reserve(A, Bytes(5)).name("more").within(after).await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), 3600);
        let ReserveError::TimedOut { after: said, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*said, after);
        assert!(
            error
                .to_string()
                .contains("\"more\" needs 5 B of host memory, but of 10 B only 2 B are free; held by \"held\"")
        );

        let profile = Profile::new().stage("s", Demand::new().bytes(A, Bytes(7)), Demand::new());
        let mut job = ledger.submit(JobSpec::new("job", profile)).unwrap();
        let error = job.enter(0).within(after).await.unwrap_err();
        assert!(matches!(error, EnterError::TimedOut { .. }) && error.to_string().contains("\"job\" needs 7 B"));
        assert!(ledger.snapshot().waiters.is_empty(), "who gave up waits no more");
        drop(held);
        // The job may ask again.
        drop(job.enter(0).within(after).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_served_in_time_is_served() {
        let ledger = ledger();
        let held = ledger.reserve(A, Bytes(8)).try_now().unwrap();
        let (more, ()) = tokio::join!(ledger.reserve(A, Bytes(5)).within(Duration::from_secs(9)), async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            drop(held);
        });
        assert_eq!(more.unwrap().bytes(), Bytes(5));
    }
}
