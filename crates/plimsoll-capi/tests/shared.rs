//! A ledger that Rust and C work on together, as seen from Rust.
#![expect(clippy::disallowed_methods, reason = "tests use plain threads")]

use std::ptr;

use plimsoll::ledger::RawHandle;
use plimsoll::{Budget, Bytes, Class, Ledger, Space};
use plimsoll_capi::{
    PLIMSOLL_FOREVER, Status, plimsoll_class_new, plimsoll_ledger_close, plimsoll_ledger_free, plimsoll_release,
    plimsoll_reserve, share,
};

const BUFFERS: Class = Class::new("buffers", Space::HOST);

#[test]
fn bytes_reserved_in_rust_are_returned_in_c_and_the_other_way_round() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let number = share(ledger.clone());
    let handle = ledger.reserve(BUFFERS, Bytes(10)).try_now().unwrap().into_handle().get();
    assert_eq!(plimsoll_release(number, handle), Status::Ok);
    assert!(ledger.snapshot().is_empty());

    let (mut class, mut handle) = (0, 0);
    // SAFETY: the text ends with a zero byte, and the results go to variables that live on.
    unsafe {
        assert_eq!(plimsoll_class_new(c"buffers".as_ptr(), 0, &mut class), Status::Ok);
        assert_eq!(plimsoll_reserve(number, class, 7, ptr::null(), 0, &mut handle), Status::Ok);
    }
    let reservation = ledger.redeem(RawHandle::from_raw(handle).unwrap()).unwrap();
    assert_eq!((reservation.bytes(), reservation.class()), (Bytes(7), BUFFERS));
    assert_eq!(plimsoll_release(number, handle), Status::SpentHandle);
    assert_eq!(plimsoll_ledger_free(number), Status::Ok);
    // Rust's handle to the ledger is as good as before.
    assert_eq!(ledger.snapshot().class(BUFFERS).unwrap().totals.held, 7);
    drop(reservation);
}

#[test]
fn closing_ends_a_wait_that_has_no_time_out() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let number = share(ledger.clone());
    let held = ledger.reserve(BUFFERS, Bytes(10)).try_now().unwrap();
    let waiting = std::thread::spawn(move || {
        let (mut class, mut handle) = (0, 0);
        // SAFETY: as above.
        unsafe {
            assert_eq!(plimsoll_class_new(c"buffers".as_ptr(), 0, &mut class), Status::Ok);
            plimsoll_reserve(number, class, 7, ptr::null(), PLIMSOLL_FOREVER, &mut handle)
        }
    });
    while ledger.snapshot().waiters.is_empty() {
        std::thread::yield_now();
    }
    // A call that is in progress may still make a handle, which nobody could release.
    assert_eq!(plimsoll_ledger_free(number), Status::HandlesOutstanding);
    assert_eq!(plimsoll_ledger_close(number), Status::Ok);
    assert_eq!(waiting.join().unwrap(), Status::Closed);
    assert_eq!(plimsoll_ledger_free(number), Status::Ok);
    drop(held);
}
