//! One thread a device; buffers that remember it; calls beside each other.

use std::sync::Arc;
use std::thread;

use blstrs::{G1Affine, Scalar};
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use plimsoll::{Budget, Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::Backend;
use plimsoll_icicle::Icicle;

use crate::support::Mock;

const MIB: u64 = 1 << 20;

fn scratch() -> Reservation {
    Ledger::unlimited().reserve(Class::new("scratch", Space::HOST), Bytes(1)).wait().expect("unlimited")
}

fn multiply(icicle: &Icicle, seed: u64) {
    let scalars: Vec<Scalar> = (0..9).map(|n| Scalar::from(seed * 31 + n)).collect();
    let bases: Vec<G1Affine> = (0..9).map(|n| (G1Affine::generator() * Scalar::from(n + 1)).to_affine()).collect();
    let log: Scalar = scalars.iter().zip(1..).map(|(scalar, n)| scalar * Scalar::from(n)).sum();
    let sum = icicle.msm_g1(&bases, &scalars, &mut scratch()).expect("room");
    assert_eq!(sum, G1Affine::generator() * log);
    assert!(!bool::from(sum.is_identity()));
}

#[test]
fn whoever_calls_one_thread_makes_all_calls_for_a_device() {
    let mock = Mock::new();
    let icicle = mock.icicle(512 * MIB);
    thread::scope(|scope| {
        for seed in 0..6 {
            let icicle = &icicle;
            scope.spawn(move || multiply(icicle, seed + 1));
        }
    });
    assert_eq!(mock.get("threads"), 1);
    mock.assert_used_well();
    drop(icicle);
    mock.assert_empty();
}

#[test]
fn two_devices_have_two_threads_and_one_ledger_keeps_both() {
    let mock = Mock::new();
    mock.set("devices", 2);
    let ledger = Ledger::new(Budget::new().device(0, Bytes(512 * MIB), 2).device(1, Bytes(512 * MIB), 2));
    let open = |name, number| mock.device(name).expect("well").under(number, &ledger).expect("room");
    let devices = [open("MOCK:0", 0), open("MOCK:1", 1)];
    thread::scope(|scope| {
        for seed in 0..6 {
            let icicle = &devices[seed as usize % 2];
            scope.spawn(move || multiply(icicle, seed + 1));
        }
    });
    assert_eq!(mock.get("threads"), 2);
    let snapshot = ledger.snapshot();
    for number in 0..2 {
        let peak = snapshot.space(Space::device(number)).expect("it is budgeted").peak;
        assert!(peak > Bytes(64 * MIB), "device {number}: {peak}");
    }
    mock.assert_used_well();
    drop(devices);
    mock.assert_empty();
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn memory_is_freed_on_its_device_by_whoever_drops_it() {
    let mock = Mock::new();
    mock.set("devices", 2);
    let (one, other) = (mock.device("MOCK:0").expect("well"), mock.device("MOCK:1").expect("well"));
    let (one, other) = (one.alone(Some(Bytes(256 * MIB))), other.alone(Some(Bytes(256 * MIB))));
    let (one, other) = (one.expect("room"), other.expect("room"));
    let here = one.owner().allocate(1000).expect("room");
    let there = other.owner().allocate(2000).expect("room");
    assert_eq!((mock.get("used:0"), mock.get("used:1")), (1000, 2000));
    // On a thread of neither, and in a call of the other one.
    thread::scope(|scope| {
        scope.spawn(move || drop(here));
    });
    assert_eq!(mock.get("used:0"), 0);
    one.owner()
        .call("drop", move |_| {
            drop(there);
            Ok(())
        })
        .expect("it goes on");
    assert_eq!(mock.get("used:1"), 0);
    assert_eq!(mock.get("switched"), 0);
    // Neither thread is on another device now.
    multiply(&one, 1);
    multiply(&other, 2);
    mock.assert_used_well();
}

#[test]
fn calls_are_under_way_beside_each_other_on_streams_of_their_own() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    let owner = icicle.owner();
    let memory = owner.allocate(64).expect("room");
    let (left, right) = ([1_u8; 32], [2_u8; 32]);
    let before = owner.handed_over();
    thread::scope(|scope| {
        scope.spawn(|| {
            owner.call("first", |scope| {
                scope.copy_in(&left, memory.part(0, 32))?;
                // Until the second is in the queue.
                while owner.handed_over() < before + 2 {
                    thread::yield_now();
                }
                Ok(())
            })
        });
        scope.spawn(|| {
            while owner.handed_over() < before + 1 {
                thread::yield_now();
            }
            owner.call("second", |scope| scope.copy_in(&right, memory.part(32, 32)))
        });
    });
    assert!(owner.under_way_peak() >= 2, "{}", owner.under_way_peak());
    let mut both = [0_u8; 64];
    owner.call("look", |scope| scope.copy_out(memory.all(), &mut both)).expect("it is there");
    assert_eq!(both, <[u8; 64]>::try_from([left, right].concat()).expect("64"));
    mock.assert_used_well();
}

#[test]
fn a_panic_in_a_call_reaches_its_caller_and_the_device_goes_on() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    let owner: &Arc<_> = icicle.owner();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        owner.call("panic", |_| -> Result<(), _> { panic!("on purpose") })
    }));
    let panic = panicked.expect_err("it panicked");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    multiply(&icicle, 3);
}
