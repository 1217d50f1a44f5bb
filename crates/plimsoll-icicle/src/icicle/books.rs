//! What the device says of its memory, beside what the ledger says.

use std::sync::atomic::Ordering;

use plimsoll::{Bytes, Reservation, Space};

use super::{Inner, class, lock};
use crate::error::{CallError, Fault};
use crate::memory::domain_bytes;
use crate::owner::Holdings;
use crate::trust::{Doubt, check, drain};

/// A device that has leaked this part of its budget is given up.
const LEAK_MAX: u64 = 4;

/// What is booked besides jobs.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// What failed calls have left behind.
    leaked: Vec<Reservation>,
    /// Of that, what the ledger had no room for yet.
    leaked_unbooked: u64,
    /// What others hold.
    foreign: Option<Reservation>,
    foreign_bytes: u64,
}

impl Books {
    fn leaked_bytes(&self) -> u64 {
        self.leaked.iter().map(|reservation| reservation.bytes().0).sum::<u64>() + self.leaked_unbooked
    }
}

/// What the device says beside what the books say, with nothing under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconciliation {
    /// What the device has.
    pub total_bytes: u64,
    /// What it says is free.
    pub free_bytes: u64,
    /// What is allocated here: buffers that reservations pay for.
    pub allocated_bytes: u64,
    /// What ICICLE keeps for transforms.
    pub domain_bytes: u64,
    /// What failed calls have left behind.
    pub leaked_bytes: u64,
    /// What is gone besides: somebody else's. It is booked, as far as there is room.
    pub foreign_bytes: u64,
    /// What is free beyond what the books say: somebody else has let go of memory.
    pub surplus_bytes: u64,
}

impl Inner {
    fn domain_bytes(&self, holdings: &Holdings) -> u64 {
        holdings.domain.map_or(0, |log_size| domain_bytes(log_size, self.scratch))
    }

    /// Bytes that are not free and that nobody here has: others hold them, or they have leaked. Negative where more is free than at
    /// first; `None` where the device tells nothing.
    fn gone(&self, holdings: &Holdings) -> Option<i64> {
        let known = holdings.free + holdings.allocated + self.domain_bytes(holdings);
        Some(self.free_at_first? as i64 - known as i64)
    }

    /// Notes what is gone before a multiplication, with nothing else under way: it has not leaked in that one, should it fail.
    pub(super) fn note_besides(&self, holdings: &Holdings) {
        if let Some(gone) = self.gone(holdings) {
            // Relaxed: a number that stands for itself.
            self.besides.store(gone, Ordering::Relaxed);
        }
    }

    pub(super) fn reconcile(&self) -> Option<Reconciliation> {
        let holdings = self.owner.call_alone("reconcile", |scope| Ok(scope.holdings())).ok()??;
        let mut books = lock(&self.books);
        let leaked_bytes = books.leaked_bytes();
        let unexplained = self.gone(&holdings)? - leaked_bytes as i64;
        let foreign_bytes = u64::try_from(unexplained).unwrap_or(0);
        self.book_foreign(&mut books, foreign_bytes);
        Some(Reconciliation {
            total_bytes: holdings.total,
            free_bytes: holdings.free,
            allocated_bytes: holdings.allocated,
            domain_bytes: self.domain_bytes(&holdings),
            leaked_bytes,
            foreign_bytes,
            surplus_bytes: u64::try_from(-unexplained).unwrap_or(0),
        })
    }

    /// Has the ledger hold as much for others as they hold, where it can.
    fn book_foreign(&self, books: &mut Books, bytes: u64) {
        books.foreign_bytes = bytes;
        books.foreign = None;
        if bytes > 0 {
            // Jobs that hold the rest give it back.
            books.foreign = self.book_at_most("device.foreign", bytes);
        }
    }

