//! Several devices as one backend.

use std::sync::Barrier;
use std::thread;

use blstrs::{G1Affine, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::{Backend, BackendError, Cpu, CurveGroup, Transform, conformance};
use plimsoll_groth16::domain::Domain;
use plimsoll_groth16::prover::{Blinding, Prover};
use plimsoll_icicle::{Device, Devices, Icicle, Which};

use crate::proofs::{Squares, prover_with};
use crate::support::Mock;

const MIB: u64 = 1 << 20;

fn scratch() -> Reservation {
    Ledger::unlimited().reserve(Class::new("scratch", Space::HOST), Bytes(MIB)).wait().expect("unlimited")
}

/// So many devices with so much memory each.
fn devices(mock: &Mock, count: i64, memory: u64) -> Devices {
    mock.set("devices", count);
    let all = Device::open_all(&Which::First, &mock.options()).expect("they compute rightly");
    Devices::alone(all, Some(Bytes(memory))).expect("room for what checking takes")
}

fn calls(devices: &Devices) -> Vec<u64> {
    devices.each().map(|icicle| icicle.learned().calls).collect()
}

fn resident(icicle: &Icicle) -> u64 {
    let class = Class::new("device.points", Space::device(icicle.number()));
    icicle.ledger().snapshot().class(class).map_or(0, |usage| usage.totals.held)
}

fn multiply(backend: &dyn Backend, seed: u64) -> Result<(), BackendError> {
    let scalars: Vec<Scalar> = (0..9).map(|n| Scalar::from(seed * 31 + n)).collect();
    let bases: Vec<G1Affine> = (0..9).map(|n| (G1Affine::generator() * Scalar::from(n + 1)).to_affine()).collect();
    let log: Scalar = scalars.iter().zip(1..).map(|(scalar, n)| scalar * Scalar::from(n)).sum();
    let sum = backend.msm_g1(&bases, &scalars, &mut scratch())?;
    assert_eq!(sum, G1Affine::generator() * log);
    assert!(!bool::from(sum.is_identity()));
    Ok(())
}

fn prove(prover: &Prover, x: u64) {
    let ledger = Ledger::new(plimsoll::Budget::new().space(Space::HOST, Bytes(64 * MIB)));
    prover.prove(&ledger, Squares::of(x), Blinding::from_os()).expect("a proof that verifies");
}

#[test]
fn several_devices_conform_as_one() {
    let mock = Mock::new();
    let devices = devices(&mock, 2, 256 * MIB);
    conformance::check(&devices, 0..=4);
    conformance::check_msm(&devices, CurveGroup::G2, 300);
    assert!(devices.wants_verification());
    mock.assert_used_well();
    drop(devices);
    mock.assert_empty();
}

/// One operation at a time goes where the points are, and there alone.
#[test]
fn one_proof_at_a_time_is_made_where_its_key_is() {
    let mock = Mock::new();
    let devices = devices(&mock, 3, 256 * MIB);
    let prover = prover_with(&devices);
    for x in 2..5 {
        prove(&prover, x);
    }
    assert_eq!(calls(&devices)[1..], [0, 0]);
    assert_eq!(devices.each().map(resident).filter(|bytes| *bytes > 0).count(), 1);
    mock.assert_used_well();
}

/// The first of them is busy, and has the points: the next multiplication is made on another one.
#[test]
fn several_at_once_are_made_on_several_devices() {
    let mock = Mock::new();
    let devices = devices(&mock, 3, 256 * MIB);
    let prover = prover_with(&devices);
    prove(&prover, 2);
    assert_eq!(calls(&devices)[1..], [0, 0]);
    let (at_work, goes_on) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let first = devices.each().next().expect("there are three");
        let before = first.owner().handed_over();
        scope.spawn(|| {
            let gate = first.owner().call("gate", |_| {
                at_work.wait();
                goes_on.wait();
                Ok(())
            });
            gate.expect("it goes on");
        });
        at_work.wait();
        // It waits at the first device, and the rest goes elsewhere.
        let waits = scope.spawn(|| multiply(&devices, 1));
        while first.owner().handed_over() < before + 2 {
            thread::yield_now();
        }
        (2..6).for_each(|x| prove(&prover, x));
        assert!(!waits.is_finished());
        goes_on.wait();
        waits.join().expect("no panic").expect("room");
    });
    assert!(calls(&devices)[1] > 0 && calls(&devices)[2] == 0, "{:?}", calls(&devices));
    assert_eq!(devices.each().map(resident).filter(|bytes| *bytes > 0).count(), 2);
    // Each frees what is on it.
    assert_eq!(mock.get("switched"), 0);
    mock.assert_used_well();
    drop((prover, devices));
    mock.assert_empty();
}

