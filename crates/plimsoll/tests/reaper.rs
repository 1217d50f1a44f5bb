//! Buffers that are freed where nobody waits for it.
#![expect(clippy::disallowed_methods, reason = "tests use plain threads")]
#![expect(clippy::disallowed_types, reason = "tests use plain locks")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll::{Budget, Bytes, Charged, Class, Ledger, Reservation, Space};

const A: Class = Class::new("a", Space::HOST);
const D: Class = Class::new("d", Space::device(0));
const ENOUGH: Duration = Duration::from_secs(60);

fn ledger() -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(10)).space(Space::device(0), Bytes(10)))
}

/// Memory that is being freed for as long as somebody likes. Says when it begins.
struct Slow {
    begins: Sender<&'static str>,
    ends: Receiver<()>,
    name: &'static str,
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.begins.send(self.name).unwrap();
        self.ends.recv().unwrap();
    }
}

/// A slow value with the bytes that pay for it, freed first.
struct Paid(#[expect(dead_code, reason = "for its destructor")] Slow, Reservation);

fn slow(ledger: &Ledger, class: Class, begins: &Sender<&'static str>, name: &'static str) -> (Paid, Sender<()>) {
    let (end, ends) = channel();
    let held = ledger.reserve(class, Bytes(3)).name(name).try_now().unwrap();
    (Paid(Slow { begins: begins.clone(), ends, name }, held), end)
}

fn reap(ledger: &Ledger, paid: Paid) {
    ledger.reaper().free_in(paid.1.class().space(), paid.1.bytes(), paid);
}

#[test]
fn bytes_are_charged_until_the_memory_is_gone() {
    let ledger = ledger();
    let (begins, begun) = channel();
    let (paid, end) = slow(&ledger, A, &begins, "first");
    reap(&ledger, paid);
    assert_eq!(begun.recv(), Ok("first"));
    let snapshot = ledger.snapshot();
    assert_eq!(snapshot.space(Space::HOST).unwrap().held, Bytes(3), "it is not gone yet");
    assert_eq!((snapshot.reaping[0].count, snapshot.reaping[0].bytes), (1, Bytes(3)));
    assert!(ledger.reserve(A, Bytes(8)).try_now().is_err());
    end.send(()).unwrap();
    drop(ledger.reserve(A, Bytes(8)).wait().unwrap());
    ledger.quiesce(ENOUGH).unwrap();
    let snapshot = ledger.snapshot();
    assert!(snapshot.is_empty() && snapshot.reaping.is_empty());
    assert_eq!(snapshot.reaped, 1);
}

#[test]
fn one_at_a_time_in_each_space_and_spaces_beside_each_other() {
    let ledger = ledger();
    let (begins, begun) = channel();
    let (first, end_first) = slow(&ledger, A, &begins, "first");
    let (second, end_second) = slow(&ledger, A, &begins, "second");
    let (device, end_device) = slow(&ledger, D, &begins, "device");
    reap(&ledger, first);
    assert_eq!(begun.recv(), Ok("first"));
    reap(&ledger, second);
    reap(&ledger, device);
    // Had the second one been begun beside the first, it would be first here, or the next one below.
    assert_eq!(begun.recv(), Ok("device"));
    assert!(begun.try_recv().is_err());
    let counts: Vec<_> = ledger.snapshot().reaping.iter().map(|reaping| (reaping.space, reaping.count)).collect();
    assert_eq!(counts, [(Space::HOST, 2), (Space::device(0), 1)]);
    end_first.send(()).unwrap();
    assert_eq!(begun.recv(), Ok("second"));
    end_second.send(()).unwrap();
    end_device.send(()).unwrap();
    ledger.quiesce(ENOUGH).unwrap();
    assert_eq!(ledger.snapshot().reaped, 3);
}

#[test]
fn the_ledger_is_not_quiet_before_everything_is_gone() {
    let ledger = ledger();
    let (begins, begun) = channel();
    let (end, ends) = channel();
    // Retained bytes alone do not keep a ledger from being quiet: a key may live as long as the process.
    let held = ledger.reserve(A, Bytes(3)).retained().try_now().unwrap();
    reap(&ledger, Paid(Slow { begins, ends, name: "key" }, held));
    assert_eq!(begun.recv(), Ok("key"));
    assert!(ledger.quiesce(Duration::ZERO).is_err());
    let waits = std::thread::spawn({
        let ledger = ledger.clone();
        move || ledger.quiesce(ENOUGH).map(|()| ledger.snapshot().is_empty())
    });
    end.send(()).unwrap();
    assert!(waits.join().unwrap().unwrap());
}

#[test]
fn a_destructor_that_panics_harms_nobody() {
    struct Worse;
    impl Drop for Worse {
        fn drop(&mut self) {
            panic!("and its panic panics");
        }
    }
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            std::panic::panic_any(Worse);
        }
    }
    let ledger = ledger();
    let charged = |ledger: &Ledger| {
        let reservation = ledger.reserve(A, Bytes(2)).try_now().unwrap();
        let mut buffer: Charged<Vec<u8>> = Charged::with_capacity(reservation, 2).unwrap();
        buffer.push(1).unwrap();
        buffer
    };
    let held = ledger.reserve(A, Bytes(3)).try_now().unwrap();
    ledger.reaper().free_in(Space::HOST, Bytes(3), (Bad, held));
    ledger.reaper().free(charged(&ledger));
    ledger.quiesce(ENOUGH).unwrap();
    let snapshot = ledger.snapshot();
    assert!(snapshot.is_empty(), "what a panic leaves is dropped as well");
    assert_eq!((snapshot.reaped, snapshot.reap_panics), (2, 1));
}

#[test]
fn what_is_dropped_may_hand_over_more_and_wait_for_nobody() {
    struct Parent(Ledger, Arc<Mutex<Vec<Reservation>>>, Arc<AtomicUsize>);
    impl Drop for Parent {
        fn drop(&mut self) {
            for child in self.1.lock().unwrap().drain(..) {
                self.0.reaper().free(child);
                self.2.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    let ledger = ledger();
    let children: Vec<_> = (0..5).map(|_| ledger.reserve(A, Bytes(2)).try_now().unwrap()).collect();
    let handed = Arc::new(AtomicUsize::new(0));
    let parent = Parent(ledger.clone(), Arc::new(Mutex::new(children)), handed.clone());
    ledger.reaper().free_in(Space::HOST, Bytes::ZERO, parent);
    ledger.quiesce(ENOUGH).unwrap();
    assert_eq!((handed.load(Ordering::Relaxed), ledger.snapshot().reaped), (5, 6));
    assert!(ledger.snapshot().is_empty());
}
