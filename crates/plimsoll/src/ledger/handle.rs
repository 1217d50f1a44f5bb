//! Reservations as numbers, for code that cannot own a Rust value: C and C++, a driver's callback, a message.
//!
//! [`Reservation::into_handle`] puts the reservation down in a table of its ledger and gives out a [`RawHandle`];
//! [`Ledger::redeem`] picks it up again, on any thread. Handles are serial numbers that are never used again, so a handle
//! that is used twice is recognised however much has happened in between. The last [`SPENT_KEPT`] are remembered with
//! all that is known about them, and [`Ledger::outstanding_handles`] lists those that were never redeemed.
//!
//! The table holds no reference to its ledger: handles that were lost do not keep the ledger alive.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::num::NonZeroU64;
use std::panic::Location;
use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicU16, Ordering};

use thiserror::Error;

use super::reservation::Reservation;
use super::state::OwnerId;
use crate::sync::{self, Arc, Mutex};
use crate::{Bytes, Class, Ledger};

/// How many redeemed handles are remembered, so that a second use can be named.
pub const SPENT_KEPT: usize = 1024;

/// The serial number is in the low bits; above it is the ledger's own number.
const SERIAL_BITS: u32 = 48;

/// A reservation as an opaque number, which is never zero.
///
/// It owns the bytes, but nothing returns them if it is forgotten: see [`Ledger::outstanding_handles`].
#[must_use = "the bytes are held until the handle is redeemed"]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawHandle(NonZeroU64);

impl RawHandle {
    /// A handle that came back as a number; `None` for zero. Whether it is one is for [`Ledger::redeem`] to say.
    pub const fn from_raw(raw: u64) -> Option<RawHandle> {
        match NonZeroU64::new(raw) {
            Some(raw) => Some(RawHandle(raw)),
            None => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    fn serial(self) -> u64 {
        self.get() & ((1 << SERIAL_BITS) - 1)
    }
}

impl fmt::Display for RawHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.get())
    }
}

impl fmt::Debug for RawHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawHandle({self})")
    }
}

/// What a handle stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleRecord {
    /// The handle.
    pub handle: RawHandle,
    /// The bytes' class.
    pub class: Class,
    /// How many there are.
    pub bytes: Bytes,
    /// The job or reservation that they belong to.
    pub who: StdArc<str>,
    /// Where in the source they were reserved or taken from a grant.
    pub reserved_at: &'static Location<'static>,
    /// When the handle was made, in nanoseconds since the ledger was.
    pub since: u64,
}

impl fmt::Display for HandleRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HandleRecord { handle, class, bytes, who, reserved_at, .. } = self;
        write!(f, "handle {handle} ({bytes} of {class}, {who:?}, reserved at {reserved_at})")
    }
}

/// A handle was not redeemed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It was redeemed before: somebody returns the same bytes twice.
    #[error("{record} was used before, at {spent_at}; each handle is redeemed once, so find the second owner")]
    Spent {
        /// What it stood for.
        record: HandleRecord,
        /// Where it was redeemed.
        spent_at: &'static Location<'static>,
    },
    /// It was redeemed before, so long ago that only the number is known.
    #[error("handle {handle} was used before, more than {SPENT_KEPT} handles ago; each handle is redeemed once")]
    SpentLongAgo {
        /// The handle.
        handle: RawHandle,
    },
    /// Another call is using it at this moment.
    #[error("{record} is in use by another call; a handle belongs to one thread at a time")]
    Busy {
        /// What it stands for.
        record: HandleRecord,
    },
    /// This ledger has not given it out.
    #[error(
        "handle {handle} was not given out by this ledger; use the ledger that made it, and pass the number unchanged"
    )]
    Unknown {
        /// The handle.
        handle: RawHandle,
    },
}

/// The table of one ledger and all its children.
#[derive(Debug)]
pub(super) struct Handles {
    table: Mutex<Table>,
    /// This ledger's number, shifted above the serial.
    tag: u64,
}

#[derive(Debug)]
struct Table {
    next: u64,
    out: BTreeMap<u64, Parcel>,
    /// The redeemed ones, oldest first.
    spent: VecDeque<(HandleRecord, &'static Location<'static>)>,
}

#[derive(Debug)]
struct Parcel {
    id: OwnerId,
    record: HandleRecord,
    /// Taken out for the length of a [`Ledger::with_handle`].
    busy: bool,
}

impl Handles {
    pub(super) fn new() -> Handles {
        // Not loom's: a number to tell ledgers apart synchronises nothing. After 2^16 ledgers numbers come round again,
        // and a handle used with the wrong one of two ledgers is only mostly recognised.
        static LEDGERS: AtomicU16 = AtomicU16::new(0);
        let tag = u64::from(LEDGERS.fetch_add(1, Ordering::Relaxed)) << SERIAL_BITS;
        Handles { table: Mutex::new(Table { next: 1, out: BTreeMap::new(), spent: VecDeque::new() }), tag }
    }

