//! Reservations as numbers: what is redeemed twice, or never, is found and named.
#![expect(clippy::disallowed_methods, reason = "tests use plain threads")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use plimsoll::ledger::{HandleError, RawHandle, SPENT_KEPT};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Reservation, Space};

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::HOST);

fn ledger() -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(100)))
}

fn reserve(ledger: &Ledger, bytes: u64) -> Reservation {
    ledger.reserve(A, Bytes(bytes)).name("the buffer").try_now().unwrap()
}

fn held(ledger: &Ledger) -> u64 {
    ledger.snapshot().space(Space::HOST).unwrap().held.0
}

#[test]
fn bytes_are_held_until_the_handle_is_redeemed() {
    let ledger = ledger();
    let handle = reserve(&ledger, 60).into_handle();
    assert_eq!(held(&ledger), 60);
    assert_eq!(ledger.snapshot().class(A).unwrap().totals.count, 1);
    let reservation = ledger.redeem(handle).unwrap();
    assert_eq!((reservation.bytes(), reservation.class()), (Bytes(60), A));
    drop(reservation);
    assert_eq!(held(&ledger), 0);
    assert_eq!(ledger.snapshot().class(A).unwrap().totals.count, 0);
}

#[test]
fn another_thread_returns_the_bytes_and_wakes_who_waits() {
    let ledger = ledger();
    let number = reserve(&ledger, 100).into_handle().get();
    let other = ledger.clone();
    let waiting = std::thread::spawn(move || other.reserve(A, Bytes(50)).wait().unwrap().bytes());
    while ledger.snapshot().waiters.is_empty() {
        std::thread::yield_now();
    }
    let other = ledger.clone();
    std::thread::spawn(move || drop(other.redeem(RawHandle::from_raw(number).unwrap()).unwrap())).join().unwrap();
    assert_eq!(waiting.join().unwrap(), Bytes(50));
}

#[test]
fn a_second_use_is_an_error_that_names_it() {
    let ledger = ledger();
    let handle = reserve(&ledger, 60).into_handle();
    drop(ledger.redeem(handle).unwrap());
    // Somebody else's bytes, in what a table of slots would take for the same place.
    let other = reserve(&ledger, 10).into_handle();
    let error = ledger.redeem(handle).unwrap_err();
    let HandleError::Spent { record, .. } = &error else { panic!("{error:?}") };
    assert_eq!((record.class, record.bytes, &*record.who), (A, Bytes(60), "the buffer"));
    let text = error.to_string();
    assert!(text.contains("60 B of a, \"the buffer\", reserved at crates/plimsoll/tests/handles.rs:"), "{text}");
    assert!(text.contains("was used before, at crates/plimsoll/tests/handles.rs:"), "{text}");
    assert!(matches!(ledger.with_handle(handle, |_| ()), Err(HandleError::Spent { .. })));
    assert_eq!(held(&ledger), 10);
    drop(ledger.redeem(other).unwrap());
}

#[test]
fn a_second_use_is_noticed_when_it_is_no_longer_remembered() {
    let ledger = ledger();
    let first = reserve(&ledger, 1).into_handle();
    drop(ledger.redeem(first).unwrap());
    for _ in 0..SPENT_KEPT {
        drop(ledger.redeem(reserve(&ledger, 1).into_handle()).unwrap());
    }
    assert_eq!(ledger.redeem(first).unwrap_err(), HandleError::SpentLongAgo { handle: first });
}

#[test]
fn handles_that_never_came_back_are_listed() {
    let ledger = ledger();
    let one = reserve(&ledger, 1).into_handle();
    let two = reserve(&ledger, 2).into_handle();
    let three = reserve(&ledger, 3).into_handle();
    drop(ledger.redeem(two).unwrap());
    let out = ledger.outstanding_handles();
    assert_eq!(out.iter().map(|record| (record.handle, record.bytes.0)).collect::<Vec<_>>(), [(one, 1), (three, 3)]);
    assert!(out[0].to_string().contains("1 B of a, \"the buffer\", reserved at crates/plimsoll/tests/handles.rs:"));
    for record in out {
        drop(ledger.redeem(record.handle).unwrap());
    }
    assert!(ledger.outstanding_handles().is_empty() && ledger.snapshot().is_empty());
}

