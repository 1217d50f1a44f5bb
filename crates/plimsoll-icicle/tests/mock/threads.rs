//! One thread a device; buffers that remember it; calls beside each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use blstrs::{G1Affine, Scalar};
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use plimsoll::{Budget, Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::{Backend, BackendError, CurveGroup, Transform};
use plimsoll_groth16::domain::Domain;
use plimsoll_icicle::device::{MsmCall, Sum};
use plimsoll_icicle::error::Fault;
use plimsoll_icicle::{Icicle, Options};

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
    // One device's thread waits for nobody; what is allocated there from now on comes after it.
    drop(other.owner().allocate(8));
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

/// A pointer to it would be one into another device's memory, which on the processor is a segmentation fault.
#[test]
fn memory_of_another_device_is_refused() {
    let mock = Mock::new();
    mock.set("devices", 2);
    let (one, other) = (mock.icicle(256 * MIB), mock.device("MOCK:1").expect("well"));
    let other = other.alone(Some(Bytes(256 * MIB))).expect("room");
    let (here, there) = (one.owner().allocate(96 * 2).expect("room"), other.owner().allocate(96 * 2).expect("room"));
    let domain = Domain::with_log_size(3).expect("small");
    one.ntt(&domain, &mut [Scalar::from(1); 8], Transform::Forward, &mut scratch()).expect("room");
    let (mut bytes, mut sum, mut second) = ([7_u8; 32], Sum::new(), Sum::new());
    let (given, group) = ([1_u8; 32], CurveGroup::G1);
    let refused = one.owner().call("try", |scope| {
        let (ours, theirs) = (here.part(0, 32), there.part(0, 32));
        let call =
            |scalars, points, sum| MsmCall { group, scalars, points, window: 2, threads: 0, scratch_bytes: 0, sum };
        Ok([
            scope.copy_in(&given, theirs),
            scope.copy_out(theirs, &mut bytes),
            scope.erase(theirs),
            scope.ntt(theirs, false, None),
            scope.multiply(theirs, ours, ours),
            scope.multiply(ours, theirs, ours),
            scope.subtract(ours, ours, theirs),
            scope.scale(theirs, ours),
            scope.scale(ours, theirs),
            scope.points_to_standard(group, there.part(0, 96)),
            scope.msm(call(theirs, here.part(0, 96), &mut sum)),
            scope.msm(call(ours, there.part(0, 96), &mut second)),
        ])
    });
    for (index, outcome) in refused.expect("the call itself goes on").into_iter().enumerate() {
        let error = outcome.expect_err("another device's memory");
        assert!(matches!(error.fault, Fault::Refused { why } if why.contains("another device")), "{index}: {error}");
    }
    assert_eq!(bytes, [7; 32]);
    mock.assert_used_well();
}

/// ICICLE reads and writes its own types there.
#[test]
fn values_lie_where_icicles_own_would() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    let memory = icicle.owner().allocate(1024).expect("room");
    let group = CurveGroup::G1;
    let mut sum = Sum::new();
    let outcomes = icicle.owner().call("try", |scope| {
        let (good, bad) = (memory.part(512, 32), memory.part(4, 32));
        let points = memory.part(1, 96);
        Ok([
            scope.multiply(bad, good, good),
            scope.subtract(good, bad, good),
            scope.scale(good, bad),
            scope.points_to_standard(group, points),
            scope.msm(MsmCall {
                group,
                scalars: bad,
                points: memory.part(96, 96),
                window: 2,
                threads: 0,
                scratch_bytes: 0,
                sum: &mut sum,
            }),
        ])
    });
    for outcome in outcomes.expect("the call itself goes on") {
        let error = outcome.expect_err("somewhere in between");
        assert!(matches!(error.fault, Fault::Refused { why } if why.contains("16 bytes")), "{error}");
    }
    let sums = [Sum::new(), Sum::new()];
    assert!(sums.iter().all(|sum| sum.bytes(CurveGroup::G2).as_ptr().addr().is_multiple_of(16)));
    mock.assert_used_well();
}

/// Each of two devices' threads lets go of the other one's memory at the same time.
#[test]
fn the_threads_of_devices_do_not_wait_for_each_other() {
    let mock = Mock::new();
    mock.set("devices", 2);
    let (one, other) = (mock.icicle(256 * MIB), mock.device("MOCK:1").expect("well"));
    let other = other.alone(Some(Bytes(256 * MIB))).expect("room");
    let memory_of = |icicle: &Icicle| icicle.owner().allocate(1000).expect("room");
    let (ours, theirs) = (memory_of(&one), memory_of(&other));
    let both = Barrier::new(2);
    thread::scope(|scope| {
        for (icicle, memory) in [(&one, theirs), (&other, ours)] {
            let both = &both;
            scope.spawn(move || {
                let dropped = icicle.owner().call("drop", move |_| {
                    both.wait();
                    drop(memory);
                    Ok(())
                });
                dropped.expect("it goes on");
            });
        }
    });
    multiply(&one, 1);
    multiply(&other, 2);
    drop((one, other));
    mock.assert_used_well();
    mock.assert_empty();
}

/// What it would begin nobody could wait for, and its vectors would be gone before.
#[test]
fn what_waits_in_the_queue_of_a_lost_device_is_not_begun() {
    let mock = Mock::new();
    let options = Options { streams: 1, ..mock.options() };
    let device = plimsoll_icicle::Device::open(Some(&"MOCK".parse().expect("a name")), &options).expect("well");
    let icicle = device.alone(Some(Bytes(256 * MIB))).expect("room");
    let owner = icicle.owner();
    let before = owner.handed_over();
    let began = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let lost = owner.call("first", |_| {
                // Until the second is in the queue, behind this one's only stream.
                while owner.handed_over() < before + 2 {
                    thread::yield_now();
                }
                mock.set("broken", 1);
                Ok(())
            });
            lost.expect_err("it never says that it is done");
        });
        scope.spawn(|| {
            while owner.handed_over() < before + 1 {
                thread::yield_now();
            }
            let second = owner.call("second", |_| {
                began.store(true, Ordering::Relaxed);
                Ok(())
            });
            let error = second.expect_err("the device is gone");
            assert!(matches!(error.fault, Fault::Lost { .. }), "{error}");
        });
    });
    assert!(!began.load(Ordering::Relaxed));
}

/// Streams that fail twice, on a device that says that it is done with everything.
#[test]
fn a_device_that_is_done_is_not_lost_with_a_stream() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    mock.set("broken", 2);
    let error = icicle.owner().call("nothing", |_| Ok(())).expect_err("its stream is broken");
    assert!(matches!(error.fault, Fault::Unfinished { code: 7 }), "{error}");
    assert_eq!(icicle.owner().lost(), None);
    mock.set("broken", 0);
    multiply(&icicle, 1);
    let lost = matches!(icicle.msm_g1(&[], &[], &mut scratch()), Err(BackendError::DeviceLost { .. }));
    assert!(!lost);
}
