//! Faults that leave something behind, and what is made of them. (That each function may fail, at each of its calls, is `sweep`'s.)

use blstrs::{G1Affine, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::{Backend, BackendError, Cpu, Transform};
use plimsoll_groth16::domain::Domain;
use plimsoll_icicle::error::Fault;
use plimsoll_icicle::{IS_SHIELDED, Icicle};

use crate::support::Mock;

const MIB: u64 = 1 << 20;

fn scratch() -> Reservation {
    Ledger::unlimited().reserve(Class::new("scratch", Space::HOST), Bytes(MIB)).wait().expect("unlimited")
}

/// A quotient and a multiplication, compared with the processor's.
fn work(backend: &dyn Backend) -> Result<(Vec<Scalar>, blstrs::G1Projective), BackendError> {
    let domain = Domain::with_log_size(3).expect("small");
    let vector = |seed: u64| -> Vec<Scalar> { (0..8).map(|n| Scalar::from(n * n + seed).square()).collect() };
    let [mut a, mut b, mut c] = [vector(1), vector(2), vector(3)];
    let factor = domain.vanishing_on_coset_inverse();
    backend.quotient_on_coset(&domain, &mut a, &mut b, &mut c, &factor, &mut scratch())?;
    let sum = backend.msm_g1(&[G1Affine::generator(); 8], &a, &mut scratch())?;
    Ok((a, sum))
}

/// Bytes of operations.
fn held(icicle: &Icicle) -> u64 {
    let snapshot = icicle.ledger().snapshot();
    let of = |name| snapshot.class(Class::new(name, Space::device(0))).map_or(0, |usage| usage.totals.held);
    ["device.abc", "device.points", "device.workspace", "device.buckets", "device.margin"].into_iter().map(of).sum()
}

/// A synchronisation fails with the code of an out-of-memory, after the result was written into the caller's vector: making it
/// again would transform it twice.
#[test]
fn what_was_under_way_when_it_failed_is_not_made_again() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    let domain = Domain::with_log_size(3).expect("small");
    let mut data: Vec<Scalar> = (0..8).map(Scalar::from).collect();
    icicle.ntt(&domain, &mut data, Transform::Forward, &mut scratch()).expect("room");
    for nth in 1..=3 {
        for code in [2, 4] {
            let mut data: Vec<Scalar> = (0..8).map(Scalar::from).collect();
            let mut expected = data.clone();
            Cpu::new().ntt(&domain, &mut expected, Transform::Forward, &mut scratch()).expect("room");
            mock.fail("synchronize", nth, code);
            let made = icicle.ntt(&domain, &mut data, Transform::Forward, &mut scratch());
            mock.fail("synchronize", 0, 0);
            match made {
                Ok(()) => assert_eq!(data, expected, "synchronisation {nth} answers {code}"),
                Err(BackendError::DeviceOutOfMemory { .. }) => panic!("nobody knows what was wanting"),
                Err(error) => assert!(error.to_string().contains("under way"), "{error}"),
            }
        }
    }
    mock.assert_used_well();
}

