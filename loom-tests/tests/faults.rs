//! loom models of the ledger's less ordinary ways, as it ships: buffers that are freed elsewhere, limits that change while
//! others come and go, observers.
#![cfg(plimsoll_loom)]

use std::time::Duration;

use loom::sync::Mutex;
use loom::thread;
use loom_tests::check;
use plimsoll::ledger::ReserveError;
use plimsoll::observe::{Event, Observer};
use plimsoll::{Budget, Bytes, Class, Ledger, Reservation, Space};

const A: Class = Class::new("a", Space::HOST);

fn ledger(bytes: u64) -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(bytes)))
}

fn hold(ledger: &Ledger, bytes: u64) -> Reservation {
    ledger.reserve(A, Bytes(bytes)).try_now().expect("there is room")
}

#[test]
fn what_is_handed_over_is_freed() {
    check(|| {
        let ledger = ledger(2);
        let (one, other) = (hold(&ledger, 1), hold(&ledger, 1));
        ledger.reaper().free(one);
        let hands_over = thread::spawn({
            let ledger = ledger.clone();
            move || ledger.reaper().free(other)
        });
        hands_over.join().unwrap();
        ledger.quiesce(Duration::MAX).unwrap();
        assert!(ledger.snapshot().is_empty());
        assert_eq!(ledger.snapshot().reaped, 2);
    });
}

#[test]
fn a_buffer_handed_over_pays_for_whoever_waits() {
    check(|| {
        let ledger = ledger(1);
        let held = hold(&ledger, 1);
        let waits = thread::spawn({
            let ledger = ledger.clone();
            move || drop(ledger.reserve(A, Bytes(1)).wait().unwrap())
        });
        ledger.reaper().free(held);
        waits.join().unwrap();
    });
}

#[test]
fn a_raised_limit_wakes_who_waits() {
    check(|| {
        let ledger = ledger(2);
        let held = hold(&ledger, 1);
        let waits = thread::spawn({
            let ledger = ledger.clone();
            move || drop(ledger.reserve(A, Bytes(2)).wait().unwrap())
        });
        ledger.resize(Space::HOST, Bytes(3)).unwrap();
        waits.join().unwrap();
        drop(held);
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn a_limit_that_is_lowered_while_others_come_and_go_comes_down() {
    check(|| {
        let ledger = ledger(2);
        let held = hold(&ledger, 1);
        let comes = thread::spawn({
            let ledger = ledger.clone();
            move || match ledger.reserve(A, Bytes(2)).wait() {
                Ok(both) => drop(both),
                Err(error) => assert!(matches!(error, ReserveError::NeverFits(_)), "{error}"),
            }
        });
        let lowers = thread::spawn({
            let ledger = ledger.clone();
            move || ledger.resize(Space::HOST, Bytes(1)).unwrap()
        });
        drop(held);
        comes.join().unwrap();
        lowers.join().unwrap();
        let snapshot = ledger.snapshot();
        let space = snapshot.space(Space::HOST).unwrap();
        assert_eq!((space.limit, space.held), (Bytes(1), Bytes(0)));
    });
}

#[test]
fn a_lost_device_ends_every_wait_for_it() {
    check(|| {
        const D: Class = Class::new("d", Space::device(0));
        let ledger = Ledger::new(Budget::new().space(Space::device(0), Bytes(1)));
        let held = ledger.reserve(D, Bytes(1)).try_now().unwrap();
        let waits = thread::spawn({
            let ledger = ledger.clone();
            move || match ledger.reserve(D, Bytes(1)).wait() {
                Ok(held) => drop(held),
                Err(error) => assert!(matches!(error, ReserveError::Lost(_)), "{error}"),
            }
        });
        let returns = thread::spawn(move || drop(held));
        ledger.retire(Space::device(0)).unwrap();
        waits.join().unwrap();
        returns.join().unwrap();
        assert!(ledger.snapshot().is_empty());
    });
}

/// Notes the number of each event.
struct Numbers(Mutex<Vec<u64>>);

impl Observer for Numbers {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.sequence);
    }
}

#[test]
fn observers_see_every_event_once_and_in_order() {
    check(|| {
        let ledger = ledger(2);
        let numbers = std::sync::Arc::new(Numbers(Mutex::new(Vec::new())));
        ledger.observe(numbers.clone());
        let other = thread::spawn({
            let ledger = ledger.clone();
            move || drop(hold(&ledger, 1))
        });
        drop(hold(&ledger, 1));
        other.join().unwrap();
        let numbers = numbers.0.lock().unwrap();
        // Asked, granted, one more held, one less, ended: of each of the two.
        assert_eq!(*numbers, (1..=10).collect::<Vec<_>>());
    });
}
