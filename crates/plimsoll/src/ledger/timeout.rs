//! With the feature `tokio`: time-outs for futures, by tokio's clock.
//!
//! All else about the futures needs no runtime. Dropping one at a time-out of your own (`tokio::time::timeout`) is as
//! good, but the error then does not know what was waited for.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use super::error::{EnterError, ReserveError};
use super::grant::Grant;
use super::job::Enter;
use super::reservation::Reservation;
use super::reserve::Reserve;

impl Reserve {
    /// Waits for the bytes, at most for `timeout` of tokio's clock. The asynchronous sibling of
    /// [`wait_for`](Reserve::wait_for); available with the feature `tokio`.
    ///
    /// # Errors
    ///
    /// As [`wait`](Reserve::wait), and [`ReserveError::TimedOut`], which says what was waited for.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its clock enabled.
    pub async fn within(self, timeout: Duration) -> Result<Reservation, ReserveError> {
        until(self, timeout, Reserve::give_up).await
    }
}

impl Enter<'_> {
    /// Waits for the stage, at most for `timeout` of tokio's clock. The asynchronous sibling of
    /// [`wait_for`](Enter::wait_for); available with the feature `tokio`.
    ///
    /// # Errors
    ///
    /// As [`wait`](Enter::wait), and [`EnterError::TimedOut`], which says what was waited for.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its clock enabled.
    pub async fn within(self, timeout: Duration) -> Result<Grant, EnterError> {
        until(self, timeout, Enter::give_up).await
    }
}

/// Waits for a request, and gives it up when the time is over.
async fn until<R: Future + Unpin>(
    mut request: R,
    timeout: Duration,
    give_up: impl Fn(&mut R, Duration) -> R::Output,
) -> R::Output {
    let mut sleep = pin!(tokio::time::sleep(timeout));
    poll_fn(|cx| {
        // The request first: a grant that is there when the time is up counts.
        if let Poll::Ready(result) = Pin::new(&mut request).poll(cx) {
            return Poll::Ready(result);
        }
        sleep.as_mut().poll(cx).map(|()| give_up(&mut request, timeout))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::ledger::Got;
    use crate::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Space};

    const KEY: Class = Class::new("key", Space::HOST);

    /// The time is up just after the load has fallen to the one who waits, who has not looked since.
    #[test]
    fn a_load_that_falls_to_whoever_gives_up_goes_on_to_the_next() {
        let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(9)));
        let key = ledger.residency::<u8>("key", KEY, Bytes(4), Duration::ZERO).unwrap();
        let Got::Vacant(vacant) = key.get().try_now().unwrap() else { panic!("it is not there") };
        let profile = Profile::new().stage("s", Demand::new(), Demand::new());
        let mut job = ledger.submit(JobSpec::new("job", profile).needs(&key)).unwrap();
        assert!(job.poll_enter(&mut Context::from_waker(Waker::noop()), 0).is_pending());
        drop(vacant);
        let error = job.enter(0).give_up(Duration::ZERO).unwrap_err();
        assert!(matches!(error, EnterError::NotLoaded { .. }), "{error}");
        assert!(ledger.snapshot().waiters.is_empty());
        let Got::Vacant(vacant) = key.get().try_now().unwrap() else { panic!("nobody else has it") };
        vacant.fill(7).unwrap();
        drop(job.enter(0).wait().unwrap());
    }
}