/// Nobody computes between a call that has failed and the known answers.
#[test]
fn a_device_in_doubt_computes_nothing_before_it_was_looked_at() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    let expected = work(&Cpu::new()).expect("enough scratch");
    assert_eq!(work(&icicle).expect("well"), expected);
    let owner = icicle.owner();
    let vector = owner.allocate(64).expect("room");
    let multiply = || {
        let (a, b) = (vector.part(0, 32), vector.part(32, 32));
        owner.call("multiply", |scope| {
            scope.erase(vector.all())?;
            scope.multiply(a, b, a)
        })
    };
    for code in [2, 99, -1] {
        if code < 0 && !IS_SHIELDED {
            continue;
        }
        multiply().expect("well");
        mock.fail("vector", 1, code);
        multiply().expect_err("it fails");
        assert!(owner.is_doubted());
        let before = mock.get("calls:vector");
        let error = multiply().expect_err("in doubt");
        assert_eq!((error.fault, mock.get("calls:vector")), (Fault::Doubted, before));
        // Whoever comes through the ledger looks first, and hears nothing of it.
        assert_eq!(work(&icicle).expect("it was looked at"), expected);
        assert!(!owner.is_doubted());
        multiply().expect("well");
    }
    // What was refused leaves no doubt.
    mock.fail("vector", 1, 11);
    assert_eq!(multiply().expect_err("refused").fault, Fault::InvalidArgument);
    assert!(!owner.is_doubted());
    // By hand, and with a wrong answer.
    mock.fail("vector", 1, 99);
    multiply().expect_err("it fails");
    icicle.look().expect("well");
    multiply().expect("well");
    mock.fail("vector", 1, 99);
    multiply().expect_err("it fails");
    mock.set("wrong_ntt", 1);
    icicle.look().expect_err("wrong");
    assert!(matches!(multiply().expect_err("given up").fault, Fault::Lost { .. }));
    mock.assert_used_well();
}

/// Its scaling is what is used since the device was opened: that another way would do is no answer.
#[test]
fn what_was_right_at_first_must_stay_right() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    work(&icicle).expect("well");
    mock.set("wrong_scale", 1);
    mock.fail("vector", 1, 99);
    let error = work(&icicle).expect_err("it fails, and then computes wrongly");
    assert!(matches!(&error, BackendError::DeviceLost { message, .. } if message.contains("factor")), "{error}");
    // Where it never was right, another way is taken from the beginning.
    let mock = Mock::new();
    mock.set("wrong_scale", 1);
    let icicle = mock.icicle(256 * MIB);
    let expected = work(&Cpu::new()).expect("enough scratch");
    assert_eq!(work(&icicle).expect("as in forks"), expected);
    mock.fail("vector", 1, 99);
    work(&icicle).expect_err("it fails");
    assert_eq!(work(&icicle).expect("it was looked at"), expected);
}

/// An allocation that is refused leaves nothing behind. What threw, or said something that nobody knows, may have.
#[test]
fn an_allocation_that_fails_otherwise_than_for_want_of_memory_leaves_doubt() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    let owner = icicle.owner();
    for (code, doubted) in [(2, false), (4, false), (11, false), (99, true), (-1, true)] {
        if code < 0 && !IS_SHIELDED {
            continue;
        }
        mock.fail("malloc", 1, code);
        owner.allocate(32).expect_err("it fails");
        assert_eq!(owner.is_doubted(), doubted, "code {code}");
        icicle.look().expect("well");
    }
}

/// The bytes of a domain that ICICLE would not let go of stay booked, and no other one is made over it.
#[test]
fn a_domain_that_would_not_go_is_there_and_paid_for() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    let transform = |log_size: u32| {
        let domain = Domain::with_log_size(log_size).expect("small");
        icicle.ntt(&domain, &mut vec![Scalar::ONE; 1 << log_size], Transform::Forward, &mut scratch())
    };
    let booked = || {
        let class = Class::new("device.domain", Space::device(0));
        icicle.ledger().snapshot().class(class).map_or(0, |usage| usage.totals.held)
    };
    transform(4).expect("room");
    let before = booked();
    mock.fail("release_domain", 1, 99);
    transform(8).expect_err("the old one is in the way");
    assert_eq!((booked(), icicle.owner().domain()), (before, Some(4)));
    transform(8).expect("it goes at last");
    assert_eq!(icicle.owner().domain(), Some(8));
    mock.assert_used_well();
}

