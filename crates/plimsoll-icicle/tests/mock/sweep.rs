//! Each function of ICICLE's fails, at one of its calls after the other, in each way, from the opening of a device to its end: the result
//! is right or an error, and nothing is lost.

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::{Backend, BackendError, Cpu, Transform};
use plimsoll_groth16::domain::Domain;
use plimsoll_icicle::error::OpenError;
use plimsoll_icicle::{IS_SHIELDED, Icicle};

use crate::support::Mock;

const MIB: u64 = 1 << 20;

/// Every function that is called, and what the mock calls it.
const FUNCTIONS: [(&str, &str); 29] = [
    ("icicle_load_backend_from_env_or_default", "load"),
    ("icicle_load_backend", "load_backend"),
    ("icicle_is_device_available", "is_available"),
    ("icicle_set_device", "set_device"),
    ("icicle_get_device_count", "device_count"),
    ("icicle_get_registered_devices", "registered"),
    ("icicle_get_available_memory", "memory"),
    ("icicle_malloc", "malloc"),
    ("icicle_free", "free"),
    ("icicle_copy_to_device_async", "copy_to_device"),
    ("icicle_copy_to_host_async", "copy_to_host"),
    ("icicle_memset_async", "memset"),
    ("icicle_create_stream", "create_stream"),
    ("icicle_destroy_stream", "destroy_stream"),
    ("icicle_stream_synchronize", "synchronize"),
    ("icicle_device_synchronize", "device_synchronize"),
    ("create_config_extension", "create_extension"),
    ("destroy_config_extension", "destroy_extension"),
    ("config_extension_set_int", "set_int"),
    ("bls12_381_msm", "msm"),
    ("bls12_381_g2_msm", "g2_msm"),
    ("bls12_381_affine_convert_montgomery", "convert"),
    ("bls12_381_g2_affine_convert_montgomery", "g2_convert"),
    ("bls12_381_ntt_init_domain", "init_domain"),
    ("bls12_381_ntt_release_domain", "release_domain"),
    ("bls12_381_ntt", "ntt"),
    ("bls12_381_vector_mul", "vector"),
    ("bls12_381_vector_sub", "vector"),
    ("bls12_381_scalar_mul_vec", "vector"),
];

/// Those that return nothing, so that all they can do is to throw.
const SILENT: [&str; 3] = ["create_extension", "destroy_extension", "set_int"];

fn scratch() -> Reservation {
    Ledger::unlimited().reserve(Class::new("scratch", Space::HOST), Bytes(MIB)).wait().expect("unlimited")
}

#[derive(Debug, PartialEq)]
struct Made {
    quotient: Vec<Scalar>,
    transform: Vec<Scalar>,
    g1: G1Projective,
    g2: G2Projective,
}

/// A quotient on a coset that needs a table, a transform for which the domain has to grow, and a multiplication in each group.
fn work(backend: &dyn Backend) -> Result<Made, BackendError> {
    let domain = Domain::with_log_size(3).expect("small");
    let vector = |seed: u64| -> Vec<Scalar> { (0..8).map(|n| Scalar::from(n * n + seed).square()).collect() };
    let [mut a, mut b, mut c] = [vector(1), vector(2), vector(3)];
    let factor = domain.vanishing_on_coset_inverse();
    backend.quotient_on_coset(&domain, &mut a, &mut b, &mut c, &factor, &mut scratch())?;
    let larger = Domain::with_log_size(4).expect("small");
    let mut transform = [vector(5), vector(6)].concat();
    backend.ntt(&larger, &mut transform, Transform::Forward, &mut scratch())?;
    let g1 = backend.msm_g1(&[G1Affine::generator(); 8], &a, &mut scratch())?;
    let g2 = backend.msm_g2(&[G2Affine::generator(); 3], &a[..3], &mut scratch())?;
    Ok(Made { quotient: a, transform, g1, g2 })
}

/// Bytes of operations.
fn held(icicle: &Icicle) -> u64 {
    let snapshot = icicle.ledger().snapshot();
    let of = |name| snapshot.class(Class::new(name, Space::device(0))).map_or(0, |usage| usage.totals.held);
    let classes =
        ["device.abc", "device.points", "device.workspace", "device.buckets", "device.margin", "device.overrun"];
    classes.into_iter().map(of).sum()
}

/// A device's life, in the course of which one call fails; whether that came through as an error.
fn life(mock: &Mock, expected: &Made, what: &str) -> bool {
    let device = match mock.device("MOCK") {
        Ok(device) => device,
        Err(error) => {
            assert!(!matches!(error, OpenError::AlreadyOpen { .. } | OpenError::GivenUp { .. }), "{what}: {error}");
            assert!(!error.to_string().is_empty(), "{what}");
            return true;
        }
    };
    let icicle = device.alone(Some(Bytes(256 * MIB))).expect("room for what checking takes");
    let mut failed = false;
    for _ in 0..3 {
        match work(&icicle) {
            Ok(made) => assert_eq!(made, *expected, "{what}"),
            Err(error) => {
                assert!(!failed || icicle.owner().lost().is_some(), "{what}: one fault, and two errors: {error}");
                assert!(!error.to_string().is_empty(), "{what}");
                failed = true;
            }
        }
        assert_eq!(held(&icicle), 0, "{what}");
    }
    if let Some(lost) = icicle.owner().lost() {
        assert!(failed, "{what}: it was given up ({lost}), and nobody heard of it");
    }
    failed
}