#[test]
fn proofs_at_once_on_devices_with_little_memory_are_never_out_of_it() {
    let mock = Mock::new();
    mock.set("silent", 1).set("memory", 3 * MIB as i64);
    let devices = devices(&mock, 2, 3 * MIB);
    let prover = prover_with(&devices);
    thread::scope(|scope| {
        for x in 2..8 {
            let prover = &prover;
            scope.spawn(move || prove(prover, x));
        }
    });
    assert!(devices.each().all(|icicle| icicle.learned().out_of_memory == 0));
    assert!(devices.each().all(|icicle| icicle.learned().calls > 0), "{:?}", calls(&devices));
    assert!(mock.get("peak") <= 3 * MIB as i64);
    mock.assert_used_well();
    drop((prover, devices));
    mock.assert_empty();
}

#[test]
fn a_device_that_is_lost_leaves_its_work_to_the_others() {
    let mock = Mock::new();
    let devices = devices(&mock, 2, 256 * MIB);
    let prover = prover_with(&devices);
    prove(&prover, 2);
    assert_eq!(devices.remarks(), None);
    mock.set("broken:0", 1);
    // The first operation of a proof finds out, and is made again on the other.
    prove(&prover, 3);
    let [first, second] = [0, 1].map(|index| devices.each().nth(index).expect("two"));
    assert!(first.owner().lost().is_some() && second.owner().lost().is_none());
    for (icicle, gone) in [(first, true), (second, false)] {
        let snapshot = icicle.ledger().snapshot();
        assert_eq!(snapshot.space(Space::device(icicle.number())).expect("budgeted").retired.is_some(), gone);
    }
    let remarks = devices.remarks().expect("it is told");
    assert!(remarks.starts_with("MOCK:0: was given up: "), "{remarks}");
    let before = first.owner().handed_over();
    thread::scope(|scope| {
        for x in 4..8 {
            let prover = &prover;
            scope.spawn(move || prove(prover, x));
        }
    });
    assert_eq!(first.owner().handed_over(), before, "nothing goes there any more");
    // All of them: that is an error, of the right kind.
    mock.set("broken:1", 1);
    for _ in 0..2 {
        let error = multiply(&devices, 1).expect_err("none is left");
        assert!(matches!(error, BackendError::DeviceLost { .. }), "{error}");
    }
    mock.assert_used_well();
}

/// The device is lost when its result may be in the caller's vector: what is in there is not transformed again.
#[test]
fn what_may_have_been_written_is_not_made_again_elsewhere() {
    for nth in 1..=8 {
        let mock = Mock::new();
        let devices = devices(&mock, 2, 256 * MIB);
        let domain = Domain::with_log_size(3).expect("small");
        let vector = || -> Vec<Scalar> { (0..8).map(Scalar::from).collect() };
        let (mut data, mut expected) = (vector(), vector());
        devices.ntt(&domain, &mut vector(), Transform::Forward, &mut scratch()).expect("room");
        Cpu::new().ntt(&domain, &mut expected, Transform::Forward, &mut scratch()).expect("room");
        // From the synchronisation of this number on it does not answer.
        mock.set("breaks_at", mock.get("calls:synchronize") + nth).set("breaks", 0);
        let mut transform = || {
            data = vector();
            match devices.ntt(&domain, &mut data, Transform::Forward, &mut scratch()) {
                Ok(()) => assert_eq!(data, expected, "synchronisation {nth}"),
                Err(error) => assert!(matches!(error, BackendError::DeviceLost { .. }), "{error}"),
            }
        };
        // The second finds out where the first did not.
        transform();
        transform();
        assert!(devices.each().next().is_some_and(|first| first.owner().lost().is_some()));
        devices.ntt(&domain, &mut vector(), Transform::Forward, &mut scratch()).expect("the other one");
    }
}

