//! The short way through the shell: plain reservations, taken, waited for and dropped while nothing else waits
//! (`state/quick.rs`).
//!
//! Who asks leaves its signal in the same critical section, and who is granted something reads that in its cell
//! ([`seats`]), so that a request that waits takes the lock once. It
//! reads its clock before it takes the lock: the coarse one, unless somebody waits who may be served.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};

use super::seats::{self, SeatId, Signal, Signals, Verdict};
use super::{Inner, Shell};
use crate::ledger::error::Shortage;
use crate::ledger::state::{AtOnce, Granted, Mark, OwnerId, Served};
use crate::sync::{self, MutexGuard, thread};
use crate::{Bytes, Class};

/// The answer to a request that went the short way.
pub(in crate::ledger) enum Short {
    Granted(OwnerId),
    Waits(SeatId),
}

/// Whether somebody waits, as far as is known without the lock: only a hint, whether a signal will be needed.
///
/// Not loom's: whoever is misled by it only takes the lock twice.
#[derive(Debug, Default)]
pub(super) struct Busy(AtomicBool);

impl Busy {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, busy: bool) {
        if self.is_set() != busy {
            self.0.store(busy, Ordering::Relaxed);
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(in crate::ledger) struct Plain {
    pub(in crate::ledger) place: &'static Location<'static>,
    pub(in crate::ledger) class: Class,
    pub(in crate::ledger) bytes: Bytes,
    pub(in crate::ledger) priority: i32,
}

/// How often a thread looks at its cell before it goes to sleep. To look for longer costs more than it saves: whoever looks
/// occupies a core that whoever is to return something may need.
const LOOKS: u32 = if cfg!(any(plimsoll_loom, plimsoll_shuttle)) { 0 } else { 64 };

impl Inner {
    /// Takes a plain reservation of the root, or takes a seat to wait for it, signalled by what `signal` makes. `None`
    /// where the long way is to be gone.
    pub(in crate::ledger) fn ask_at_once(&self, plain: Plain, signal: impl Fn() -> Signal) -> Option<Short> {
        // Made before the lock is taken and dropped after: a waker may run a user's code.
        let mut made = self.busy.is_set().then(&signal);
        let now = self.clock.coarse();
        let mut shell = sync::lock(&self.shell);
        let mut answer = shell.ask(plain, now, made.is_some())?;
        if answer == AtOnce::WouldWait {
            drop(shell);
            made = Some(signal());
            shell = sync::lock(&self.shell);
            answer = shell.ask(plain, now, true)?;
        }
        match answer {
            AtOnce::Granted(owner) => Some(Short::Granted(owner)),
            AtOnce::Waits(owner) => {
                self.busy.set(true);
                let signal = made.take().unwrap_or(Signal::Nobody);
                Some(Short::Waits(shell.seats.take(&self.cells, owner, signal, true)))
            }
            AtOnce::WouldWait => unreachable!("it may wait"),
        }
    }

    /// Takes a plain reservation of the root now or not at all. `None` where the long way is to be gone.
    pub(in crate::ledger) fn try_at_once(&self, plain: Plain) -> Option<Result<OwnerId, Shortage>> {
        let now = self.clock.coarse();
        let mut shell = sync::lock(&self.shell);
        match shell.ask(plain, now, false)? {
            AtOnce::Granted(owner) => Some(Ok(owner)),
            AtOnce::WouldWait => shell.books.state().shortage_at_once(plain.class, plain.bytes).map(Err),
            AtOnce::Waits(_) => unreachable!("it must not"),
        }
    }

    /// Drops a piece of a reservation.
    pub(in crate::ledger) fn drop_piece(&self, owner: OwnerId, class: Class, bytes: Bytes) {
        let now = self.busy.is_set().then(|| self.now());
        let mut shell = sync::lock(&self.shell);
        let mut served = Served::new();
        if shell.waiting_for_quiet == 0 && shell.books.short().drop_at_once(owner, class, bytes, &mut served) {
            if !served.is_empty() {
                self.tell(shell, &served, now.unwrap_or_else(|| self.now()));
            }
            return;
        }
        shell.apply(|state, out| state.drop_piece(owner, class, bytes, out));
        self.deliver(shell);
    }

    /// Blocks a thread that has left its own handle as the signal.
    pub(in crate::ledger) fn park(&self, id: SeatId) -> Verdict {
        let mut looks = 0;
        while self.cells.is_waiting(id) {
            if looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
            } else {
                // It may return too early, which is why the cell is looked at again.
                thread::park();
            }
        }
        if self.cells.is_granted(id) {
            return Verdict::Granted(Granted::new());
        }
        let verdict = sync::lock(&self.shell).seats.take_verdict(&self.cells, id);
        verdict.expect("it was left before the cell was written")
    }

    /// Tells those that were served, once the lock is free.
    pub(super) fn tell(&self, mut shell: MutexGuard<'_, Shell>, served: &Served, now: u64) {
        let mut signals = Signals::new();
        for &owner in served {
            shell.books.granted(owner, now);
            signals.push(shell.seats.leave_verdict(&self.cells, owner, Verdict::Granted(Granted::new())));
        }
        self.busy.set(shell.books.short().is_anybody_in_the_line());
        drop(shell);
        seats::fire(signals);
        if mutant!("woken-before-the-cell-is-written") {
            let shell = sync::lock(&self.shell);
            served.iter().for_each(|owner| shell.seats.write_late(&self.cells, *owner));
        }
    }
}

impl Shell {
    fn ask(&mut self, plain: Plain, now: u64, may_wait: bool) -> Option<AtOnce> {
        let Plain { place, class, bytes, priority } = plain;
        let mark = Mark { place: Some(place), since: now };
        let answer = self.books.short().ask_at_once(mark, class, bytes, priority, may_wait)?;
        match answer {
            AtOnce::Granted(owner) => {
                self.books.moved(now);
                self.books.went_the_short_way(owner, mark);
            }
            AtOnce::Waits(owner) => self.books.went_the_short_way(owner, mark),
            AtOnce::WouldWait => {}
        }
        Some(answer)
    }
}
