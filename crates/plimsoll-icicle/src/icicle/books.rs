//! What the device says of its memory, beside what the ledger says.

use std::sync::atomic::Ordering;

use plimsoll::{Bytes, Reservation, Space};

use super::{Inner, class, lock};
use crate::error::{CallError, Fault};
use crate::memory::domain_bytes;
use crate::owner::{Holdings, Remains, Scope};
use crate::trust::{Doubt, check, drain};

/// A device that has leaked more than this part of its budget is given up.
const LEAK_MAX: u64 = 4;

/// What is booked besides jobs.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// What failed calls have left behind.
    leaked_bytes: u64,
    /// What pays for it, as far as the ledger had room.
    leaked: Vec<Reservation>,
    /// What others hold.
    foreign: Option<Reservation>,
    /// The least that was ever gone; negative where others have let go of memory since the device was opened.
    lowest: i64,
}

/// What is not free and nobody here has, at a moment with nothing under way.
struct Seen {
    holdings: Holdings,
    gone: Option<i64>,
    /// The same when this was last seen.
    before: i64,
    remains: Remains,
}

impl Books {
    fn booked(&self) -> u64 {
        self.leaked.iter().map(|reservation| reservation.bytes().0).sum()
    }

    /// What is free after all was no leak.
    fn leaked_at_most(&mut self, bytes: u64) {
        self.leaked_bytes = self.leaked_bytes.min(bytes);
        let mut over = self.booked().saturating_sub(self.leaked_bytes);
        while over > 0
            && let Some(mut last) = self.leaked.pop()
        {
            let less = last.bytes().0.saturating_sub(over);
            over -= last.bytes().0 - less;
            // It holds that much, and less is always granted.
            if less > 0 && last.shrink_to(Bytes(less)).is_ok() {
                self.leaked.push(last);
            }
        }
    }
}