/// The first has too little memory for it, the second has not.
#[test]
fn what_has_no_room_on_one_device_is_made_on_another() {
    let mock = Mock::new();
    mock.set("silent", 1).set("devices", 2);
    let alone = |name, memory| mock.device(name).expect("well").alone(Some(Bytes(memory))).expect("room");
    let devices = Devices::new([alone("MOCK:0", 3 * MIB / 2), alone("MOCK:1", 64 * MIB)]);
    let domain = Domain::with_log_size(15).expect("small");
    let mut data = vec![Scalar::ZERO; 1 << 15];
    data[0] = Scalar::from(3);
    devices.ntt(&domain, &mut data, Transform::Forward, &mut scratch()).expect("room on the second");
    // A constant has that value everywhere.
    assert!(data.iter().all(|value| *value == Scalar::from(3)));
    mock.assert_used_well();
}

/// Proofs on all devices at once: one call of one device's fails. Whatever is made of that, the others' proofs are none the worse.
#[test]
fn a_fault_on_one_device_leaves_the_work_of_the_others_alone() {
    for (code, lost_proofs) in [(2, 0), (4, 0), (99, 1)] {
        let mock = Mock::new();
        let devices = devices(&mock, 3, 256 * MIB);
        let prover = prover_with(&devices);
        prove(&prover, 2);
        mock.fail("msm", 5, code);
        let failed: usize = thread::scope(|scope| {
            let threads: Vec<_> = (3..9)
                .map(|x| {
                    let prover = &prover;
                    let ledger = Ledger::new(plimsoll::Budget::new().space(Space::HOST, Bytes(64 * MIB)));
                    scope.spawn(move || prover.prove(&ledger, Squares::of(x), Blinding::from_os()).is_err())
                })
                .collect();
            threads.into_iter().map(|thread| usize::from(thread.join().expect("no panic"))).sum()
        });
        assert!(failed <= lost_proofs, "code {code}: {failed} proofs");
        let learned: Vec<_> = devices.each().map(Icicle::learned).collect();
        let out_of_memory: u64 = learned.iter().map(|learned| learned.out_of_memory).sum();
        assert_eq!(out_of_memory, u64::from(code != 99), "one device has looked at itself: {learned:?}");
        assert!(learned.iter().all(|learned| learned.leaked_bytes == 0 && learned.calls > 0), "{learned:?}");
        assert!(devices.each().all(|icicle| icicle.owner().lost().is_none() && !icicle.owner().is_doubted()));
        prove(&prover, 9);
        mock.assert_used_well();
        drop((prover, devices));
        mock.assert_empty();
    }
}

/// One of them breaks in the middle of a multiplication. What it had begun to write is an error; all else is made elsewhere.
#[test]
fn a_device_that_breaks_among_proofs_at_once_takes_at_most_its_own_with_it() {
    let mock = Mock::new();
    let devices = devices(&mock, 3, 256 * MIB);
    let prover = prover_with(&devices);
    prove(&prover, 2);
    mock.set("breaks_at_msm", mock.get("calls:msm") + 7);
    let failed: usize = thread::scope(|scope| {
        let threads: Vec<_> = (3..11)
            .map(|x| {
                let prover = &prover;
                let ledger = Ledger::new(plimsoll::Budget::new().space(Space::HOST, Bytes(64 * MIB)));
                scope.spawn(move || prover.prove(&ledger, Squares::of(x), Blinding::from_os()).is_err())
            })
            .collect();
        threads.into_iter().map(|thread| usize::from(thread.join().expect("no panic"))).sum()
    });
    assert_eq!(devices.each().filter(|icicle| icicle.owner().lost().is_some()).count(), 1);
    // Two streams a device: so much can have been under way on it, and have written.
    assert!(failed <= 2, "{failed} proofs");
    for x in 11..14 {
        prove(&prover, x);
    }
    mock.assert_used_well();
}

