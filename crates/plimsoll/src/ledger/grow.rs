//! Growth that waits, as a future: within what was declared, and given up at any point.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::error::GrowError;
use super::reservation::Reservation;
use super::shell::{Answer, SeatId};
use crate::Bytes;

/// A reservation on its way to hold more. See [`Reservation::grow_async`].
#[must_use = "nothing is asked for until it is awaited"]
#[derive(Debug)]
pub struct Growth<'a> {
    reservation: &'a mut Reservation,
    bytes: Bytes,
    seat: Option<SeatId>,
    /// It was answered. To ask again would hold the bytes twice.
    is_over: bool,
}

impl Reservation {
    /// Holds `bytes` more once they are there; the asynchronous sibling of [`grow`](Reservation::grow). Needs no runtime, and
    /// may be dropped at any point: the reservation then holds what it held before.
    ///
    /// # Errors
    ///
    /// As [`grow`](Reservation::grow).
    ///
    /// # Panics
    ///
    /// If the future is polled after it was ready.
    pub fn grow_async(&mut self, bytes: Bytes) -> Growth<'_> {
        Growth { reservation: self, bytes, seat: None, is_over: false }
    }
}

impl Future for Growth<'_> {
    type Output = Result<(), GrowError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.is_over, "growth that was answered is not polled again");
        let verdict = match self.seat {
            Some(seat) => self.reservation.ledger().poll(seat, cx.waker()),
            None => match self.reservation.ask_for(self.bytes) {
                Ok(Answer::Now(_, verdict)) => Some(verdict),
                Ok(Answer::Later(seat)) => {
                    self.seat = Some(seat);
                    self.reservation.ledger().poll(seat, cx.waker())
                }
                Err(error) => {
                    self.is_over = true;
                    return Poll::Ready(Err(error));
                }
            },
        };
        let Some(verdict) = verdict else { return Poll::Pending };
        (self.seat, self.is_over) = (None, true);
        let bytes = self.bytes;
        Poll::Ready(self.reservation.grown(bytes, verdict))
    }
}

impl Drop for Growth<'_> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            let (class, bytes) = (self.reservation.class(), self.bytes);
            self.reservation.ledger().leave(seat, |state, _, out| {
                if !mutant!("growth-given-up-keeps-its-bytes") {
                    state.release(seat.owner, class, bytes, out);
                }
            });
        }
    }
}
