//! loom models of the ledger's shell, as it ships: who waits is woken, whoever gives up leaves nothing behind.
#![cfg(plimsoll_loom)]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use loom_tests::check;
use plimsoll::ledger::ReserveError;
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Reservation, Space};

const A: Class = Class::new("a", Space::HOST);

fn ledger(bytes: u64) -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(bytes)))
}

fn hold(ledger: &Ledger, bytes: u64) -> Reservation {
    ledger.reserve(A, Bytes(bytes)).try_now().expect("there is room")
}

/// A waker that a thread can sleep on.
struct Alarm {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Alarm {
    fn new() -> std::sync::Arc<Alarm> {
        std::sync::Arc::new(Alarm { rung: Mutex::new(false), bell: Condvar::new() })
    }

    fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.bell.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Wake for Alarm {
    fn wake(self: std::sync::Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.bell.notify_one();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let alarm = Alarm::new();
    let waker = Waker::from(alarm.clone());
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => alarm.sleep(),
        }
    }
}

#[test]
fn a_release_wakes_a_waiting_thread() {
    check(|| {
        let ledger = ledger(1);
        let held = hold(&ledger, 1);
        let waiter = thread::spawn({
            let ledger = ledger.clone();
            move || drop(ledger.reserve(A, Bytes(1)).wait().unwrap())
        });
        drop(held);
        waiter.join().unwrap();
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn a_release_wakes_a_waiting_task() {
    check(|| {
        let ledger = ledger(1);
        let held = hold(&ledger, 1);
        let waiter = thread::spawn({
            let ledger = ledger.clone();
            move || drop(block_on(ledger.reserve(A, Bytes(1))).unwrap())
        });
        drop(held);
        waiter.join().unwrap();
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn one_release_wakes_all_whom_it_serves() {
    check(|| {
        let ledger = ledger(2);
        let held = hold(&ledger, 2);
        let wait = |ledger: Ledger| move || drop(ledger.reserve(A, Bytes(1)).wait().unwrap());
        let waiters = [thread::spawn(wait(ledger.clone())), thread::spawn(wait(ledger.clone()))];
        drop(held);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn a_task_that_moved_is_woken_where_it_is_now() {
    check(|| {
        let ledger = ledger(1);
        let held = hold(&ledger, 1);
        let waiter = thread::spawn({
            let ledger = ledger.clone();
            move || {
                let mut future = pin!(ledger.reserve(A, Bytes(1)));
                let elsewhere = Waker::from(Alarm::new());
                if future.as_mut().poll(&mut Context::from_waker(&elsewhere)).is_pending() {
                    drop(block_on(future).unwrap());
                }
            }
        });
        drop(held);
        waiter.join().unwrap();
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn a_grant_that_finds_nobody_serves_the_next() {
    check(|| {
        let ledger = ledger(1);
        let held = hold(&ledger, 1);
        let gives_up = thread::spawn({
            let ledger = ledger.clone();
            move || {
                let mut future = Box::pin(ledger.reserve(A, Bytes(1)));
                let alarm = Waker::from(Alarm::new());
                let _ = future.as_mut().poll(&mut Context::from_waker(&alarm));
            }
        });
        let waits = thread::spawn({
            let ledger = ledger.clone();
            move || drop(ledger.reserve(A, Bytes(1)).wait().unwrap())
        });
        drop(held);
        gives_up.join().unwrap();
        waits.join().unwrap();
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn closing_ends_every_wait() {
    check(|| {
        let ledger = ledger(1);
        let held = hold(&ledger, 1);
        let waiter = thread::spawn({
            let ledger = ledger.clone();
            move || assert!(matches!(ledger.reserve(A, Bytes(1)).wait(), Err(ReserveError::Closed { .. })))
        });
        ledger.close();
        waiter.join().unwrap();
        drop(held);
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn jobs_that_grow_past_each_other_both_finish() {
    check(|| {
        let ledger = ledger(3);
        let bytes = |n| Demand::new().bytes(A, Bytes(n));
        let profile = Profile::new().stage("s", bytes(1), bytes(1)).stage("t", bytes(3), bytes(0));
        let run = |ledger: Ledger, profile: Profile| {
            move || {
                let mut job = ledger.submit(JobSpec::new("job", profile)).unwrap();
                let mut grant = job.enter(0).wait().unwrap();
                let kept = grant.take_all(A);
                drop(grant);
                let grant = job.enter(1).wait().unwrap();
                drop(kept);
                drop(grant);
            }
        };
        let other = thread::spawn(run(ledger.clone(), profile.clone()));
        run(ledger.clone(), profile)();
        other.join().unwrap();
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn a_job_that_is_dropped_while_it_is_granted_returns_everything() {
    check(|| {
        let ledger = ledger(1);
        let held = hold(&ledger, 1);
        let profile = Profile::new().stage("s", Demand::new().bytes(A, Bytes(1)), Demand::new());
        let mut job = ledger.submit(JobSpec::new("job", profile)).unwrap();
        let gives_up = thread::spawn(move || {
            let alarm = Waker::from(Alarm::new());
            let _ = job.poll_enter(&mut Context::from_waker(&alarm), 0);
            drop(job);
        });
        drop(held);
        gives_up.join().unwrap();
        assert!(ledger.snapshot().is_empty());
    });
}

/// A reservation of one byte that may grow to two, and another that holds what it would grow into.
fn growing(ledger: &Ledger) -> (Reservation, Reservation) {
    let growing = ledger.reserve(A, Bytes(1)).max(Bytes(2)).try_now().expect("there is room");
    (growing, hold(ledger, 1))
}

#[test]
fn a_release_wakes_a_growth() {
    check(|| {
        let ledger = ledger(2);
        let (mut growing, held) = growing(&ledger);
        let grower = thread::spawn(move || {
            block_on(growing.grow_async(Bytes(1))).unwrap();
            assert_eq!(growing.bytes(), Bytes(2));
        });
        drop(held);
        grower.join().unwrap();
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn a_growth_that_is_given_up_while_it_is_granted_returns_its_bytes() {
    check(|| {
        let ledger = ledger(2);
        let (mut growing, held) = growing(&ledger);
        let grower = thread::spawn({
            let ledger = ledger.clone();
            move || {
                // Dropped at the end of this line: before, while or after the other thread's return serves it.
                let grown = pin!(growing.grow_async(Bytes(1))).poll(&mut Context::from_waker(Waker::noop())).is_ready();
                assert_eq!(growing.bytes(), Bytes(if grown { 2 } else { 1 }));
                // What it was granted while it was given up is there for others.
                let rest = ledger.reserve(A, Bytes(if grown { 0 } else { 1 })).wait().unwrap();
                drop((growing, rest));
            }
        });
        drop(held);
        grower.join().unwrap();
        assert!(ledger.snapshot().is_empty());
    });
}

#[test]
fn quiescence_is_noticed() {
    check(|| {
        let ledger = ledger(1);
        let held = hold(&ledger, 1);
        let waiter = thread::spawn({
            let ledger = ledger.clone();
            move || ledger.quiesce(Duration::MAX).unwrap()
        });
        drop(held);
        waiter.join().unwrap();
    });
}
