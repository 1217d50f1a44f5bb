//! Seats: where the verdict on a waiting request is left, and whom to tell.
//!
//! Most who wait, wait for bytes and nothing else, and all that they need to hear is *yes*. For them the verdict is one
//! word, in a *cell* beside the lock: whoever is woken reads it there, and has no use for the lock. Everything else about a
//! seat is guarded by the lock, and whatever is more than a yes is left in the seat itself.
//!
//! | cell | written | read |
//! |---|---|---|
//! | `WAITING` | under the lock, when the seat is taken; nobody else knows of the seat then | |
//! | `GRANTED`, `REFUSED` | under the lock, *before* the signal is taken out of the seat (Release) | by the one who waits, with or without the lock (Acquire) |
//!
//! A seat whose request was granted stays with the owner, whose next request takes it over: by then the one who waited has
//! read the cell, because without that it could not have returned what it was granted.

use std::sync::OnceLock;
use std::task::Waker;

use slab::Slab;
use smallvec::SmallVec;

use crate::contain::contain;
use crate::ledger::state::{Granted, OwnerId, Refusal};
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::thread::Thread;
use crate::sync::{Arc, Condvar};

/// How a waiting request ended.
#[derive(Debug)]
pub(in crate::ledger) enum Verdict {
    Granted(Granted),
    Refused(Refusal),
}

/// How to tell somebody that the verdict is there.
#[derive(Debug)]
pub(in crate::ledger) enum Signal {
    Nobody,
    Task(Waker),
    /// A thread that waits for the lock's condition variable.
    Thread(Arc<Condvar>),
    /// A thread that looks at its cell.
    Parked(Thread),
}

/// Signals that were taken out of their seats, to be fired once the lock is free.
pub(super) type Signals = SmallVec<[Signal; 8]>;

/// Fires them. A waker that panics keeps nobody else from being told.
pub(super) fn fire(signals: Signals) {
    for signal in signals {
        signal.fire();
    }
}

impl Signal {
    fn fire(self) {
        match self {
            Signal::Nobody => {}
            Signal::Task(waker) if mutant!("a-waker-that-panics-goes-through") => waker.wake(),
            Signal::Task(waker) => {
                drop(contain(|| waker.wake()));
            }
            Signal::Thread(condvar) => condvar.notify_one(),
            Signal::Parked(thread) => thread.unpark(),
        }
    }
}

/// A seat that is taken, and whose request it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct SeatId {
    pub(super) seat: usize,
    pub(in crate::ledger) owner: OwnerId,
}

/// On a cache line of its own, as the cell beside it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Seat {
    pub(super) signal: Signal,
    // Boxed: a seat is taken for each request that waits, and most verdicts are left in a cell.
    verdict: Option<Box<Verdict>>,
    /// A yes is left in the cell.
    by_cell: bool,
}

/// All seats. Guarded by the ledger's lock.
#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: Slab<Seat>,
    /// The seat of each owner, by the owner's index.
    seat_of: Vec<usize>,
}

const NO_SEAT: usize = usize::MAX;

impl Seats {
    /// Takes a seat for an owner that waits.
    pub(super) fn take(&mut self, cells: &Cells, owner: OwnerId, signal: Signal, by_cell: bool) -> SeatId {
        if self.seat_of.len() <= owner.index() {
            self.seat_of.resize(owner.index() + 1, NO_SEAT);
        }
        let seat = Seat { signal, verdict: None, by_cell };
        let of_owner = &mut self.seat_of[owner.index()];
        if *of_owner == NO_SEAT {
            *of_owner = self.seats.insert(seat);
        } else {
            // Of its last request, or of an owner before it.
            self.seats[*of_owner] = seat;
        }
        cells.at(*of_owner).store(WAITING, Ordering::Relaxed);
        SeatId { seat: *of_owner, owner }
    }

    pub(super) fn seat(&mut self, id: SeatId) -> &mut Seat {
        &mut self.seats[id.seat]
    }

