//! The shell around [`LedgerState`]: one critical section, seats for those who wait, and waking.
//!
//! # Protocol
//!
//! 1. Every event runs under the one lock: the state machine decides, and each verdict on a waiting request is left in
//!    the *seat* of the one who waits. Nothing that a user wrote (wakers, destructors) runs under the lock.
//! 2. Who asks takes a seat in the critical section of the request itself, so a verdict always finds the seat.
//! 3. Who is about to sleep looks at the seat and leaves its signal there in one critical section. A verdict comes
//!    either before, and is seen, or after, and finds the signal. No wakeup can fall between.
//! 4. Signals are taken out of the seats under the lock and fired after it.
//!    A yes to a plain reservation is left in a word beside the lock before that (`seats`).
//! 5. Who gives up leaves the seat in one critical section: a grant that has already arrived goes back whole, and what
//!    that makes possible for others is granted in the same section.

mod books;
mod residents;
mod seats;
mod short;

use std::panic::Location;
use std::sync::{Arc as StdArc, Weak as StdWeak};
use std::task::Waker;
use std::time::{Duration, Instant};

use self::books::Books;
use self::residents::Residents;
use self::seats::{Cells, Seats, Signals};
pub(super) use self::seats::{SeatId, Signal, Verdict};
use self::short::Busy;
pub(super) use self::short::{Plain, Short};
use super::clock::Clock;
use super::error::Shortage;
use super::handle::Handles;
use super::outbox::Outbox;
use super::reaper::{Corpse, Graves};
use super::snapshot::Snapshot;
use super::state::{Granted, LedgerState, Outcome, OwnerId};
use super::steer::{Steered, Steereds};
use crate::contain::discard;
use crate::observe::{Observer, What};
use crate::sync::{self, Arc, Condvar, Mutex, MutexGuard};
use crate::{Budget, Bytes, Space};

/// What all handles share.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Inner {
    shell: Mutex<Shell>,
    clock: Clock,
    busy: Busy,
    /// Somebody waits for the ledger to become quiet.
    quiet: Condvar,
    cells: Cells,
    /// Reservations that are out as numbers.
    pub(super) handles: Handles,
    /// Pipelines whose jobs can be cancelled by name.
    steered: Mutex<Steereds>,
}

#[derive(Debug)]
#[repr(C)]
struct Shell {
    books: Books,
    seats: Seats,
    waiting_for_quiet: usize,
    /// Empty between events; kept for its room.
    outcomes: Vec<Outcome>,
    outbox: Outbox,
    residents: Residents,
    graves: Graves,
}

/// The answer to a request.
pub(super) enum Answer {
    Now(OwnerId, Verdict),
    Later(SeatId),
}

/// How a blocking wait ended.
pub(super) enum Waited {
    Verdict(Verdict),
    TimedOut(Shortage),
    /// It falls to the one who waits to load what its job needs. The request stands.
    MustLoad,
}

impl Inner {
    pub(super) fn new(budget: &Budget) -> Inner {
        let shell = Shell {
            books: Books::new(LedgerState::new(budget)),
            outcomes: Vec::new(),
            seats: Seats::default(),
            waiting_for_quiet: 0,
            outbox: Outbox::default(),
            residents: Residents::default(),
            graves: Graves::default(),
        };
        let (shell, quiet, cells, busy) = (Mutex::new(shell), Condvar::new(), Cells::new(), Busy::default());
        let steered = Mutex::new(Steereds::new());
        Inner { shell, quiet, cells, busy, clock: Clock::new(), handles: Handles::new(), steered }
    }

    pub(super) fn steer(&self, pipeline: StdWeak<dyn Steered>) {
        let mut steered = sync::lock(&self.steered);
        steered.retain(|other| other.strong_count() > 0);
        steered.push(pipeline);
    }

    pub(super) fn steered(&self) -> Steereds {
        sync::lock(&self.steered).clone()
    }

    /// Nanoseconds since the ledger was made.
    pub(super) fn now(&self) -> u64 {
        self.clock.exact()
    }

