//! With the feature `tokio`: time-outs for futures, by tokio's clock.
//!
//! All else about the futures needs no runtime. Dropping one at a time-out of your own (`tokio::time::timeout`) is as
//! good, but the error then does not know what was waited for.

use std::future::{Future, poll_fn};
use std::pin::pin;
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
    pub async fn within(mut self, timeout: Duration) -> Result<Reservation, ReserveError> {
        let mut sleep = pin!(tokio::time::sleep(timeout));
        poll_fn(|cx| {
            // The request first: a grant that is there when the time is up counts.
            if let Poll::Ready(result) = std::pin::Pin::new(&mut self).poll(cx) {
                return Poll::Ready(result);
            }
            match sleep.as_mut().poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(()) => Poll::Ready(self.give_up(timeout)),
            }
        })
        .await
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
    pub async fn within(mut self, timeout: Duration) -> Result<Grant, EnterError> {
        let mut sleep = pin!(tokio::time::sleep(timeout));
        poll_fn(|cx| {
            if let Poll::Ready(result) = std::pin::Pin::new(&mut self).poll(cx) {
                return Poll::Ready(result);
            }
            match sleep.as_mut().poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(()) => Poll::Ready(self.give_up(timeout)),
            }
        })
        .await
    }
}
