//! A request for a free-standing reservation: builder, blocking wait and future in one.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::error::ReserveError;
use super::reservation::Reservation;
use super::shell::{Answer, Inner, SeatId, Verdict, Waited};
use super::state::{AccountId, LedgerState, Outcome, OwnerId, Refusal, Standing};
use crate::sync::Arc;
use crate::{Bytes, Class};

/// A request for a reservation outside of any job.
///
/// Say more about it with [`max`](Reserve::max), [`name`](Reserve::name), [`priority`](Reserve::priority) and
/// [`retained`](Reserve::retained); then take it with [`wait`](Reserve::wait), [`wait_for`](Reserve::wait_for),
/// [`try_now`](Reserve::try_now) or `.await`. The future needs no runtime and may be dropped at any point: what it was
/// granted meanwhile goes back.
#[must_use = "a request does nothing until it is waited for"]
#[derive(Debug)]
pub struct Reserve {
    inner: Arc<Inner>,
    account: AccountId,
    standing: Standing,
    place: &'static Location<'static>,
    seat: Option<SeatId>,
}

impl Reserve {
    #[track_caller]
    pub(super) fn new(inner: Arc<Inner>, account: AccountId, class: Class, bytes: Bytes) -> Reserve {
        let name = class.name().into();
        let standing = Standing { name, class, bytes, max: None, priority: 0, retained: false };
        Reserve { inner, account, standing, place: Location::caller(), seat: None }
    }

    /// Declares the most that [`Reservation::grow`] will ask for. It is part of the claim: others are admitted only if
    /// this much can still be served.
    pub fn max(mut self, bytes: Bytes) -> Reserve {
        self.standing.max = Some(bytes);
        self
    }

    /// Names the reservation in reports and errors; the class's name otherwise.
    pub fn name(mut self, name: &str) -> Reserve {
        self.standing.name = name.into();
        self
    }

    /// Sets the priority: higher goes first, 0 otherwise.
    pub fn priority(mut self, priority: i32) -> Reserve {
        self.standing.priority = priority;
        self
    }

    /// Declares that the bytes are not coming back while others wait, as those of a key that is kept for the life of the
    /// process. Others are then admitted only within what is left, and refused at once where that can never do.
    pub fn retained(mut self) -> Reserve {
        self.standing.retained = true;
        self
    }

    /// Takes the bytes now or not at all.
    ///
    /// # Errors
    ///
    /// [`ReserveError::WouldWait`] where [`wait`](Reserve::wait) would wait, and its other errors.
    pub fn try_now(self) -> Result<Reservation, ReserveError> {
        match self.inner.ask_now(self.place, |now, state, out| self.open(now, state, out))? {
            Ok((id, verdict)) => self.conclude(id, verdict),
            Err(shortage) => Err(ReserveError::WouldWait(Box::new(shortage))),
        }
    }

    /// Blocks the thread until the bytes are there.
    ///
    /// # Errors
    ///
    /// If it can never be served, or the ledger is or becomes closed.
    pub fn wait(self) -> Result<Reservation, ReserveError> {
        self.wait_at_most(None)
    }

    /// Blocks the thread until the bytes are there, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`wait`](Reserve::wait), and [`ReserveError::TimedOut`].
    pub fn wait_for(self, timeout: Duration) -> Result<Reservation, ReserveError> {
        self.wait_at_most(Some(timeout))
    }

    fn wait_at_most(mut self, timeout: Option<Duration>) -> Result<Reservation, ReserveError> {
        let seat = match self.inner.ask(self.place, |now, state, out| self.open(now, state, out))? {
            Answer::Now(id, verdict) => return self.conclude(id, verdict),
            Answer::Later(seat) => seat,
        };
        self.seat = Some(seat);
        let waited = self.inner.wait(seat, timeout);
        self.seat = None;
        self.conclude_wait(seat, waited, timeout.unwrap_or_default())
    }

    /// Stops waiting because a time-out has passed; a grant that has arrived meanwhile counts.
    #[cfg(feature = "tokio")]
    pub(super) fn give_up(&mut self, after: Duration) -> Result<Reservation, ReserveError> {
        let seat = self.seat.take().expect("it waits");
        let waited = self.inner.wait_no_longer(seat);
        self.conclude_wait(seat, waited, after)
    }

    fn conclude_wait(&self, seat: SeatId, waited: Waited, after: Duration) -> Result<Reservation, ReserveError> {
        match waited {
            Waited::Verdict(verdict) => self.conclude(seat.owner, verdict),
            Waited::TimedOut(shortage) => Err(ReserveError::TimedOut { after, shortage: Box::new(shortage) }),
            Waited::MustLoad => unreachable!("a reservation needs no residency"),
        }
    }

    fn open(&self, now: u64, state: &mut LedgerState, out: &mut Vec<Outcome>) -> Result<OwnerId, ReserveError> {
        state.open(now, self.account, self.standing.clone(), out)
    }

    fn conclude(&self, id: OwnerId, verdict: Verdict) -> Result<Reservation, ReserveError> {
        let Standing { class, bytes, .. } = self.standing;
        match verdict {
            Verdict::Granted(_) => Ok(Reservation::new(self.inner.clone(), id, class, bytes).with_place(self.place)),
            Verdict::Refused(Refusal::NeverFits(error)) => Err(ReserveError::NeverFits(error)),
            Verdict::Refused(Refusal::ParentEnded) => unreachable!("only jobs have parents"),
            Verdict::Refused(Refusal::Lost(error)) => Err(ReserveError::Lost(error)),
            Verdict::Refused(Refusal::Closed) => Err(ReserveError::Closed { who: self.standing.name.clone() }),
            Verdict::Refused(Refusal::LoadFailed { .. }) => unreachable!("a reservation needs no residency"),
        }
    }
}

impl Future for Reserve {
    type Output = Result<Reservation, ReserveError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let seat = match self.seat {
            Some(seat) => seat,
            None => match self.inner.ask(self.place, |now, state, out| self.open(now, state, out))? {
                Answer::Now(id, verdict) => return Poll::Ready(self.conclude(id, verdict)),
                Answer::Later(seat) => *self.seat.insert(seat),
            },
        };
        match self.inner.poll(seat, cx.waker()) {
            None => Poll::Pending,
            Some(verdict) => {
                self.seat = None;
                Poll::Ready(self.conclude(seat.owner, verdict))
            }
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            let Standing { class, bytes, .. } = self.standing;
            self.inner.leave(seat, |state, _, out| state.drop_piece(seat.owner, class, bytes, out));
        }
    }
}