/// A mock that has a folder of backends as well.
fn mock() -> Mock {
    let mock = Mock::new();
    std::fs::create_dir(mock.folder().join("backend")).expect("a folder for temporary files");
    mock
}

/// All calls of a function's, one after the other; how many of the faults came through as errors.
fn sweep(function: &str) -> u32 {
    let expected = work(&Cpu::new()).expect("enough scratch");
    let codes: &[i64] = if SILENT.contains(&function) { &[-1] } else { &[2, 4, 11, 99, -1] };
    let (mut errors, mut nth) = (0, 1);
    let mut mocked = mock();
    loop {
        let mut reached = false;
        for code in codes.iter().filter(|code| **code > 0 || IS_SHIELDED) {
            let what = format!("{function} call {nth} answers {code}");
            let calls = || mocked.get(&format!("calls:{function}"));
            let before = calls();
            mocked.fail(function, nth, *code);
            errors += u32::from(life(&mocked, &expected, &what));
            reached |= calls() - before >= nth;
            mocked.fail(function, 0, 0);
            mocked.assert_used_well();
            // What it would not free, or let go of, is there; and nothing else.
            if !matches!(function, "free" | "destroy_extension") {
                mocked.assert_empty();
            } else if mocked.get("allocations") + mocked.get("calls:extensions") > 0 {
                mocked = mock();
            }
        }
        assert!(!life(&mocked, &expected, function), "{function}, call {nth}: it fails without a fault");
        if !reached {
            assert!(nth > 1, "{function} is never called");
            return errors;
        }
        // The first ones each, and then some of the many.
        nth += if nth < 8 { 1 } else { 7 };
    }
}

macro_rules! sweeps {
    ($($name:ident: $($function:literal)+;)+) => {$(
        #[test]
        fn $name() {
            let errors: u32 = [$($function),+].into_iter().map(sweep).sum();
            assert!(errors > 0, "no fault came through");
        }
    )+

    /// The functions of the tests above.
    const SWEPT: &[&str] = &[$($($function),+),+];
    };
}

sweeps! {
    whatever_fails_in_opening: "load" "load_backend" "is_available" "set_device" "device_count" "memory" "create_stream" "destroy_stream";
    whatever_fails_in_memory: "malloc" "free" "copy_to_device" "copy_to_host" "memset";
    whatever_fails_in_waiting: "synchronize";
    whatever_fails_in_configuring: "create_extension" "destroy_extension" "set_int";
    whatever_fails_in_multiplications: "msm" "g2_msm" "convert" "g2_convert";
    whatever_fails_in_transforms: "init_domain" "release_domain" "ntt";
    whatever_fails_in_vectors: "vector";
}

/// These two are called where something else is the matter already.
#[test]
fn whatever_fails_after_something_else_has() {
    for code in [2, 4, 11, 99, -1].into_iter().filter(|code| *code > 0 || IS_SHIELDED) {
        // Who asks for a device that is not there is told so, whatever ICICLE says of those that are.
        let mocked = mock();
        mocked.fail("registered", 1, code);
        let error = mocked.device("NOPE").expect_err("there is none");
        assert!(matches!(error, OpenError::NoSuchDevice { .. }), "{error}");
        // A stream that fails twice, on a device that does not say that it is done.
        let icicle = mocked.icicle(256 * MIB);
        mocked.set("broken", 2);
        mocked.fail("device_synchronize", 1, code);
        let error = work(&icicle).expect_err("its streams are broken");
        assert!(matches!(error, BackendError::DeviceLost { .. }), "{error}");
    }
}

/// Whoever takes another function into use takes it into this.
#[test]
fn every_function_that_is_called_is_made_to_fail() {
    let source = include_str!("../../src/library/symbols.rs");
    let listed = source.split_once("symbols! {\n    required {").expect("it lists them").1;
    let listed = listed.split_once("\n}\n").expect("it ends").0;
    let called: Vec<&str> = listed.lines().filter_map(|line| line.split('"').nth(1)).collect();
    assert_eq!(called.len(), FUNCTIONS.len(), "{called:?}");
    for symbol in called {
        let (_, name) = FUNCTIONS.iter().find(|row| row.0 == symbol).unwrap_or_else(|| panic!("{symbol} is not swept"));
        assert!(SWEPT.contains(name) || ["registered", "device_synchronize"].contains(name), "{symbol}");
    }
}