    /// Books what is taken already: all of it, or as much as the ledger has room for.
    pub(super) fn book_at_most(&self, name: &'static str, bytes: u64) -> Option<Reservation> {
        self.book(name, bytes).or_else(|| {
            let snapshot = self.ledger.snapshot();
            let usage = snapshot.space(Space::device(self.number));
            let room = usage.map_or(0, |usage| usage.limit.saturating_sub(usage.held).0);
            self.book(name, bytes.min(room))
        })
    }

    fn book(&self, name: &'static str, bytes: u64) -> Option<Reservation> {
        let class = class(name, self.number);
        self.ledger.reserve(class, Bytes(bytes)).name(name).retained().try_now().ok()
    }

    /// Books what failed calls have left behind and the ledger had no room for.
    pub(super) fn book_leaks(&self) {
        let mut books = lock(&self.books);
        if books.leaked_unbooked > 0
            && let Some(reservation) = self.book("device.leaked", books.leaked_unbooked)
        {
            books.leaked_unbooked = 0;
            books.leaked.push(reservation);
        }
    }

    /// After a call that has failed: looks at the device, if the call has left doubt, and books what it has left behind.
    ///
    /// # Errors
    ///
    /// That the device was given up.
    pub(super) fn settle(&self, error: &CallError) -> Result<(), CallError> {
        if matches!(error.fault, Fault::Squeezed { .. }) {
            self.account.squeezed();
            let _ = self.reconcile();
            return Ok(());
        }
        // One after the other: who waited finds the device settled.
        let _looking = lock(&self.looking);
        let doubts = self.owner.doubts();
        if !self.owner.is_doubted() {
            if error.is_out_of_memory() {
                // An allocation was refused that the ledger had granted: somebody else holds more than the books say.
                let _ = self.reconcile();
            }
            return Ok(());
        }
        let lost = |message: String| CallError { operation: error.operation, fault: Fault::Lost { message } };
        if let Err(doubt) = self.look()
            && !mutant!("icicle-trusts-after-failure")
        {
            let message = format!("after `{error}`: {doubt}");
            self.give_up(message.clone());
            return Err(lost(message));
        }
        self.owner.settle(doubts);
        let leaked = lock(&self.books).leaked_bytes();
        if leaked > self.limit / LEAK_MAX {
            let message = format!("failed calls have leaked {} of its memory; restart the process", Bytes(leaked));
            self.give_up(message.clone());
            return Err(lost(message));
        }
        Ok(())
    }

    /// Drains what is left over, measures what is gone, and asks for the known answers.
    fn look(&self) -> Result<(), Doubt> {
        drain(&self.owner)?;
        let holdings = self.owner.call_alone("look for leaks", |scope| Ok(scope.holdings()))?;
        // Of what is not free the device tells, or it is what it would not free.
        let unfreed = self.owner.take_unfreed();
        {
            let mut books = lock(&self.books);
            let gone = holdings.and_then(|holdings| self.gone(&holdings));
            let leaked = gone.map_or(unfreed, |gone| {
                // What was gone before the call is somebody else's, whoever has noticed it so far.
                let before = match mutant!("icicle-neighbours-leak") {
                    true => 0,
                    false => self.besides.load(Ordering::Relaxed),
                };
                let known = (books.leaked_bytes() + books.foreign_bytes) as i64;
                u64::try_from(gone - known.max(before)).unwrap_or(0)
            });
            if leaked > 0 && !mutant!("icicle-leak-unbooked") {
                books.leaked_unbooked += leaked;
                self.account.leaked(leaked);
            }
            if let Some(gone) = gone {
                let foreign = u64::try_from(gone - books.leaked_bytes() as i64).unwrap_or(0);
                self.book_foreign(&mut books, foreign);
            }
        }
        self.book_leaks();
        // Where there is no domain the check makes one, which nobody else must do meanwhile.
        let _domain = lock(&self.domain);
        check(&self.owner).map(|_| ())
    }

    /// Gives the device up: nothing is granted on it any more.
    fn give_up(&self, message: String) {
        self.owner.give_up(message);
        // Refused only where the budget does not name the device.
        let _ = self.ledger.retire(Space::device(self.number));
    }
}
