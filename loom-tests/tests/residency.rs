//! loom models of residencies, on the ledger's shell as it ships: one load at a time, which is never lost; what is pinned
//! stays; who waits for a load, or for the room of what is evicted, is woken.
#![cfg(plimsoll_loom)]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use loom::thread;
use loom_tests::check;
use plimsoll::ledger::{Got, Residency};
use plimsoll::{Budget, Bytes, Class, Ledger, Space};

const KEYS: Class = Class::new("keys", Space::HOST);
const SCRATCH: Class = Class::new("scratch", Space::HOST);

/// Counts the values that are there. Not loom's atomics: whoever counts has the value to itself.
#[derive(Clone, Default)]
struct Census(Arc<[AtomicUsize; 2]>);

struct Value(Census);

impl Census {
    fn load(&self) -> Value {
        self.0[0].fetch_add(1, Ordering::Relaxed);
        self.0[1].fetch_add(1, Ordering::Relaxed);
        Value(self.clone())
    }

    fn loaded(&self) -> usize {
        self.0[0].load(Ordering::Relaxed)
    }

    fn there(&self) -> usize {
        self.0[1].load(Ordering::Relaxed)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.0.0[1].fetch_sub(1, Ordering::Relaxed);
    }
}

fn world() -> (Ledger, Residency<Value>, Census) {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let key = ledger.residency("key", KEYS, Bytes(8), Duration::from_secs(1)).unwrap();
    (ledger, key, Census::default())
}

/// Takes the value, loading it if that is to be done, and lets go of it.
fn uses(key: &Residency<Value>, census: &Census) {
    let pin = key.get_or_load(|_| Ok::<_, Infallible>(census.load())).unwrap();
    assert_eq!(pin.0.there(), 1, "what is pinned is there, once");
}

#[test]
fn two_who_want_it_load_it_once() {
    check(|| {
        let (ledger, key, census) = world();
        let other = thread::spawn({
            let (key, census) = (key.clone(), census.clone());
            move || uses(&key, &census)
        });
        uses(&key, &census);
        other.join().unwrap();
        assert_eq!(census.loaded(), 1);
        drop(key);
        assert!(ledger.snapshot().is_empty());
        assert_eq!(census.there(), 0);
    });
}

#[test]
fn a_load_that_is_dropped_is_taken_over() {
    check(|| {
        let (ledger, key, census) = world();
        let gives_up = thread::spawn({
            let key = key.clone();
            move || match key.get().wait().unwrap() {
                Got::Vacant(vacant) => drop(vacant),
                Got::Pinned(pin) => drop(pin),
            }
        });
        uses(&key, &census);
        gives_up.join().unwrap();
        drop(key);
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn a_request_that_is_dropped_leaves_its_load_to_the_next() {
    check(|| {
        let (ledger, key, census) = world();
        let gives_up = thread::spawn({
            let ledger = ledger.clone();
            let key = key.clone();
            move || {
                let profile = plimsoll::Profile::new().stage("s", Default::default(), Default::default());
                let mut job = ledger.submit(plimsoll::JobSpec::new("job", profile).needs(&key)).unwrap();
                // Asks, and does not look at what has fallen to it.
                let _ = job.poll_enter(&mut Context::from_waker(Waker::noop()), 0);
            }
        });
        uses(&key, &census);
        gives_up.join().unwrap();
        drop(key);
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn eviction_leaves_what_is_pinned_and_wakes_who_waits_for_the_room() {
    check(|| {
        let (ledger, key, census) = world();
        uses(&key, &census);
        let needs_room = thread::spawn({
            let (ledger, census) = (ledger.clone(), census.clone());
            move || {
                let scratch = ledger.reserve(SCRATCH, Bytes(9)).wait().unwrap();
                assert_eq!(census.there(), 0, "its room was granted, so it is gone");
                drop(scratch);
            }
        });
        uses(&key, &census);
        needs_room.join().unwrap();
        drop(key);
        assert!(ledger.snapshot().is_empty());
        assert_eq!(census.there(), 0);
    });
}

#[test]
fn a_release_wakes_who_waits_for_the_room_to_load() {
    check(|| {
        let (ledger, key, census) = world();
        let held = ledger.reserve(SCRATCH, Bytes(5)).try_now().unwrap();
        let waits = thread::spawn({
            let (key, census) = (key.clone(), census.clone());
            move || uses(&key, &census)
        });
        drop(held);
        waits.join().unwrap();
        drop(key);
        assert!(ledger.snapshot().is_empty());
    });
}
