//! What is held, and by whom.

use std::ffi::c_char;

use plimsoll::ledger::{HandleRecord, RawHandle};

use crate::failure::{Failure, Status, answer};
use crate::memory::{self, Out};
use crate::reserve::HandleNumber;
use crate::tables::{self, ClassNumber, LedgerNumber, SpaceNumber};

/// How much is held, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Usage {
    /// Held now.
    pub held: u64,
    /// The most that was ever held at once.
    pub peak: u64,
    /// The limit that holds now; of a class, that of its space.
    pub limit: u64,
}

/// How much is held in a space, of all classes.
///
/// # Safety
///
/// `usage` points to where the answer is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_space_usage(ledger: LedgerNumber, space: SpaceNumber, usage: *mut Usage) -> Status {
    answer(|| {
        // SAFETY: the caller keeps the promise that is passed on here.
        let out = unsafe { Out::new(usage, "usage")? };
        let space = tables::space(space)?;
        let snapshot = tables::ledger(ledger)?.snapshot();
        let usage = snapshot.space(space).ok_or_else(|| {
            Failure::argument(format_args!("ledger {ledger} has no limit for {space}; name it in plimsoll_ledger_new"))
        })?;
        out.write(Usage { held: usage.held.0, peak: usage.peak.0, limit: usage.limit.0 });
        Ok(())
    })
}

/// How much is held of a class.
///
/// # Safety
///
/// `usage` points to where the answer is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_class_usage(ledger: LedgerNumber, class: ClassNumber, usage: *mut Usage) -> Status {
    answer(|| {
        // SAFETY: the caller keeps the promise that is passed on here.
        let out = unsafe { Out::new(usage, "usage")? };
        let class = tables::class(class)?;
        let snapshot = tables::ledger(ledger)?.snapshot();
        let totals = snapshot.class(class).map(|usage| usage.totals).unwrap_or_default();
        let limit = snapshot.space(class.space()).map_or(0, |usage| usage.limit.0);
        out.write(Usage { held: totals.held, peak: totals.peak, limit });
        Ok(())
    })
}

/// Writes the handles that are out, oldest first, as many as there is `room` for, and to `count` how many there are.
///
/// # Safety
///
/// `handles` points to room for `room` handles (it may be null where that is 0), and `count` to where their number is
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_outstanding_handles(
    ledger: LedgerNumber,
    handles: *mut HandleNumber,
    room: usize,
    count: *mut usize,
) -> Status {
    answer(|| {
        // SAFETY: the caller keeps the promise that is passed on here.
        let out = unsafe { Out::new(count, "count")? };
        let records = tables::ledger(ledger)?.outstanding_handles();
        let numbers: Vec<HandleNumber> = records.iter().map(|record| record.handle.get()).collect();
        // SAFETY: likewise.
        unsafe { memory::write_array(&numbers, handles, room)? };
        out.write(numbers.len());
        Ok(())
    })
}

/// Writes in words what a handle that is out stands for: bytes, class and who reserved them. The text ends with a zero
/// byte and is cut off where `size` bytes are too few; to `needed`, which may be null, goes what the whole takes.
///
/// # Safety
///
/// `text` is null or points to `size` bytes, and `needed` is null or points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_describe_handle(
    ledger: LedgerNumber,
    handle: HandleNumber,
    text: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> Status {
    answer(|| {
        let is = |record: &HandleRecord| Some(record.handle) == RawHandle::from_raw(handle);
        let record = tables::ledger(ledger)?.outstanding_handles().into_iter().find(is).ok_or_else(|| {
            Failure::new(
                Status::NoSuchHandle,
                format_args!("handle {handle:#x} is not out; it was released, or never made"),
            )
        })?;
        // SAFETY: the caller keeps the promises that are passed on here.
        unsafe {
            let length = memory::write_text(&record.to_string(), text, size);
            if !needed.is_null() {
                Out::new(needed, "needed")?.write(length);
            }
        }
        Ok(())
    })
}
