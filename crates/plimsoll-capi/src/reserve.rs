//! Reservations: made, divided, returned.

use std::ffi::c_char;
use std::time::Duration;

use plimsoll::Bytes;
use plimsoll::ledger::{RawHandle, Reservation, TooFew};

use crate::failure::{Failure, Status, answer};
use crate::memory::{self, Out};
use crate::tables::{self, ClassNumber, LedgerNumber, Lent};

/// A reservation. Never zero; never given out twice.
pub type HandleNumber = u64;

/// A time-out that never comes.
pub const PLIMSOLL_FOREVER: u64 = u64::MAX;

fn handle(number: HandleNumber) -> Result<RawHandle, Failure> {
    let null = || Failure::new(Status::NoSuchHandle, "the handle is zero, which is never given out");
    RawHandle::from_raw(number).ok_or_else(null)
}

impl From<TooFew> for Failure {
    fn from(error: TooFew) -> Failure {
        Failure::new(Status::TooFew, error)
    }
}

/// Reserves bytes, waiting at most `timeout_ms` milliseconds for them: 0 to not wait, PLIMSOLL_FOREVER for as long as
/// it takes. `who` is named in reports and errors and may be null; PLIMSOLL_HERE makes one.
///
/// # Safety
///
/// `who` is null or a text that ends with a zero byte, and `handle` points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_reserve(
    ledger: LedgerNumber,
    class: ClassNumber,
    bytes: u64,
    who: *const c_char,
    timeout_ms: u64,
    handle: *mut HandleNumber,
) -> Status {
    answer(|| {
        // SAFETY: the caller keeps the promise that is passed on here.
        let out = unsafe { Out::new(handle, "handle")? };
        let ledger = tables::ledger(ledger)?;
        let mut request = ledger.reserve(tables::class(class)?, Bytes(bytes));
        if !who.is_null() {
            // SAFETY: likewise.
            request = request.name(unsafe { memory::text(who, "who")? });
        }
        let reservation = match timeout_ms {
            0 => request.try_now()?,
            PLIMSOLL_FOREVER => request.wait()?,
            _ => request.wait_for(Duration::from_millis(timeout_ms))?,
        };
        out.write(reservation.into_handle().get());
        Ok(())
    })
}

/// Takes `bytes` off a reservation into one of their own.
///
/// # Safety
///
/// `part` points to where the new handle is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_split(
    ledger: LedgerNumber,
    handle: HandleNumber,
    bytes: u64,
    part: *mut HandleNumber,
) -> Status {
    answer(|| {
        // SAFETY: the caller keeps the promise that is passed on here.
        let out = unsafe { Out::new(part, "part")? };
        let ledger = tables::ledger(ledger)?;
        let part = with(&ledger, handle, |whole| whole.split(Bytes(bytes)))??;
        out.write(part.into_handle().get());
        Ok(())
    })
}

/// Moves all bytes of `other` into `into`, of the same class and split off the same reservation; `other` is spent by
/// that. Where the call fails both stay as they were.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_merge(ledger: LedgerNumber, into: HandleNumber, other: HandleNumber) -> Status {
    answer(|| {
        let ledger = tables::ledger(ledger)?;
        with(&ledger, other, |other| {
            let mut all = Some(other.split(other.bytes())?);
            let merged = with(&ledger, into, |into| match into.merge(all.take().expect("called once")) {
                Ok(()) => Ok(()),
                Err(error) => {
                    let text = error.to_string();
                    all = Some(error.into_other());
                    Err(Failure::new(Status::NotMerged, text))
                }
            });
            if let Some(all) = all {
                other.merge(all).expect("it was split off just now");
            }
            merged?
        })??;
        // Nothing is left of it but the number.
        drop(ledger.redeem(self::handle(other)?)?);
        Ok(())
    })
}

/// Returns everything of a reservation above `bytes`.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_shrink_to(ledger: LedgerNumber, handle: HandleNumber, bytes: u64) -> Status {
    answer(|| Ok(with(&tables::ledger(ledger)?, handle, |whole| whole.shrink_to(Bytes(bytes)))??))
}

/// Returns the bytes of a reservation. Call it after the memory was freed, once, on any thread.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_release(ledger: LedgerNumber, handle: HandleNumber) -> Status {
    answer(|| {
        drop(tables::ledger(ledger)?.redeem(self::handle(handle)?)?);
        Ok(())
    })
}

/// How many bytes a reservation holds.
///
/// # Safety
///
/// `bytes` points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_handle_bytes(ledger: LedgerNumber, handle: HandleNumber, bytes: *mut u64) -> Status {
    answer(|| {
        // SAFETY: the caller keeps the promise that is passed on here.
        let out = unsafe { Out::new(bytes, "bytes")? };
        out.write(with(&tables::ledger(ledger)?, handle, |whole| whole.bytes().0)?);
        Ok(())
    })
}

fn with<R>(ledger: &Lent, number: HandleNumber, f: impl FnOnce(&mut Reservation) -> R) -> Result<R, Failure> {
    Ok(ledger.with_handle(handle(number)?, f)?)
}
