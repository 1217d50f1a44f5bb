//! The harness that every backend must pass.

use blstrs::Scalar;
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::{Backend, CurveGroup, Reference, Transform, conformance};
use plimsoll_groth16::domain::Domain;

use crate::support::Mock;

const MIB: u64 = 1 << 20;

fn scratch() -> Reservation {
    Ledger::unlimited().reserve(Class::new("scratch", Space::HOST), Bytes(MIB)).wait().expect("unlimited")
}

#[test]
fn a_device_conforms() {
    let mock = Mock::new();
    let icicle = mock.icicle(512 * MIB);
    conformance::check(&icicle, 0..=5);
    for log_size in [8, 11] {
        conformance::check_transforms(&icicle, log_size);
    }
    conformance::check_msm(&icicle, CurveGroup::G1, 1000);
    conformance::check_msm(&icicle, CurveGroup::G2, 300);
    assert_eq!(icicle.learned().undersized, 0);
    mock.assert_used_well();
    assert_eq!(mock.get("replanned"), 0, "ICICLE did as it was told, each time");
    drop(icicle);
    mock.assert_empty();
}

/// The memory of such a device is known to the byte, so that little is enough to force cuts.
#[test]
fn a_device_with_little_memory_conforms() {
    let mock = Mock::new();
    mock.set("silent", 1);
    let icicle = mock.icicle(7 * MIB / 2);
    conformance::check_transforms(&icicle, 13);
    conformance::check_transforms(&icicle, 14);
    conformance::check_msm(&icicle, CurveGroup::G1, 3000);
    conformance::check_msm(&icicle, CurveGroup::G2, 500);
    mock.assert_used_well();
    assert!(mock.get("peak") <= 7 * MIB as i64 / 2, "{}", mock.get("peak"));
    drop(icicle);
    mock.assert_empty();
}

#[test]
fn the_processor_conforms() {
    let mock = Mock::new();
    let device = mock.device("CPU").expect("it is always there");
    let icicle = device.alone(Some(Bytes(64 * MIB))).expect("a budget");
    conformance::check(&icicle, 0..=4);
    mock.assert_used_well();
    drop(icicle);
    // As v3.1 to v3.3 do on a machine of two cores.
    mock.set("few_cores", 1);
    let icicle = mock.device("CPU").expect("it is told of threads").alone(Some(Bytes(64 * MIB))).expect("a budget");
    conformance::check(&icicle, 0..=3);
    mock.assert_used_well();
    drop(icicle);
    mock.assert_empty();
}

#[test]
fn functions_that_forks_lack_are_not_missed() {
    let mock = Mock::without(&[
        "bls12_381_scalar_mul_vec",
        "bls12_381_vector_sum",
        "icicle_memset_async",
        "icicle_get_device_count",
        "icicle_is_device_available",
        "icicle_get_registered_devices",
        "icicle_load_backend",
        "create_config_extension",
    ]);
    let icicle = mock.icicle(512 * MIB);
    conformance::check(&icicle, 0..=3);
    conformance::check_transforms(&icicle, 13);
    mock.assert_used_well();
}

#[test]
fn without_free_memory_to_ask_for_predictions_alone_decide() {
    let mock = Mock::without(&["icicle_get_available_memory"]);
    let icicle = mock.icicle(16 * MIB);
    conformance::check(&icicle, 0..=3);
    assert_eq!(icicle.reconcile(), None);
    mock.assert_used_well();
}

#[test]
fn a_coset_that_is_a_power_of_the_root_is_icicles_own_affair() {
    let mock = Mock::new();
    let icicle = mock.icicle(512 * MIB);
    let tables = icicle.ledger().snapshot().residencies.len();
    let domain = Domain::with_log_size(6).expect("small").with_odd_coset();
    let values: Vec<Scalar> = (0..64).map(|n| Scalar::from(n * n + 5)).collect();
    for transform in [Transform::CosetForward, Transform::CosetInverse] {
        let (mut ours, mut expected) = (values.clone(), values.clone());
        icicle.ntt(&domain, &mut ours, transform, &mut scratch()).expect("room");
        Reference.ntt(&domain, &mut expected, transform, &mut scratch()).expect("room");
        assert_eq!(ours, expected, "{transform:?}");
    }
    let [mut a, mut b, mut c] = [values.clone(), values.clone(), values.clone()];
    let [mut a2, mut b2, mut c2] = [values.clone(), values.clone(), values];
    icicle.quotient_on_coset(&domain, &mut a, &mut b, &mut c, &Scalar::from(7), &mut scratch()).expect("room");
    Reference.quotient_on_coset(&domain, &mut a2, &mut b2, &mut c2, &Scalar::from(7), &mut scratch()).expect("room");
    assert_eq!(a, a2);
    assert_eq!(icicle.ledger().snapshot().residencies.len(), tables, "no table was made for it");
    mock.assert_used_well();
}
