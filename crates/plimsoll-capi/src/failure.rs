//! What a call answers: a status, and the words for it on the thread that called.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_char;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use plimsoll::ledger::{HandleError, ReserveError};

use crate::memory;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// It did what it says.
    Ok = 0,
    /// A pointer is null or not aligned, a text is not UTF-8, or a number is out of its range.
    InvalidArgument = 1,
    /// There is no such ledger: it was freed, or never made.
    NoSuchLedger = 2,
    /// There is no such class.
    NoSuchClass = 3,
    /// The ledger has not given out such a handle.
    NoSuchHandle = 4,
    /// The handle was released before: somebody returns the same bytes twice.
    SpentHandle = 5,
    /// Another thread is using the handle in this moment.
    BusyHandle = 6,
    /// There is no room now, and the call was not to wait.
    WouldWait = 7,
    /// There was no room until the time was up.
    TimedOut = 8,
    /// It can never be served: it is above the limit, or the ledger has no limit for the space.
    NeverFits = 9,
    /// The ledger was closed.
    Closed = 10,
    /// The reservation holds fewer bytes than were asked of it.
    TooFew = 11,
    /// The reservations are of different classes or owners.
    NotMerged = 12,
    /// The ledger was not freed, because handles are still out.
    HandlesOutstanding = 13,
    /// A fault in this library; the ledger's books are still in order.
    Panicked = 14,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Display) -> Failure {
        Failure { status, text: text.to_string() }
    }

    pub(crate) fn argument(text: impl Display) -> Failure {
        Failure::new(Status::InvalidArgument, text)
    }
}

impl From<HandleError> for Failure {
    fn from(error: HandleError) -> Failure {
        let status = match error {
            HandleError::Spent { .. } | HandleError::SpentLongAgo { .. } => Status::SpentHandle,
            HandleError::Busy { .. } => Status::BusyHandle,
            _ => Status::NoSuchHandle,
        };
        Failure::new(status, error)
    }
}

impl From<ReserveError> for Failure {
    fn from(error: ReserveError) -> Failure {
        let status = match error {
            ReserveError::WouldWait(_) => Status::WouldWait,
            ReserveError::TimedOut { .. } => Status::TimedOut,
            ReserveError::Closed { .. } => Status::Closed,
            _ => Status::NeverFits,
        };
        Failure::new(status, error)
    }
}

thread_local! {
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a call: neither an error nor a panic leaves it but as a status, with the words kept for this thread.
pub(crate) fn answer(call: impl FnOnce() -> Result<(), Failure>) -> Status {
    // Every call leaves the ledger's books in order however it ends: its critical sections run no code that panics, and
    // what a call holds is returned by destructors.
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let text = format!("plimsoll panicked: {}; this is a fault in the library", message(&*payload));
        // A payload whose destructor panics must not get out either.
        std::mem::forget(payload);
        Err(Failure::new(Status::Panicked, text))
    });
    match result {
        Ok(()) => Status::Ok,
        Err(Failure { status, text }) => {
            // A thread that is ending has no place for words any more; the status is enough then.
            let _ = LAST_ERROR.try_with(|last| last.replace(text));
            status
        }
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let string = payload.downcast_ref::<String>().map(String::as_str);
    string.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// Writes what went wrong in this thread's last call that failed, as a text that ends with a zero byte and is cut off
/// where `size` bytes are too few. Returns how many bytes the whole text takes with its zero byte; with a null `text`
/// nothing else happens. Calls that succeed leave the text as it is; before the first failure it is empty.
///
/// # Safety
///
/// `text` is null or points to `size` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_last_error(text: *mut c_char, size: usize) -> usize {
    let last = LAST_ERROR.try_with(|last| last.borrow().clone()).unwrap_or_default();
    // SAFETY: the caller keeps the promise that is passed on here.
    unsafe { memory::write_text(&last, text, size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status() {
        assert_eq!(answer(|| panic!("a fault")), Status::Panicked);
        let text = LAST_ERROR.with(|last| last.borrow().clone());
        assert!(text.contains("a fault"), "{text}");
    }
}