/// Several devices under one ledger, with little memory each, and proofs at once on all of them.
#[test]
fn devices_of_one_ledger_keep_to_their_own_limits() {
    let mock = Mock::new();
    mock.set("silent", 1).set("devices", 3).set("memory", 3 * MIB as i64);
    let budget = (0..3).fold(plimsoll::Budget::new(), |budget, number| budget.device(number, Bytes(3 * MIB), 2));
    let ledger = Ledger::new(budget);
    let all = Device::open_all(&Which::First, &mock.options()).expect("they compute rightly");
    let under = |(number, device): (u16, Device)| device.under(number, &ledger).expect("room for what checking takes");
    let devices = Devices::new((0..).zip(all).map(under));
    let prover = prover_with(&devices);
    thread::scope(|scope| {
        for x in 2..11 {
            let prover = &prover;
            scope.spawn(move || prove(prover, x));
        }
    });
    let snapshot = ledger.snapshot();
    for number in 0..3 {
        let usage = snapshot.space(Space::device(number)).expect("budgeted");
        let used = mock.get(&format!("peak:{number}")) as u64;
        assert!(used > 0 && used <= usage.peak.0 && usage.peak <= usage.limit, "{number}: {used} of {usage:?}");
    }
    assert!(devices.each().all(|icicle| icicle.learned().out_of_memory == 0 && icicle.learned().calls > 0));
    assert_eq!(mock.get("switched"), 0);
    mock.assert_used_well();
    drop((prover, devices));
    mock.assert_empty();
    assert!(ledger.snapshot().is_empty());
}

/// ICICLE's device for processors beside another one, in the same proofs.
#[test]
fn the_processor_and_a_device_work_beside_each_other() {
    let mock = Mock::new();
    let alone = |name| mock.device(name).expect("well").alone(Some(Bytes(256 * MIB))).expect("room");
    let devices = Devices::new([alone("CPU"), alone("MOCK")]);
    let prover = prover_with(&devices);
    thread::scope(|scope| {
        for x in 2..10 {
            let prover = &prover;
            scope.spawn(move || prove(prover, x));
        }
    });
    assert!(devices.each().all(|icicle| icicle.learned().calls > 0), "{:?}", calls(&devices));
    assert_eq!(mock.get("switched"), 0);
    mock.assert_used_well();
    drop((prover, devices));
    mock.assert_empty();
}

#[test]
fn a_leak_is_booked_on_its_own_device() {
    let mock = Mock::new();
    mock.set("devices", 2).set("leak", 3 * MIB as i64);
    let budget = plimsoll::Budget::new().device(0, Bytes(512 * MIB), 2).device(1, Bytes(512 * MIB), 2);
    let ledger = Ledger::new(budget);
    let open = |name, number| mock.device(name).expect("well").under(number, &ledger).expect("room");
    let (one, other) = (open("MOCK:0", 0), open("MOCK:1", 1));
    multiply(&one, 1).expect("room");
    multiply(&other, 1).expect("room");
    // So much that a call does not fit which is larger than those that check the device.
    mock.set("scratch", 600_000);
    let (bases, scalars) = (vec![G1Affine::generator(); 700], vec![-Scalar::ONE; 700]);
    let outcome = one.msm_g1(&bases, &scalars, &mut scratch());
    assert!(one.learned().out_of_memory > 0, "{outcome:?}");
    mock.set("scratch", 1000);
    let leaked = |number| {
        let class = Class::new("device.leaked", Space::device(number));
        ledger.snapshot().class(class).map_or(0, |usage| usage.totals.held)
    };
    assert!(one.learned().leaked_bytes > 0);
    assert_eq!((leaked(0), leaked(1)), (one.learned().leaked_bytes, 0));
    assert_eq!(other.reconcile().map(|books| (books.leaked_bytes, books.foreign_bytes)), Some((0, 0)));
    multiply(&one, 3).expect("the device is well");
    multiply(&other, 3).expect("so is this one");
    mock.assert_used_well();
}