/// ICICLE keeps what it has of a domain that it did not make to its end, says what went wrong until all of it was let go, and would
/// make no other over it.
#[test]
fn a_domain_that_was_not_made_is_released_until_it_is_gone() {
    for times in [1, 2, 5] {
        let mock = Mock::new();
        mock.set("half_domain", times);
        let icicle = mock.icicle(512 * MIB);
        let transform = |log_size: u32| {
            let domain = Domain::with_log_size(log_size).expect("small");
            let mut data = vec![Scalar::ZERO; 1 << log_size];
            data[0] = Scalar::from(7);
            icicle.ntt(&domain, &mut data, Transform::Forward, &mut scratch())?;
            assert!(data.iter().all(|value| *value == Scalar::from(7)));
            Ok::<(), BackendError>(())
        };
        transform(4).expect("room");
        // Somebody leaves a mebibyte, of which nobody here knows: too little for two of roots.
        mock.set("neighbour", 1023 * MIB as i64 - mock.get("used"));
        let before = mock.get("calls:release_domain");
        let error = transform(16).expect_err("no room");
        assert!(matches!(error, BackendError::DeviceOutOfMemory { .. }), "{error}");
        // The old one, each time that it was tried, and once by the check for its own.
        assert!(mock.get("calls:release_domain") > before + times);
        assert_eq!((icicle.owner().lost(), icicle.owner().domain()), (None, None));
        mock.set("neighbour", 0);
        icicle.reconcile().expect("it tells");
        transform(16).expect("room");
        assert_eq!(icicle.owner().domain(), Some(16));
        mock.assert_used_well();
        drop(icicle);
        mock.assert_empty();
    }
}

/// Over what is left of it ICICLE would make no other, without a word.
#[test]
fn a_device_that_keeps_half_a_domain_is_given_up() {
    let mock = Mock::new();
    mock.set("half_domain", 1000);
    let icicle = mock.icicle(512 * MIB);
    mock.set("neighbour", 1023 * MIB as i64);
    let domain = Domain::with_log_size(16).expect("small");
    let made = icicle.ntt(&domain, &mut vec![Scalar::ONE; 1 << 16], Transform::Forward, &mut scratch());
    let error = made.expect_err("half a domain");
    assert!(matches!(&error, BackendError::DeviceLost { message, .. } if message.contains("half a domain")), "{error}");
    mock.assert_used_well();
}

/// A transform that was admitted while somebody else makes the domain larger finds none, and waits for the larger one.
#[test]
fn a_domain_that_grows_meanwhile_is_waited_for() {
    let mock = Mock::new();
    mock.set("silent", 1).set("memory", 8 * MIB as i64);
    let icicle = mock.icicle(8 * MIB);
    let (ledger, owner) = (icicle.ledger(), icicle.owner());
    let transform = |log_size: u32| {
        let domain = Domain::with_log_size(log_size).expect("small");
        let mut data: Vec<Scalar> = (0..1_u64 << log_size).map(Scalar::from).collect();
        let mut expected = data.clone();
        icicle.ntt(&domain, &mut data, Transform::Forward, &mut scratch()).expect("room");
        Cpu::new().ntt(&domain, &mut expected, Transform::Forward, &mut scratch()).expect("room");
        assert_eq!(data, expected, "2^{log_size}");
    };
    transform(8);
    let held = ledger.snapshot().space(Space::device(0)).expect("budgeted").held.0;
    let class = Class::new("device.abc", Space::device(0));
    let rest = ledger.reserve(class, Bytes(8 * MIB - held)).wait().expect("room");
    let before = owner.handed_over();
    std::thread::scope(|scope| {
        scope.spawn(|| transform(8));
        while ledger.snapshot().waiters.is_empty() {
            std::thread::yield_now();
        }
        // This one lets go of the domain, and waits for room for a larger one. The first has room where the domain was: it allocates,
        // copies, finds no domain, erases and frees.
        scope.spawn(|| transform(12));
        while owner.handed_over() < before + 6 {
            std::thread::yield_now();
        }
        assert_eq!(owner.domain(), None);
        drop(rest);
    });
    assert_eq!(owner.domain(), Some(12));
    mock.assert_used_well();
}