    /// The signal of an owner that waits.
    pub(super) fn signal_of(&mut self, owner: OwnerId) -> Option<Signal> {
        let seat = self.seat_of.get(owner.index()).filter(|seat| **seat != NO_SEAT)?;
        Some(std::mem::replace(&mut self.seats[*seat].signal, Signal::Nobody))
    }

    /// Leaves the verdict, and takes the signal out.
    pub(super) fn leave_verdict(&mut self, cells: &Cells, owner: OwnerId, verdict: Verdict) -> Signal {
        let of_owner = &mut self.seat_of[owner.index()];
        let at = *of_owner;
        let seat = &mut self.seats[at];
        match verdict {
            Verdict::Granted(_) if seat.by_cell && mutant!("woken-before-the-cell-is-written") => {}
            Verdict::Granted(_) if seat.by_cell => cells.tell(at, GRANTED),
            verdict => {
                let by_cell = seat.by_cell;
                seat.verdict = Some(Box::new(verdict));
                // It is the one's who waits, until the verdict is taken out.
                *of_owner = NO_SEAT;
                if by_cell {
                    cells.tell(at, REFUSED);
                }
            }
        }
        std::mem::replace(&mut self.seats[at].signal, Signal::Nobody)
    }

    /// A fault to be caught: the cell is written after whoever waits was told to look.
    pub(super) fn write_late(&self, cells: &Cells, owner: OwnerId) {
        cells.tell(self.seat_of[owner.index()], GRANTED);
    }

    /// Whether more than a yes by the cell is there.
    pub(super) fn has_verdict(&self, id: SeatId) -> bool {
        self.seats[id.seat].verdict.is_some()
    }

    /// Takes the verdict once it is there. The seat is free then.
    pub(super) fn take_verdict(&mut self, cells: &Cells, id: SeatId) -> Option<Verdict> {
        if cells.is_granted(id) {
            return Some(Verdict::Granted(Granted::new()));
        }
        let verdict = self.seats[id.seat].verdict.take()?;
        self.seats.remove(id.seat);
        Some(*verdict)
    }

    /// Leaves a seat before there is a verdict.
    pub(super) fn leave(&mut self, id: SeatId) {
        self.seats.remove(id.seat);
        self.seat_of[id.owner.index()] = NO_SEAT;
    }
}

const WAITING: u8 = 0;
const GRANTED: u8 = 1;
const REFUSED: u8 = 2;

/// One word for each seat, beside the lock.
#[derive(Debug)]
pub(super) struct Cells {
    /// Twice as many in each as in the one before; they never move.
    blocks: [OnceLock<Box<[Cell]>>; BLOCKS],
}

/// On a cache line of its own: those who wait on neighbouring seats run on different cores.
#[derive(Debug)]
#[repr(align(64))]
struct Cell(AtomicU8);

const BLOCKS: usize = 40;
/// Cells in the first block.
const FIRST: usize = if cfg!(plimsoll_loom) { 2 } else { 64 };

impl Cells {
    pub(super) fn new() -> Cells {
        Cells { blocks: [const { OnceLock::new() }; BLOCKS] }
    }

    fn at(&self, seat: usize) -> &AtomicU8 {
        let number = seat + FIRST;
        let block = number.ilog2() - FIRST.ilog2();
        let size = FIRST << block;
        let cells = self.blocks[block as usize]
            .get_or_init(|| std::iter::repeat_with(|| Cell(AtomicU8::new(WAITING))).take(size).collect());
        &cells[number - size].0
    }

    fn tell(&self, seat: usize, verdict: u8) {
        // With the Acquire of whoever waits: what the grant stands for was counted before it is used.
        self.at(seat).store(verdict, Ordering::Release);
    }

    /// Whether a request was granted by its cell.
    pub(super) fn is_granted(&self, id: SeatId) -> bool {
        self.at(id.seat).load(Ordering::Acquire) == GRANTED
    }

    /// Whether there is still no verdict.
    pub(super) fn is_waiting(&self, id: SeatId) -> bool {
        self.at(id.seat).load(Ordering::Acquire) == WAITING
    }
}
