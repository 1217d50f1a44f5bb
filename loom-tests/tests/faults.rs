//! loom models of the ledger's less ordinary ways, as it ships: buffers that are freed elsewhere, limits that change while
//! others come and go, observers.
#![cfg(plimsoll_loom)]

use std::time::Duration;

use loom::thread;
use plimsoll::{Budget, Bytes, Class, Ledger, Reservation, Space};

const A: Class = Class::new("a", Space::HOST);

/// Runs a model of the shipped code over all interleavings with up to three preemptions, or as many as
/// `LOOM_MAX_PREEMPTIONS` says.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(model);
}

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
