//! Whose a device is, and what becomes of it when it is given up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use blstrs::{G1Affine, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::{Backend, BackendError, Transform};
use plimsoll_groth16::domain::Domain;
use plimsoll_icicle::error::{Fault, OpenError};
use plimsoll_icicle::{Device, Icicle, Options};

use crate::proofs::prover_with;
use crate::support::Mock;

const MIB: u64 = 1 << 20;

fn scratch() -> Reservation {
    Ledger::unlimited().reserve(Class::new("scratch", Space::HOST), Bytes(MIB)).wait().expect("unlimited")
}

fn transform(icicle: &Icicle, log_size: u32) -> Result<(), BackendError> {
    let domain = Domain::with_log_size(log_size).expect("small");
    let mut data = vec![Scalar::ZERO; 1 << log_size];
    data[0] = Scalar::from(3);
    icicle.ntt(&domain, &mut data, Transform::Forward, &mut scratch())?;
    // A constant has that value everywhere.
    assert!(data.iter().all(|value| *value == Scalar::from(3)));
    Ok(())
}

#[track_caller]
fn assert_taken(mock: &Mock) {
    let error = mock.device("MOCK").expect_err("it is somebody's");
    assert_eq!(error, OpenError::AlreadyOpen { device: "MOCK:0".to_owned() });
}

/// Two owners of one device would each believe in a domain of their own.
#[test]
fn whoever_keeps_an_owner_or_its_memory_keeps_the_device() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    transform(&icicle, 8).expect("room");
    let owner = icicle.owner().clone();
    mock.fail("release_domain", 1, 99);
    drop(icicle);
    assert_taken(&mock);
    let memory = owner.allocate(64).expect("it works as before");
    drop(owner);
    assert_taken(&mock);
    // The last of it goes, the thread ends, and with it the domain that the backend could not let go of.
    assert!(mock.get("used") > 64, "the domain is there");
    drop(memory);
    mock.assert_empty();
    let icicle = mock.icicle(256 * MIB);
    transform(&icicle, 9).expect("in a domain of its own");
    mock.assert_used_well();
}

