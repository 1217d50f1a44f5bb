//! A request for a free-standing reservation: builder, blocking wait and future in one.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Account;
use super::error::ReserveError;
use super::reservation::Reservation;
use super::shell::{Answer, Inner, Plain, SeatId, Short, Signal, Verdict, Waited};
use super::state::{LedgerState, Outcome, OwnerId, Refusal, Standing};
use crate::sync::{Arc, thread};
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
    /// Goes over to the reservation with the grant.
    inner: Option<Arc<Inner>>,
    account: Account,
    class: Class,
    bytes: Bytes,
    /// The class's, unless it was given another one.
    name: Option<StdArc<str>>,
    max: Option<Bytes>,
    priority: i32,
    retained: bool,
    place: &'static Location<'static>,
    seat: Option<SeatId>,
}

impl Reserve {
    #[track_caller]
    pub(super) fn new(inner: Arc<Inner>, account: Account, class: Class, bytes: Bytes) -> Reserve {
        Reserve {
            inner: Some(inner),
            account,
            class,
            bytes,
            name: None,
            max: None,
            priority: 0,
            retained: false,
            place: Location::caller(),
            seat: None,
        }
    }

    /// Declares the most that [`Reservation::grow`] will ask for. It is part of the claim: others are admitted only if
    /// this much can still be served.
    pub fn max(mut self, bytes: Bytes) -> Reserve {
        self.max = Some(bytes);
        self
    }

    /// Names the reservation in reports and errors; the class's name otherwise.
    pub fn name(mut self, name: &str) -> Reserve {
        self.name = Some(name.into());
        self
    }

    /// Sets the priority: higher goes first, 0 otherwise.
    pub fn priority(mut self, priority: i32) -> Reserve {
        self.priority = priority;
        self
    }

    /// Declares that the bytes are not coming back while others wait, as those of a key that is kept for the life of the
    /// process. Others are then admitted only within what is left, and refused at once where that can never do.
    pub fn retained(mut self) -> Reserve {
        self.retained = true;
        self
    }

