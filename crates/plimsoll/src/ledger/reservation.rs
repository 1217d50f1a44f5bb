//! Reservations: bytes promised.

use std::fmt;
use std::mem;
use std::panic::Location;

use thiserror::Error;

use super::error::{GrowError, Shortage, TooFew};
use super::shell::{Answer, Inner, Verdict, Waited};
use super::state::{LedgerState, OwnerId, Refusal};
use crate::sync::Arc;
use crate::{Bytes, Class};

/// Bytes of a class that are promised to their holder, until it drops them.
///
/// Move-only: the bytes are somewhere exactly once. Dropping it returns them at once; it never blocks and never fails.
///
/// ```compile_fail
/// # use plimsoll::{Bytes, Class, Ledger, Space};
/// let one = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(1)).wait().unwrap();
/// let two = one.clone(); // Bytes cannot be had twice.
/// ```
///
/// ```compile_fail
/// # use plimsoll::{Bytes, Class, Ledger, Space};
/// let whole = Ledger::unlimited().reserve(Class::new("a", Space::HOST), Bytes(2)).wait().unwrap();
/// drop(whole);
/// println!("{}", whole.bytes()); // Returned is returned.
/// ```
#[must_use = "dropping a reservation returns its bytes"]
pub struct Reservation {
    inner: Arc<Inner>,
    id: OwnerId,
    class: Class,
    bytes: Bytes,
    place: &'static Location<'static>,
}

impl Reservation {
    /// A piece that the state already counts, reserved by the caller.
    #[track_caller]
    pub(super) fn new(inner: Arc<Inner>, id: OwnerId, class: Class, bytes: Bytes) -> Reservation {
        Reservation { inner, id, class, bytes, place: Location::caller() }
    }

    /// The same, reserved elsewhere.
    pub(super) fn with_place(mut self, place: &'static Location<'static>) -> Reservation {
        self.place = place;
        self
    }

    /// Where in the source the bytes were reserved, or taken from a grant; of a split-off part, where the whole was.
    pub fn reserved_at(&self) -> &'static Location<'static> {
        self.place
    }