    /// Takes a parcel out: for good, or `busy` for a while.
    fn take(
        &self,
        handle: RawHandle,
        spent_at: Option<&'static Location<'static>>,
    ) -> Result<(OwnerId, HandleRecord), HandleError> {
        let serial = handle.serial();
        let mut table = sync::lock(&self.table);
        if handle.get() & !((1 << SERIAL_BITS) - 1) != self.tag || serial == 0 || serial >= table.next {
            return Err(HandleError::Unknown { handle });
        }
        let Some(parcel) = table.out.get_mut(&serial) else {
            let spent = table.spent.iter().rev().find(|(record, _)| record.handle == handle).cloned();
            return Err(match spent {
                Some((record, spent_at)) => HandleError::Spent { record, spent_at },
                None => HandleError::SpentLongAgo { handle },
            });
        };
        if parcel.busy {
            return Err(HandleError::Busy { record: parcel.record.clone() });
        }
        let (id, record) = (parcel.id, parcel.record.clone());
        match spent_at {
            None => parcel.busy = true,
            Some(spent_at) => {
                table.out.remove(&serial);
                if table.spent.len() == SPENT_KEPT {
                    table.spent.pop_front();
                }
                table.spent.push_back((record.clone(), spent_at));
            }
        }
        Ok((id, record))
    }
}

impl Reservation {
    /// Puts the reservation down in its ledger's table, under a number. [`Ledger::redeem`] picks it up again, on any
    /// thread; until then the bytes stay held.
    ///
    /// ```
    /// # use plimsoll::{Bytes, Class, Ledger, Space};
    /// # use plimsoll::ledger::RawHandle;
    /// # let ledger = Ledger::unlimited();
    /// # const PINNED: Class = Class::new("staging", Space::PINNED);
    /// let number: u64 = ledger.reserve(PINNED, Bytes::MIB).wait()?.into_handle().get();
    /// // … the number goes through C and comes back when the buffer has been freed there …
    /// let handle = RawHandle::from_raw(number).expect("handles are not zero");
    /// drop(ledger.redeem(handle)?);
    /// assert!(ledger.redeem(handle).unwrap_err().to_string().contains("was used before"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_handle(self) -> RawHandle {
        let since = self.ledger().now();
        let who = self.ledger().read(|state| state.name_of(self.owner()));
        let (class, bytes, reserved_at) = (self.class(), self.bytes(), self.reserved_at());
        let (inner, id) = self.into_raw();
        let mut table = sync::lock(&inner.handles.table);
        let serial = table.next;
        table.next += 1;
        let handle = RawHandle(NonZeroU64::new(inner.handles.tag | serial).expect("serials start at one"));
        let record = HandleRecord { handle, class, bytes, who, reserved_at, since };
        table.out.insert(serial, Parcel { id, record, busy: false });
        handle
    }
}

impl Ledger {
    /// The reservation that a handle stands for. The handle is spent by that; a second use is an error that names it.
    ///
    /// # Errors
    ///
    /// See [`HandleError`].
    #[track_caller]
    pub fn redeem(&self, handle: RawHandle) -> Result<Reservation, HandleError> {
        let (id, record) = self.inner.handles.take(handle, Some(Location::caller()))?;
        Ok(Reservation::new(self.inner.clone(), id, record.class, record.bytes).with_place(record.reserved_at))
    }

    /// Works on the reservation that a handle stands for, and leaves it under the same number. Another thread that uses
    /// the handle meanwhile gets [`HandleError::Busy`].
    ///
    /// Where `f` puts another reservation in its place, the handle stands for that one from then on.
    ///
    /// # Errors
    ///
    /// See [`HandleError`].
    pub fn with_handle<R>(&self, handle: RawHandle, f: impl FnOnce(&mut Reservation) -> R) -> Result<R, HandleError> {
        /// Puts the reservation back, also when `f` panics.
        struct Loan(Option<Reservation>, RawHandle, Arc<super::shell::Inner>);
        impl Drop for Loan {
            fn drop(&mut self) {
                let Some(reservation) = self.0.take() else { return };
                let (class, bytes, reserved_at) = (reservation.class(), reservation.bytes(), reservation.reserved_at());
                let who = reservation.ledger().read(|state| state.name_of(reservation.owner()));
                if !Arc::ptr_eq(reservation.ledger(), &self.2) {
                    // A reservation of another ledger cannot be in this table: it stays what it was, and is dropped.
                    sync::lock(&self.2.handles.table).out.remove(&self.1.serial());
                    return;
                }
                let (inner, id) = reservation.into_raw();
                let mut table = sync::lock(&inner.handles.table);
                let parcel = table.out.get_mut(&self.1.serial()).expect("a busy parcel stays in the table");
                parcel.record = HandleRecord { class, bytes, who, reserved_at, ..parcel.record.clone() };
                (parcel.id, parcel.busy) = (id, false);
            }
        }
        let (id, record) = self.inner.handles.take(handle, None)?;
        let reservation = Reservation::new(self.inner.clone(), id, record.class, record.bytes);
        let mut loan = Loan(Some(reservation.with_place(record.reserved_at)), handle, self.inner.clone());
        Ok(f(loan.0.as_mut().expect("taken only by the drop")))
    }

    /// The handles that are out, oldest first: of this ledger, its parents and children alike. What is in it after all
    /// work has ended was lost by whoever was given it.
    pub fn outstanding_handles(&self) -> Vec<HandleRecord> {
        sync::lock(&self.inner.handles.table).out.values().map(|parcel| parcel.record.clone()).collect()
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests {
    use super::*;
    use crate::Space;

    #[test]
    fn lost_handles_do_not_keep_the_ledger_alive() {
        let ledger = Ledger::unlimited();
        let _lost = ledger.reserve(Class::new("a", Space::HOST), Bytes(1)).try_now().unwrap().into_handle();
        let inner = Arc::downgrade(&ledger.inner);
        drop(ledger);
        assert!(inner.upgrade().is_none());
    }
}