    /// Takes the bytes now or not at all.
    ///
    /// # Errors
    ///
    /// [`ReserveError::WouldWait`] where [`wait`](Reserve::wait) would wait, and its other errors.
    pub fn try_now(mut self) -> Result<Reservation, ReserveError> {
        if let Some(seat) = self.seat.take().filter(|_| !mutant!("polled-then-asked-again")) {
            return match self.inner().wait_no_longer(seat) {
                Waited::TimedOut(shortage) => Err(ReserveError::WouldWait(Box::new(shortage))),
                waited => self.conclude_wait(seat, waited, Duration::ZERO),
            };
        }
        match self.plain().and_then(|plain| self.inner().try_at_once(plain)) {
            Some(Ok(id)) => return Ok(self.reservation(id)),
            Some(Err(shortage)) => return Err(ReserveError::WouldWait(Box::new(shortage))),
            None => {}
        }
        match self.inner().ask_now(self.place, |now, state, out| self.open(now, state, out))? {
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
        if let Some(seat) = self.seat.filter(|_| !mutant!("polled-then-asked-again")) {
            return self.wait_on(seat, timeout);
        }
        // With a time-out it looks at the clock whenever it wakes, and sleeps another way.
        let parked = || if timeout.is_none() { Signal::Parked(thread::current()) } else { Signal::Nobody };
        let seat = match self.plain().and_then(|plain| self.inner().ask_at_once(plain, parked)) {
            Some(Short::Granted(id)) => return Ok(self.reservation(id)),
            Some(Short::Waits(seat)) if timeout.is_none() => {
                self.seat = Some(seat);
                let verdict = self.inner().park(seat);
                self.seat = None;
                return self.conclude(seat.owner, verdict);
            }
            Some(Short::Waits(seat)) => Some(seat),
            None => None,
        };
        if let Some(seat) = seat {
            return self.wait_on(seat, timeout);
        }
        match self.inner().ask(self.place, |now, state, out| self.open(now, state, out))? {
            Answer::Now(id, verdict) => self.conclude(id, verdict),
            Answer::Later(seat) => self.wait_on(seat, timeout),
        }
    }

    /// Waits on a seat that it has taken.
    fn wait_on(&mut self, seat: SeatId, timeout: Option<Duration>) -> Result<Reservation, ReserveError> {
        self.seat = Some(seat);
        let waited = self.inner().wait(seat, timeout);
        self.seat = None;
        self.conclude_wait(seat, waited, timeout.unwrap_or_default())
    }

    /// Stops waiting because a time-out has passed; a grant that has arrived meanwhile counts.
    #[cfg(feature = "tokio")]
    pub(super) fn give_up(&mut self, after: Duration) -> Result<Reservation, ReserveError> {
        let seat = self.seat.take().expect("it waits");
        let waited = self.inner().wait_no_longer(seat);
        self.conclude_wait(seat, waited, after)
    }

    fn conclude_wait(&mut self, seat: SeatId, waited: Waited, after: Duration) -> Result<Reservation, ReserveError> {
        match waited {
            Waited::Verdict(verdict) => self.conclude(seat.owner, verdict),
            Waited::TimedOut(shortage) => Err(ReserveError::TimedOut { after, shortage: Box::new(shortage) }),
            Waited::MustLoad => unreachable!("a reservation needs no residency"),
        }
    }

    /// What is asked for, if nothing is declared but that.
    fn plain(&self) -> Option<Plain> {
        let Reserve { place, class, bytes, priority, .. } = *self;
        let is_plain =
            matches!(self.account, Account::Root) && self.name.is_none() && self.max.is_none() && !self.retained;
        is_plain.then_some(Plain { place, class, bytes, priority })
    }

    /// What was granted. The request is over.
    fn reservation(&mut self, id: OwnerId) -> Reservation {
        let inner = self.inner.take().expect("a request is granted once");
        Reservation::new(inner, id, self.class, self.bytes).with_place(self.place)
    }

    fn inner(&self) -> &Inner {
        self.inner.as_ref().expect("a request that was granted is not polled again")
    }

    fn standing(&self) -> Standing {
        let Reserve { class, bytes, max, priority, retained, .. } = *self;
        let name = self.name.clone().unwrap_or_else(|| class.name().into());
        Standing { name, class, bytes, max, priority, retained }
    }

    fn open(&self, now: u64, state: &mut LedgerState, out: &mut Vec<Outcome>) -> Result<OwnerId, ReserveError> {
        state.open(now, self.account.id(), self.standing(), out)
    }

    fn conclude(&mut self, id: OwnerId, verdict: Verdict) -> Result<Reservation, ReserveError> {
        match verdict {
            Verdict::Granted(_) => Ok(self.reservation(id)),
            Verdict::Refused(Refusal::NeverFits(error)) => Err(ReserveError::NeverFits(error)),
            Verdict::Refused(Refusal::ParentEnded) => unreachable!("only jobs have parents"),
            Verdict::Refused(Refusal::Lost(error)) => Err(ReserveError::Lost(error)),
            Verdict::Refused(Refusal::Closed) => Err(ReserveError::Closed { who: self.standing().name }),
            Verdict::Refused(Refusal::LoadFailed { .. }) => unreachable!("a reservation needs no residency"),
        }
    }
}

impl Future for Reserve {
    type Output = Result<Reservation, ReserveError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let seat = match self.seat {
            Some(seat) => seat,
            None => {
                let signal = || Signal::Task(cx.waker().clone());
                match self.plain().and_then(|plain| self.inner().ask_at_once(plain, signal)) {
                    Some(Short::Granted(id)) => return Poll::Ready(Ok(self.reservation(id))),
                    Some(Short::Waits(seat)) => {
                        self.seat = Some(seat);
                        return Poll::Pending;
                    }
                    None => {}
                }
                match self.inner().ask(self.place, |now, state, out| self.open(now, state, out))? {
                    Answer::Now(id, verdict) => return Poll::Ready(self.conclude(id, verdict)),
                    Answer::Later(seat) => *self.seat.insert(seat),
                }
            }
        };
        match self.inner().poll(seat, cx.waker()) {
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
            let (class, bytes) = (self.class, self.bytes);
            self.inner().leave(seat, |state, _, out| state.drop_piece(seat.owner, class, bytes, out));
        }
    }
}