    pub(super) fn ledger(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(super) fn owner(&self) -> OwnerId {
        self.id
    }

    /// Takes the reservation apart without returning anything; the piece stays counted.
    pub(super) fn into_raw(mut self) -> (Arc<Inner>, OwnerId) {
        self.bytes = Bytes::ZERO;
        self.inner.read(|state| state.attach(self.id, self.class));
        // What is dropped here is an empty piece beside the one that was just counted.
        (self.inner.clone(), self.id)
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// The class that they belong to.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Takes `bytes` off into a reservation of their own.
    ///
    /// # Errors
    ///
    /// If it holds fewer.
    pub fn split(&mut self, bytes: Bytes) -> Result<Reservation, TooFew> {
        self.take_off(bytes)?;
        self.inner.read(|state| state.attach(self.id, self.class));
        Ok(Reservation::new(self.inner.clone(), self.id, self.class, bytes).with_place(self.place))
    }

    /// Takes in another reservation of the same owner and class.
    ///
    /// # Errors
    ///
    /// If owner or class differ; the other reservation comes back in the error.
    pub fn merge(&mut self, other: Reservation) -> Result<(), NotMerged> {
        if other.class != self.class {
            return Err(NotMerged::OtherClass { class: self.class, other });
        }
        let (_, bytes) = other.dissolve(&self.inner, self.id).map_err(|other| NotMerged::OtherOwner { other })?;
        self.bytes += bytes;
        Ok(())
    }

    /// Returns everything above `bytes`.
    ///
    /// # Errors
    ///
    /// If it holds fewer.
    pub fn shrink_to(&mut self, bytes: Bytes) -> Result<(), TooFew> {
        let Some(surplus) = self.bytes.checked_sub(bytes) else {
            return Err(TooFew { class: self.class, requested: bytes, held: self.bytes });
        };
        self.bytes = bytes;
        self.inner.event(|state, out| state.release(self.id, self.class, surplus, out));
        Ok(())
    }

    /// Moves all its bytes to another class, at once or not at all. Within one space this always succeeds.
    ///
    /// # Errors
    ///
    /// If the other class lives in a space that has not so much room now; the reservation comes back in the error.
    pub fn into_class(mut self, class: Class) -> Result<Reservation, NotMoved> {
        match self.inner.event(|state, out| state.convert(self.id, self.class, class, self.bytes, out)) {
            Ok(()) => {
                self.class = class;
                Ok(self)
            }
            Err(shortage) => Err(NotMoved { reservation: self, class, shortage: Box::new(shortage) }),
        }
    }

    /// Takes `bytes` more, now or not at all. The only way to grow beyond what was declared.
    ///
    /// # Errors
    ///
    /// [`GrowError::WouldWait`] if there is not so much room, or jobs in flight could then no longer be sure to finish.
    pub fn try_grow(&mut self, bytes: Bytes) -> Result<(), GrowError> {
        self.inner
            .event(|state, out| state.try_grow(self.id, self.class, bytes, out))
            .map_err(|shortage| GrowError::WouldWait(Box::new(shortage)))?;
        self.bytes += bytes;
        Ok(())
    }

    /// Blocks the thread until it holds `bytes` more. Only for free-standing reservations, and within the declared
    /// [`max`](super::Reserve::max): others were admitted on that promise.
    ///
    /// # Errors
    ///
    /// If that is beyond the maximum, or the reservation belongs to a job.
    pub fn grow(&mut self, bytes: Bytes) -> Result<(), GrowError> {
        let verdict = match self.ask_for(bytes)? {
            Answer::Now(_, verdict) => verdict,
            Answer::Later(seat) => match self.inner.wait(seat, None) {
                Waited::Verdict(verdict) => verdict,
                Waited::TimedOut(_) | Waited::MustLoad => unreachable!("there is no time-out, and nothing to load"),
            },
        };
        self.grown(bytes, verdict)
    }

    /// Asks for `bytes` more, within the declared maximum.
    pub(super) fn ask_for(&self, bytes: Bytes) -> Result<Answer, GrowError> {
        let ask = |now: u64, state: &mut LedgerState, out: &mut Vec<_>| {
            state.grow(now, self.id, self.class, bytes, out).map(|()| self.id)
        };
        self.inner.ask(self.place, ask)
    }

    /// Counts in what was asked for and answered.
    pub(super) fn grown(&mut self, bytes: Bytes, verdict: Verdict) -> Result<(), GrowError> {
        match verdict {
            Verdict::Granted(_) => {
                self.bytes += bytes;
                Ok(())
            }
            Verdict::Refused(Refusal::Lost(error)) => Err(GrowError::Lost(error)),
            Verdict::Refused(_) => unreachable!("what is in flight is refused for nothing else"),
        }
    }

    /// Gives its bytes to another holder of the same owner, without returning them.
    pub(super) fn dissolve(mut self, inner: &Arc<Inner>, id: OwnerId) -> Result<(Class, Bytes), Reservation> {
        let is_same = || self.id == id || inner.read(|state| state.is_same_owner(self.id, id));
        if !Arc::ptr_eq(&self.inner, inner) || !is_same() {
            return Err(self);
        }
        // What is dropped here is an empty piece; its bytes live on with the other holder.
        Ok((self.class, mem::take(&mut self.bytes)))
    }

    fn take_off(&mut self, bytes: Bytes) -> Result<(), TooFew> {
        self.bytes =
            self.bytes.checked_sub(bytes).ok_or(TooFew { class: self.class, requested: bytes, held: self.bytes })?;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.inner.drop_piece(self.id, self.class, self.bytes);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({} of {})", self.bytes, self.class)
    }
}

/// Two reservations were not merged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NotMerged {
    /// They are of different classes.
    #[error("{} of {} were not merged into {class}; move them with into_class first", other.bytes(), other.class())]
    OtherClass {
        /// The class that it was to be merged into.
        class: Class,
        /// What was to be merged.
        other: Reservation,
    },
    /// They are held by different owners, whose promises are kept apart.
    #[error("{} of {} belong to another job or reservation; keep the two apart", other.bytes(), other.class())]
    OtherOwner {
        /// What was to be merged.
        other: Reservation,
    },
}

impl NotMerged {
    /// The reservation that was to be merged.
    pub fn into_other(self) -> Reservation {
        match self {
            NotMerged::OtherClass { other, .. } | NotMerged::OtherOwner { other } => other,
        }
    }
}

/// A reservation was not moved to another class.
#[derive(Debug, Error)]
#[error("{} of {} were not moved to {class}: {shortage}", reservation.bytes(), reservation.class())]
pub struct NotMoved {
    /// The reservation, as it was.
    pub reservation: Reservation,
    /// The class that it was to be moved to.
    pub class: Class,
    /// What was in the way.
    pub shortage: Box<Shortage>,
}