#[test]
fn of_many_who_open_a_device_at_once_one_has_it() {
    let mock = Mock::new();
    let all = Barrier::new(6);
    let devices: Vec<Result<Device, OpenError>> = thread::scope(|scope| {
        let open = || {
            all.wait();
            mock.device("MOCK")
        };
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let (opened, refused): (Vec<_>, Vec<_>) = devices.into_iter().partition(Result::is_ok);
    assert_eq!(opened.len(), 1);
    for error in refused {
        assert!(matches!(error, Err(OpenError::AlreadyOpen { .. })), "{error:?}");
    }
    drop(opened);
    drop(mock.device("MOCK").expect("it is nobody's now"));
    mock.assert_used_well();
}

/// What it still does nobody knows: it is not called again, not to free, not to close, and not by who would open it.
#[test]
fn a_device_that_has_fallen_silent_is_never_called_again() {
    let mock = Mock::new();
    let icicle = mock.icicle(256 * MIB);
    transform(&icicle, 5).expect("room");
    let memory = icicle.owner().allocate(100).expect("room");
    mock.set("broken", 1);
    let error = transform(&icicle, 5).expect_err("it never says that it is done");
    assert!(matches!(error, BackendError::DeviceLost { .. }), "{error}");
    mock.set("broken", 0);
    let calls = || {
        ["free", "destroy_stream", "release_domain", "synchronize", "set_device"]
            .map(|f| mock.get(&format!("calls:{f}")))
    };
    let before = calls();
    drop(memory);
    drop(icicle);
    let error = mock.device("MOCK").expect_err("nobody is to have it");
    let OpenError::GivenUp { device, message } = &error else { panic!("{error}") };
    assert_eq!(device, "MOCK:0");
    assert!(message.contains("does not say any more") && error.to_string().contains("restart"), "{error}");
    assert_eq!(calls(), before);
}

/// Points, tables, the domain, and memory of the caller's own, on a device that gave a wrong answer: it answers still.
#[test]
fn what_is_on_a_device_that_was_given_up_is_freed() {
    let mock = Mock::new();
    let icicle = mock.icicle(512 * MIB);
    let prover = prover_with(&icicle);
    let ledger = Ledger::new(plimsoll::Budget::new().space(Space::HOST, Bytes(64 * MIB)));
    let prove = || prover.prove(&ledger, crate::proofs::Squares::of(3), plimsoll_groth16::prover::Blinding::from_os());
    prove().expect("a proof");
    let memory = icicle.owner().allocate(MIB).expect("room");
    mock.set("wrong_ntt", 1);
    icicle.look().expect_err("wrong");
    prove().expect_err("it computes nothing more");
    let before = mock.get("used");
    drop(memory);
    assert_eq!(mock.get("used"), before - MIB as i64);
    drop((prover, icicle));
    mock.assert_empty();
    mock.set("wrong_ntt", 0);
    transform(&mock.icicle(256 * MIB), 4).expect("it is well again");
    mock.assert_used_well();
}

/// Whatever was under way when somebody else found the device wanting: the vectors that lay there are erased, and freed.
#[test]
fn what_was_secret_on_a_device_that_was_given_up_is_erased() {
    for calls in 1..=12 {
        let mock = Mock::new();
        let icicle = mock.icicle(256 * MIB);
        transform(&icicle, 9).expect("room");
        mock.set("watch_bytes", 32 << 9);
        let before = icicle.owner().handed_over();
        thread::scope(|scope| {
            scope.spawn(|| {
                let domain = Domain::with_log_size(9).expect("small");
                let mut data = vec![Scalar::from(5); 1 << 9];
                while icicle.ntt(&domain, &mut data, Transform::Forward, &mut scratch()).is_ok() {}
            });
            while icicle.owner().handed_over() < before + calls {
                thread::yield_now();
            }
            mock.set("wrong_msm", 1);
            icicle.look().expect_err("wrong");
        });
        assert_eq!(mock.get("secrets"), 0, "given up after {calls} calls");
        drop(icicle);
        mock.assert_empty();
    }
}

/// What a caller wrote is dropped on the owner's thread, on which others' work is under way.
#[test]
fn a_destructor_that_panics_is_its_callers_affair() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a destructor");
        }
    }
    let mock = Mock::new();
    let options = Options { streams: 1, ..mock.options() };
    let device = Device::open(Some(&"MOCK".parse().expect("a name")), &options).expect("well");
    let icicle = device.alone(Some(Bytes(256 * MIB))).expect("room");
    let owner = icicle.owner();
    let said = |panicked: thread::Result<()>| {
        let panic = panicked.expect_err("it panicked");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a destructor"));
    };
    // In a call that is made.
    let bomb = Bomb;
    said(catch_unwind(AssertUnwindSafe(|| {
        let _ = owner.call("made", move |_| {
            let _bomb = &bomb;
            Ok(())
        });
    })));
    transform(&icicle, 3).expect("it goes on");
    // In one that waits in the queue of a device that is lost.
    let before = owner.handed_over();
    thread::scope(|scope| {
        scope.spawn(|| {
            let lost = owner.call("first", |_| {
                while owner.handed_over() < before + 2 {
                    thread::yield_now();
                }
                mock.set("broken", 1);
                Ok(())
            });
            lost.expect_err("it never says that it is done");
        });
        while owner.handed_over() < before + 1 {
            thread::yield_now();
        }
        let bomb = Bomb;
        said(catch_unwind(AssertUnwindSafe(|| {
            let _ = owner.call("refused", move |_| {
                let _bomb = &bomb;
                Ok(())
            });
        })));
    });
    let error = owner.call("third", |_| Ok(())).expect_err("it is lost");
    assert!(matches!(&error.fault, Fault::Lost { message } if message.contains("any more")), "{error}");
    let sum = icicle.msm_g1(&[G1Affine::generator()], &[Scalar::ONE], &mut scratch());
    assert!(matches!(sum, Err(BackendError::DeviceLost { .. })));
}