/// Erasing comes after the result was read back into the caller's vector: made again, it would be transformed twice.
#[test]
fn an_operation_is_not_made_again_because_of_its_erasing() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    let domain = Domain::with_log_size(3).expect("small");
    for code in [2, 4, 99] {
        let mut data: Vec<Scalar> = (0..8).map(Scalar::from).collect();
        let mut expected = data.clone();
        Cpu::new().ntt(&domain, &mut expected, Transform::Forward, &mut scratch()).expect("room");
        mock.fail("memset", 1, code);
        let made = icicle.ntt(&domain, &mut data, Transform::Forward, &mut scratch());
        mock.fail("memset", 0, 0);
        match made {
            Ok(()) => assert_eq!(data, expected, "code {code}"),
            Err(error) => assert!(!matches!(error, BackendError::DeviceOutOfMemory { .. }), "{error}"),
        }
        work(&icicle).expect("it goes on");
    }
}

#[test]
fn a_sum_that_is_no_point_is_an_error_and_the_device_is_looked_at() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    work(&icicle).expect("well");
    let before = mock.get("calls:msm");
    mock.set("garbage", before + 1);
    let error = work(&icicle).expect_err("no point");
    assert!(matches!(&error, BackendError::Device { message, .. } if message.contains("no point")), "{error}");
    assert!(mock.get("calls:msm") > before + 2, "it was asked for known answers");
    assert!(!icicle.owner().is_doubted());
    work(&icicle).expect("it goes on");
}

/// Without what it says a call would go another way than the one that was paid for.
#[test]
fn a_configuration_that_throws_is_an_error() {
    if !IS_SHIELDED {
        return;
    }
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    mock.fail("create_extension", 1, -1);
    let error = work(&icicle).expect_err("it throws");
    assert!(matches!(&error, BackendError::Device { message, .. } if message.contains("injected")), "{error}");
    work(&icicle).expect("it goes on");
    drop(icicle);
    mock.assert_empty();
}

/// One of many calls fails, whosesoever it is: its own work may fail, and all other results are right.
#[test]
fn a_fault_beside_others_work_reaches_nobody_else() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    let expected = work(&Cpu::new()).expect("enough scratch");
    for (function, nth, code) in
        [("vector", 5, 99), ("msm", 2, 2), ("ntt", 8, 14), ("convert", 2, 99), ("malloc", 9, 4)]
    {
        mock.fail(function, nth, code);
        let failed: usize = std::thread::scope(|scope| {
            let run = || (0..2).filter(|_| work(&icicle).map(|made| assert_eq!(made, expected)).is_err()).count();
            let workers: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
        });
        mock.fail(function, 0, 0);
        assert!(failed <= 1, "{failed} of the work failed of one fault in {function}");
        assert_eq!(icicle.owner().lost(), None);
    }
    assert_eq!(work(&icicle).expect("it goes on"), expected);
    assert_eq!(held(&icicle), 0);
    mock.assert_used_well();
    drop(icicle);
    mock.assert_empty();
}

#[test]
fn an_exception_is_an_error_with_its_text() {
    if !IS_SHIELDED {
        return;
    }
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    for (code, text) in [(-1, "injected"), (-2, "no std::exception")] {
        mock.fail("ntt", 1, code);
        let error = work(&icicle).expect_err("it throws");
        assert!(matches!(&error, BackendError::Device { message, .. } if message.contains(text)), "{error}");
        work(&icicle).expect("it goes on");
    }
}

#[test]
fn a_device_that_does_not_say_when_it_is_done_is_given_up() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    mock.set("broken", 1);
    let error = work(&icicle).expect_err("it never says");
    assert!(matches!(error, BackendError::DeviceLost { .. }), "{error}");
    mock.set("broken", 0);
    let error = work(&icicle).expect_err("too late");
    assert!(matches!(error, BackendError::DeviceLost { .. }), "{error}");
}

#[test]
fn a_device_that_fails_the_check_after_an_error_is_given_up() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    mock.fail("msm", 1, 2);
    mock.set("wrong_msm", 1);
    let error = work(&icicle).expect_err("its answers are wrong from then on");
    assert!(matches!(error, BackendError::DeviceLost { .. }), "{error}");
}
