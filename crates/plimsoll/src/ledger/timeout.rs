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