    /// Reads the state.
    pub(super) fn read<R>(&self, f: impl FnOnce(&mut LedgerState) -> R) -> R {
        let mut shell = sync::lock(&self.shell);
        let result = f(shell.books.state());
        if shell.books.state().has_changes() {
            self.deliver(shell);
        }
        result
    }

    /// A picture of this moment.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut shell = sync::lock(&self.shell);
        let (state, origins) = shell.books.both();
        let mut snapshot = state.snapshot();
        origins.complete(&mut snapshot, self.now());
        shell.graves.complete(&mut snapshot);
        snapshot
    }

    /// Tells an observer of everything from now on.
    pub(super) fn observe(&self, observer: StdArc<dyn Observer>) {
        let mut shell = sync::lock(&self.shell);
        if !shell.outbox.is_observed() {
            shell.books.state().record_changes(true);
        }
        shell.outbox.add(observer);
    }

    /// Takes an observer off again.
    pub(super) fn unobserve(&self, observer: &StdArc<dyn Observer>) {
        let mut shell = sync::lock(&self.shell);
        shell.outbox.remove(observer);
        if !shell.outbox.is_observed() {
            shell.books.state().record_changes(false);
        }
    }

    /// An owner begins to wait for something outside of the ledger.
    pub(super) fn waits_outside(&self, owner: OwnerId, what: &'static str, now: u64) {
        sync::lock(&self.shell).books.both().1.waits_outside(owner, what, now);
    }

    /// That wait is over.
    pub(super) fn waited_outside(&self, owner: OwnerId, what: &'static str, since: u64) {
        sync::lock(&self.shell).books.both().1.waited_outside(owner, what, since);
    }

    /// Runs one event, and tells those whose verdict it brought.
    pub(super) fn event<R>(&self, f: impl FnOnce(&mut LedgerState, &mut Vec<Outcome>) -> R) -> R {
        let mut shell = sync::lock(&self.shell);
        if shell.books.state().has_residencies() {
            let now = self.now();
            shell.books.state().advance(now);
        }
        let result = shell.apply(f);
        self.deliver(shell);
        result
    }

    /// Asks for something that may have to be waited for.
    pub(super) fn ask<E>(
        &self,
        place: &'static Location<'static>,
        f: impl FnOnce(u64, &mut LedgerState, &mut Vec<Outcome>) -> Result<OwnerId, E>,
    ) -> Result<Answer, E> {
        let mut shell = sync::lock(&self.shell);
        let now = self.now();
        let Shell { books, outcomes, .. } = &mut *shell;
        let (state, origins) = books.both();
        let owner = f(now, state, outcomes)?;
        origins.asked(owner, place, now);
        let mine = outcomes.iter().position(|outcome| outcome.owner() == owner);
        let answer = match mine {
            Some(at) => {
                origins.granted(owner, now);
                Answer::Now(owner, outcomes.remove(at).into_verdict())
            }
            None => Answer::Later(shell.seats.take(&self.cells, owner, Signal::Nobody, false)),
        };
        self.deliver(shell);
        Ok(answer)
    }

    /// Asks for something now or not at all; `explain` what was in the way.
    pub(super) fn ask_now<E>(
        &self,
        place: &'static Location<'static>,
        f: impl FnOnce(u64, &mut LedgerState, &mut Vec<Outcome>) -> Result<OwnerId, E>,
    ) -> Result<Result<(OwnerId, Verdict), Shortage>, E> {
        let mut shell = sync::lock(&self.shell);
        let now = self.now();
        let Shell { books, outcomes, .. } = &mut *shell;
        let (state, origins) = books.both();
        let owner = f(now, state, outcomes)?;
        let mine = outcomes.iter().position(|outcome| outcome.owner() == owner);
        let answer = match mine {
            Some(at) => {
                origins.asked(owner, place, now);
                origins.granted(owner, now);
                Ok((owner, outcomes.remove(at).into_verdict()))
            }
            None => {
                let shortage = state.shortage(owner);
                state.withdraw(owner, outcomes);
                Err(shortage)
            }
        };
        self.deliver(shell);
        Ok(answer)
    }

    /// Takes the verdict out of a seat, or leaves the waker there.
    pub(super) fn poll(&self, id: SeatId, waker: &Waker) -> Option<Verdict> {
        if self.cells.is_granted(id) {
            return Some(Verdict::Granted(Granted::new()));
        }
        // Cloned before the lock is taken and dropped after: both may run a user's code.
        let mut signal = Signal::Task(waker.clone());
        let mut shell = sync::lock(&self.shell);
        if let Some(verdict) = shell.seats.take_verdict(&self.cells, id) {
            return Some(verdict);
        }
        if mutant!("register-waiter-after-check") {
            drop(shell);
            shell = sync::lock(&self.shell);
        }
        std::mem::swap(&mut shell.seats.seat(id).signal, &mut signal);
        drop(shell);
        None
    }

    /// Whether the verdict is there.
    pub(super) fn is_answered(&self, id: SeatId) -> bool {
        self.cells.is_granted(id) || sync::lock(&self.shell).seats.has_verdict(id)
    }

    /// Blocks until the verdict is there, or the time is up.
    pub(super) fn wait(&self, id: SeatId, timeout: Option<Duration>) -> Waited {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let condvar = Arc::new(Condvar::new());
        let mut shell = sync::lock(&self.shell);
        // Of whoever has polled it. A waker's destructor is a user's code, and does not run under the lock.
        let earlier = std::mem::replace(&mut shell.seats.seat(id).signal, Signal::Nobody);
        if let Signal::Task(_) = earlier {
            drop(shell);
            drop(earlier);
            shell = sync::lock(&self.shell);
        }
        loop {
            if let Some(verdict) = shell.seats.take_verdict(&self.cells, id) {
                return Waited::Verdict(verdict);
            }
            if shell.books.state().next_load(id.owner).is_some() {
                return Waited::MustLoad;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let shortage = shell.books.state().shortage(id.owner);
                shell.withdraw(id);
                self.deliver(shell);
                return Waited::TimedOut(shortage);
            }
            shell.seats.seat(id).signal = Signal::Thread(condvar.clone());
            shell = sync::wait(&condvar, shell, left);
        }
    }

    /// Takes the verdict if it is there, or the request back.
    pub(super) fn wait_no_longer(&self, id: SeatId) -> Waited {
        self.wait(id, Some(Duration::ZERO))
    }

    /// Gives up: takes the request back, or `undo`es the grant that has arrived meanwhile.
    pub(super) fn leave(&self, id: SeatId, undo: impl FnOnce(&mut LedgerState, Granted, &mut Vec<Outcome>)) {
        let mut shell = sync::lock(&self.shell);
        let signal = std::mem::replace(&mut shell.seats.seat(id).signal, Signal::Nobody);
        match shell.seats.take_verdict(&self.cells, id) {
            None => shell.withdraw(id),
            Some(Verdict::Granted(granted)) => shell.apply(|state, out| undo(state, granted, out)),
            Some(Verdict::Refused(_)) => {}
        }
        if mutant!("add-then-undo-without-wake") {
            shell.outcomes.clear();
        }
        self.deliver(shell);
        // A waker's destructor is a user's code too.
        drop(signal);
    }

    /// Blocks until nothing is in flight and nothing is held but by retained reservations; `false` when the time is up.
    pub(super) fn quiesce(&self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        let mut shell = sync::lock(&self.shell);
        shell.waiting_for_quiet += 1;
        let quiet = loop {
            if shell.is_quiet() {
                break true;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break false;
            }
            shell = sync::wait(&self.quiet, shell, left);
        };
        shell.waiting_for_quiet -= 1;
        quiet
    }

    /// Takes a value over that is to be freed. `true` if the caller is to start a thread for its space.
    #[must_use]
    pub(super) fn reap(&self, space: Space, bytes: Bytes, value: Corpse) -> bool {
        let mut shell = sync::lock(&self.shell);
        let start = shell.bury(space, bytes, value);
        self.deliver(shell);
        start
    }

    /// The next value to be freed; without any, the turn of the thread that asks is over.
    pub(super) fn next_to_free(&self, space: Space, panicked: bool) -> Option<Corpse> {
        let mut shell = sync::lock(&self.shell);
        let (next, gone) = shell.graves.next(space, panicked, self.now());
        if let Some(gone) = gone {
            shell.books.state().note_of_ledger(gone);
        }
        if next.is_none() {
            if mutant!("reaper-leaves-late") {
                drop(shell);
                shell = sync::lock(&self.shell);
            }
            shell.graves.leave(space);
        }
        // The ledger may be quiet now.
        self.deliver(shell);
        next
    }

    /// Leaves the verdicts in their seats, unlocks, and tells whoever waits there.
    fn deliver(&self, mut shell: MutexGuard<'_, Shell>) {
        let quiet = shell.waiting_for_quiet > 0 && shell.is_quiet();
        let mut signals = shell.seat_verdicts(&self.cells, || self.now());
        let leaving = shell.carry_out_orders(&mut signals);
        let Shell { books, outbox, .. } = &mut *shell;
        let state = books.state();
        // Numbered and timed here, under the lock; delivered below, outside of it (`outbox`).
        let publish = state.has_changes() && outbox.stamp(state.drain_changes(), self.now());
        drop(shell);
        if quiet {
            self.quiet.notify_all();
        }
        seats::fire(signals);
        if publish {
            self.publish();
        }
        leaving.leave();
    }

    /// Calls the observers with everything that is on its way to them.
    fn publish(&self) {
        loop {
            // A statement of its own, so that the lock is released before anybody is called.
            let batch = sync::lock(&self.shell).outbox.next_batch();
            if mutant!("baton-down-late") && batch.is_none() {
                sync::lock(&self.shell).outbox.put_down();
            }
            let Some(batch) = batch else { return };
            for observer in batch.deliver() {
                self.unobserve(&observer);
                // What panicked once may do so again. Whoever delivers must come to the end.
                if mutant!("observer-dropped-bare") { drop(observer) } else { discard(observer) }
            }
        }
    }
}