#[test]
fn numbers_that_were_not_given_out_are_refused() {
    let (ledger, other) = (ledger(), self::ledger());
    let handle = reserve(&ledger, 1).into_handle();
    for number in [handle.get() + 1, handle.get() - 1, u64::MAX, 1 << 47] {
        let Some(handle) = RawHandle::from_raw(number) else { continue };
        assert_eq!(ledger.redeem(handle).unwrap_err(), HandleError::Unknown { handle }, "{number:#x}");
    }
    // The same serial number is out at the other ledger as well.
    let others = reserve(&other, 1).into_handle();
    assert_eq!(other.redeem(handle).unwrap_err(), HandleError::Unknown { handle });
    assert_eq!(RawHandle::from_raw(0), None);
    drop((ledger.redeem(handle).unwrap(), other.redeem(others).unwrap()));
}

#[test]
fn a_handle_keeps_its_number_while_it_is_worked_on() {
    let ledger = ledger();
    let handle = reserve(&ledger, 60).into_handle();
    let part = ledger.with_handle(handle, |whole| whole.split(Bytes(20)).unwrap()).unwrap();
    ledger.with_handle(handle, |whole| whole.shrink_to(Bytes(30)).unwrap()).unwrap();
    assert_eq!((held(&ledger), ledger.outstanding_handles()[0].bytes), (50, Bytes(30)));
    ledger.with_handle(handle, |whole| whole.merge(part).unwrap()).unwrap();
    // A closure that exchanges the reservation leaves the other one under the number.
    let other = ledger.reserve(B, Bytes(5)).name("other").try_now().unwrap();
    let first = ledger.with_handle(handle, |held| std::mem::replace(held, other)).unwrap();
    assert_eq!((first.bytes(), held(&ledger)), (Bytes(50), 55));
    drop(first);
    let record = ledger.outstanding_handles().remove(0);
    assert_eq!((record.class, record.bytes, &*record.who), (B, Bytes(5), "other"));
    drop(ledger.redeem(handle).unwrap());
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_reservation_of_another_ledger_does_not_stay_under_a_handle() {
    let (ledger, other) = (ledger(), self::ledger());
    let handle = reserve(&ledger, 60).into_handle();
    let foreign = reserve(&other, 7);
    drop(ledger.with_handle(handle, |held| std::mem::replace(held, foreign)).unwrap());
    assert!(ledger.snapshot().is_empty() && other.snapshot().is_empty());
    assert!(ledger.outstanding_handles().is_empty());
}

#[test]
fn a_handle_in_use_is_not_redeemed_underneath() {
    let ledger = ledger();
    let handle = reserve(&ledger, 60).into_handle();
    ledger
        .with_handle(handle, |whole| {
            assert!(matches!(ledger.redeem(handle), Err(HandleError::Busy { .. })));
            whole.shrink_to(Bytes(10)).unwrap();
        })
        .unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        ledger.with_handle(handle, |_| std::panic::resume_unwind(Box::new("oops"))).map(|(): ()| ())
    }));
    assert!(panicked.is_err());
    assert_eq!(ledger.redeem(handle).unwrap().bytes(), Bytes(10));
}

#[test]
fn a_reservation_of_a_job_keeps_its_job() {
    let ledger = ledger();
    let profile = Profile::new().stage("make", Demand::new().bytes(A, Bytes(40)), Demand::new());
    let mut job = ledger.submit(JobSpec::new("job 7", profile)).unwrap();
    let mut grant = job.enter(0).try_now().unwrap();
    let handle = grant.take(A, Bytes(30)).unwrap().into_handle();
    assert_eq!(&*ledger.outstanding_handles()[0].who, "job 7");
    grant.put_back(ledger.redeem(handle).unwrap()).unwrap();
    assert_eq!(grant.left(A), Bytes(40));
    drop((grant, job));
    assert!(ledger.snapshot().is_empty());
}