/// What was taken of the device's memory by what has begun since then: seen as long as it goes on.
pub(super) fn taken_since(scope: &mut Scope<'_, '_>, free_before: Option<u64>) -> u64 {
    let after = scope.memory().map(|(_, free)| free);
    free_before.zip(after).map_or(0, |(before, after)| before.saturating_sub(after))
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
    /// What the domain takes: as predicted, or as it was seen to take if that is more.
    fn domain_bytes(&self, holdings: &Holdings) -> u64 {
        // Relaxed, here and below: numbers that stand for themselves.
        let seen = self.domain_seen.load(Ordering::Relaxed);
        holdings.domain.map_or(0, |log_size| domain_bytes(log_size, self.scratch).max(seen))
    }

    /// Bytes that are not free and that nobody here has: others hold them, or they have leaked. Negative where more is free than at
    /// first; `None` where the device tells nothing.
    fn gone(&self, holdings: &Holdings) -> Option<i64> {
        let known = holdings.free + holdings.allocated + self.domain_bytes(holdings);
        Some(self.free_at_first? as i64 - known as i64)
    }

    /// Notes what is gone before an operation, with nothing else under way: it has not leaked in that one, should it fail.
    pub(super) fn note_besides(&self, holdings: &Holdings) -> Option<i64> {
        let gone = self.gone(holdings)?;
        self.besides.store(gone, Ordering::Relaxed);
        Some(gone)
    }

    /// Looks, with nothing under way.
    fn see(&self, scope: &mut Scope<'_, '_>) -> Seen {
        let before = self.besides.load(Ordering::Relaxed);
        let holdings = scope.holdings();
        let gone = holdings.as_ref().and_then(|holdings| self.note_besides(holdings));
        Seen { holdings: holdings.unwrap_or_default(), gone, before, remains: scope.take_remains() }
    }

    /// What is free before an operation begins, and with it what is gone, if nothing else is under way.
    pub(super) fn free_before(&self, scope: &mut Scope<'_, '_>) -> Option<u64> {
        let memory = scope.memory()?;
        if scope.is_quiet() {
            let _ = self.note_besides(&scope.holdings_of(memory));
        }
        Some(memory.1)
    }

    pub(super) fn reconcile(&self) -> Option<Reconciliation> {
        let _looking = lock(&self.looking);
        self.reconcile_looking()
    }

    /// The same, with the device looked at by nobody else meanwhile. After a call that has failed that comes first: what it has left
    /// behind is nobody else's.
    fn reconcile_looking(&self) -> Option<Reconciliation> {
        let seen = loop {
            let seen = self.owner.call_alone("reconcile", |scope| {
                let waits = scope.is_doubted() && !mutant!("icicle-reconciles-in-doubt");
                Ok((!waits).then(|| self.see(scope)))
            });
            match seen.ok()? {
                Some(seen) => break seen,
                None => self.settle_looking(&"a call that has failed").ok()?,
            }
        };
        let gone = seen.gone?;
        let mut books = lock(&self.books);
        self.book_gone(&mut books, &seen);
        let unexplained = gone - books.leaked_bytes as i64;
        Some(Reconciliation {
            total_bytes: seen.holdings.total,
            free_bytes: seen.holdings.free,
            allocated_bytes: seen.holdings.allocated,
            domain_bytes: self.domain_bytes(&seen.holdings),
            leaked_bytes: books.leaked_bytes,
            foreign_bytes: u64::try_from(unexplained).unwrap_or(0),
            surplus_bytes: u64::try_from(-unexplained).unwrap_or(0),
        })
    }

    /// Books what is gone: what has leaked as such, and the rest as somebody else's.
    fn book_gone(&self, books: &mut Books, seen: &Seen) {
        if let Some(gone) = seen.gone {
            books.lowest = books.lowest.min(seen.before).min(gone);
            if !mutant!("icicle-leaked-for-good") {
                books.leaked_at_most(gone.abs_diff(books.lowest));
            }
            let gone = u64::try_from(gone).unwrap_or(0);
            self.book_foreign(books, gone.saturating_sub(books.leaked_bytes));
        }
        self.account.has_leaked(books.leaked_bytes);
    }

    /// Has the ledger hold as much for others as they hold, where it can.
    fn book_foreign(&self, books: &mut Books, bytes: u64) {
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

    /// Books what an operation is seen to allocate beyond its prediction, while it runs. Never waits: it has happened.
    pub(super) fn book_over(&self, name: &'static str, over: u64) -> Option<Reservation> {
        if over == 0 || mutant!("icicle-overrun-unbooked") {
            return None;
        }
        let booked = self.book_at_most(name, over);
        let unbooked = over - booked.as_ref().map_or(0, |booked| booked.bytes().0);
        if unbooked > 0 {
            self.account.overdrawn(unbooked);
        }
        booked
    }

    /// Books what failed calls have left behind and the ledger had no room for.
    pub(super) fn book_leaks(&self) {
        let mut books = lock(&self.books);
        let missing = books.leaked_bytes.saturating_sub(books.booked());
        if missing > 0
            && let Some(reservation) = self.book("device.leaked", missing)
        {
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
        if !self.owner.is_doubted() {
            if error.is_out_of_memory() {
                // An allocation was refused that the ledger had granted: somebody else holds more than the books say.
                let _ = self.reconcile_looking();
            }
            return Ok(());
        }
        self.settle_looking(error)
    }

    pub(super) fn look_by_hand(&self) -> Result<(), CallError> {
        let _looking = lock(&self.looking);
        self.settle_looking(&"nothing in particular")
    }

    /// Looks at a device that is in doubt, which nobody else does meanwhile.
    fn settle_looking(&self, after: &dyn std::fmt::Display) -> Result<(), CallError> {
        let doubts = self.owner.doubts();
        let lost = |message: String| {
            self.give_up(message.clone());
            CallError { operation: "look at the device", fault: Fault::Lost { message } }
        };
        if let Err(doubt) = self.look()
            && !mutant!("icicle-trusts-after-failure")
        {
            return Err(lost(format!("after `{after}`: {doubt}")));
        }
        self.owner.settle(doubts);
        let leaked = lock(&self.books).leaked_bytes;
        if leaked > self.limit / LEAK_MAX {
            return Err(lost(format!(
                "failed calls have leaked {} of its budget of {}; restart the process",
                Bytes(leaked),
                Bytes(self.limit)
            )));
        }
        Ok(())
    }

    /// Drains what is left over, measures what is gone, and asks for the known answers.
    fn look(&self) -> Result<(), Doubt> {
        drain(&self.owner)?;
        let seen = self.owner.call_alone("look for leaks", |scope| Ok(self.see(scope)))?;
        {
            let mut books = lock(&self.books);
            let leaked = seen.leaked();
            if leaked > 0 && !mutant!("icicle-leak-unbooked") {
                books.leaked_bytes += leaked;
            }
            self.book_gone(&mut books, &seen);
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

impl Seen {
    /// What failed calls have left behind since the device was last seen: of what is gone since then as much as they may have
    /// allocated. The rest is somebody else's, who came meanwhile. A device that tells nothing has kept what it would not free.
    fn leaked(&self) -> u64 {
        let Remains { unfreed, suspected } = self.remains;
        let Some(gone) = self.gone else { return unfreed };
        let before = if mutant!("icicle-neighbours-leak") { 0 } else { self.before };
        let most = if mutant!("icicle-all-has-leaked") { u64::MAX } else { unfreed.saturating_add(suspected) };
        u64::try_from(gone - before).unwrap_or(0).min(most)
    }
}