impl Shell {
    fn is_quiet(&mut self) -> bool {
        self.books.state().is_quiet() && self.graves.is_empty()
    }

    /// Puts a value where the reaper finds it. `true` if a thread is to be started for its space.
    #[must_use]
    fn bury(&mut self, space: Space, bytes: Bytes, value: Corpse) -> bool {
        self.books.state().note_of_ledger(What::Reaping { space, bytes });
        self.graves.take(space, bytes, value)
    }

    fn apply<R>(&mut self, f: impl FnOnce(&mut LedgerState, &mut Vec<Outcome>) -> R) -> R {
        f(self.books.state(), &mut self.outcomes)
    }

    fn withdraw(&mut self, id: SeatId) {
        self.seats.leave(id);
        self.books.state().withdraw(id.owner, &mut self.outcomes);
    }

    fn seat_verdicts(&mut self, cells: &Cells, now: impl FnOnce() -> u64) -> Signals {
        let mut signals = Signals::new();
        if self.outcomes.is_empty() {
            return signals;
        }
        let now = now();
        for outcome in self.outcomes.drain(..) {
            if let Outcome::Granted(owner, _) = outcome {
                self.books.granted(owner, now);
            }
            signals.push(self.seats.leave_verdict(cells, outcome.owner(), outcome.into_verdict()));
        }
        signals
    }
}

impl Outcome {
    fn owner(&self) -> OwnerId {
        match *self {
            Outcome::Granted(owner, _) | Outcome::Refused(owner, _) => owner,
        }
    }

    fn into_verdict(self) -> Verdict {
        match self {
            Outcome::Granted(_, granted) => Verdict::Granted(granted),
            Outcome::Refused(_, refusal) => Verdict::Refused(refusal),
        }
    }
}
