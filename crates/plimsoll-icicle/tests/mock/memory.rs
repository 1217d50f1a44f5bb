//! Predictions, admission, what is learned, what is booked.

use std::sync::Barrier;
use std::thread;

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::Group;
use group::prime::PrimeCurveAffine;
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::{Backend, BackendError, CurveGroup, Transform};
use plimsoll_groth16::domain::Domain;
use plimsoll_icicle::Icicle;
use plimsoll_icicle::device::{MsmCall, Sum};
use plimsoll_icicle::error::CallError;

use crate::support::Mock;

const MIB: u64 = 1 << 20;
const TERMS: u64 = 700;

fn scratch() -> Reservation {
    Ledger::unlimited().reserve(Class::new("scratch", Space::HOST), Bytes(1)).wait().expect("unlimited")
}

fn held(icicle: &Icicle, name: &'static str) -> u64 {
    let class = Class::new(name, Space::device(icicle.number()));
    icicle.ledger().snapshot().class(class).map_or(0, |usage| usage.totals.held)
}

fn scalars() -> Vec<Scalar> {
    (0..TERMS).map(|n| Scalar::from(n + 1) * Scalar::from(0xffff_ffff_ffff_ffff).square()).collect()
}

fn multiply(icicle: &Icicle) -> Result<(), BackendError> {
    let scalars = scalars();
    let bases = vec![G1Affine::generator(); scalars.len()];
    let sum = icicle.msm_g1(&bases, &scalars, &mut scratch())?;
    assert_eq!(sum, G1Affine::generator() * scalars.iter().sum::<Scalar>());
    Ok(())
}

#[test]
fn what_is_charged_is_at_least_what_the_device_is_seen_to_use() {
    let mock = Mock::new();
    mock.set("silent", 1);
    let icicle = mock.icicle(64 * MIB);
    for _ in 0..3 {
        multiply(&icicle).expect("room");
        let bases = vec![G2Affine::generator(); 100];
        let sum = icicle.msm_g2(&bases, &scalars()[..100], &mut scratch()).expect("room");
        assert!(!bool::from(sum.is_identity()));
    }
    let peak = icicle.ledger().snapshot().space(Space::device(0)).expect("budgeted").peak.0;
    let used = mock.get("peak") as u64;
    assert!(used <= peak, "{used} were used of {peak}");
    assert!(used > peak / 3, "{used} of {peak}: the prediction is a bound, but no guess");
    assert_eq!(held(&icicle, "device.workspace"), 0);
}

/// ICICLE's own device takes host memory in a way of its own, by as many threads as it is told.
#[test]
fn the_same_on_the_processor() {
    let mock = Mock::new();
    let icicle = mock.device("CPU").expect("always there").alone(Some(Bytes(64 * MIB))).expect("a budget");
    let domain = Domain::with_log_size(11).expect("small");
    let mut data = vec![Scalar::from(5); 1 << 11];
    icicle.ntt(&domain, &mut data, Transform::Forward, &mut scratch()).expect("room");
    multiply(&icicle).expect("room");
    let bases = vec![G2Affine::generator(); TERMS as usize];
    icicle.msm_g2(&bases, &scalars(), &mut scratch()).expect("room");
    let peak = icicle.ledger().snapshot().space(Space::device(0)).expect("budgeted").peak.0;
    let used = mock.get("host_peak") as u64;
    assert!(used <= peak, "{used} were used of {peak}");
    assert!(used > 0, "that it was seen");
    mock.assert_used_well();
}

#[test]
fn scalars_are_erased_before_their_memory_is_freed() {
    let mock = Mock::new();
    let icicle = mock.icicle(512 * MIB);
    mock.set("watch_bytes", 32 * TERMS as i64);
    multiply(&icicle).expect("room");
    mock.fail("msm", 1, 99);
    multiply(&icicle).expect_err("an unknown code");
    let domain = Domain::with_log_size(9).expect("small");
    mock.set("watch_bytes", 32 << 9);
    let mut data = vec![Scalar::from(5); 1 << 9];
    icicle.ntt(&domain, &mut data, Transform::Forward, &mut scratch()).expect("room");
    mock.fail("ntt", 1, 99);
    icicle.ntt(&domain, &mut data, Transform::Inverse, &mut scratch()).expect_err("an unknown code");
    assert_eq!(mock.get("secrets"), 0);
    // That it could be seen.
    let memory = icicle.owner().allocate(32 << 9).expect("room");
    icicle.owner().call("copy", |scope| scope.copy_in(&data, memory.all())).expect("room");
    drop(memory);
    assert_eq!(mock.get("secrets"), 1);
}

/// Four threads, room for little more than one call at a time.
#[test]
fn calls_that_do_not_fit_together_wait_for_each_other() {
    let mock = Mock::new();
    mock.set("silent", 1).set("memory", 4 * MIB as i64);
    let icicle = mock.icicle(4 * MIB);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..3).for_each(|_| multiply(&icicle).expect("it waits")));
        }
    });
    assert_eq!(icicle.learned().out_of_memory, 0);
    assert!(mock.get("peak") <= 4 * MIB as i64);
    mock.assert_used_well();
    drop(icicle);
    mock.assert_empty();
}

/// One call that does not fit whole is made in pieces, with the window and the terms that the ledger has granted.
#[test]
fn a_call_that_does_not_fit_whole_is_cut() {
    for (budget, cut) in [(64 * MIB, false), (5 * MIB / 2, true)] {
        let mock = Mock::new();
        mock.set("silent", 1).set("memory", budget as i64);
        let icicle = mock.icicle(budget);
        let before = mock.get("calls:msm");
        let scalars = vec![Scalar::from(3); 5000];
        let sum = icicle.msm_g1(&vec![G1Affine::generator(); 5000], &scalars, &mut scratch()).expect("in pieces");
        assert_eq!(sum, G1Affine::generator() * Scalar::from(15_000));
        let calls = mock.get("calls:msm") - before;
        assert_eq!(calls > 1, cut, "{calls} calls within {budget} bytes");
        assert_eq!(icicle.learned().out_of_memory, 0);
        mock.assert_used_well();
    }
}

/// The same without a ledger in between: that the test above could fail.
#[test]
fn the_same_calls_made_freely_run_out_of_memory() {
    let mock = Mock::new();
    let device = mock.set("memory", 4 * MIB as i64).device("MOCK").expect("well");
    let icicle = device.alone(Some(Bytes(200 * MIB))).expect("a budget that is too high");
    let owner = icicle.owner();
    let scalars = scalars();
    let bases = vec![G1Affine::generator(); scalars.len()];
    let barrier = Barrier::new(4);
    let run = || -> Result<(), CallError> {
        barrier.wait();
        let points = owner.allocate(TERMS * 96)?;
        let room = owner.allocate(TERMS * 32)?;
        owner.call("copy", |scope| {
            scope.copy_in(&scalars, room.all())?;
            scope.copy_in(&bases, points.all())?;
            scope.points_to_standard(CurveGroup::G1, points.all())
        })?;
        let mut sum = Sum::new();
        let (scalars, points, group, sum) = (room.all(), points.all(), CurveGroup::G1, &mut sum);
        owner.call("msm", move |scope| {
            scope.msm(MsmCall { group, scalars, points, window: 13, threads: 0, scratch_bytes: 0, sum })
        })
    };
    let failures = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| u32::from(thread.join().expect("no panic").is_err())).sum::<u32>()
    });
    assert!(failures > 0, "each alone takes more than a quarter of the memory");
}

#[test]
fn a_prediction_that_was_too_small_is_counted_and_learned() {
    let mock = Mock::new();
    let icicle = mock.icicle(900 * MIB);
    multiply(&icicle).expect("room");
    assert_eq!((icicle.learned().correction_g1, icicle.remarks()), (1000, None));
    // Far beyond the steps of the pool.
    mock.set("scratch", 200_000);
    multiply(&icicle).expect("there is room on the device all the same");
    let learned = icicle.learned();
    assert_eq!((learned.undersized, learned.out_of_memory), (1, 0));
    assert!(learned.correction_g1 > 1000 && learned.correction_g2 == 1000, "{learned:?}");
    assert!(learned.undersized_bytes_peak > 0);
    let remarks = icicle.remarks().expect("it is reported");
    assert!(remarks.contains("1 of 2 calls took more than predicted"), "{remarks}");
    let peak = icicle.ledger().snapshot().space(Space::device(0)).expect("budgeted").peak.0;
    let used = mock.get("peak") as u64;
    assert!(used <= peak, "{used} were used while {peak} were booked");
    assert_eq!((learned.overdrawn_bytes_peak, held(&icicle, "device.overrun")), (0, 0), "there was room to book it");
    // With the correction another plan may be the best, of which more is to be learned; but not for long.
    let settles = (0..6).any(|_| {
        let before = icicle.learned().undersized;
        multiply(&icicle).expect("room");
        icicle.learned().undersized == before
    });
    assert!(settles, "{:?}", icicle.learned());
    mock.assert_used_well();
}

#[test]
fn an_out_of_memory_is_drained_booked_and_made_up_for() {
    let mock = Mock::new();
    mock.set("leak", 3 * MIB as i64);
    let icicle = mock.icicle(512 * MIB);
    multiply(&icicle).expect("room");
    // The device has less than was promised: a neighbour came.
    mock.fail("msm", 1, 2);
    multiply(&icicle).expect("made again");
    let learned = icicle.learned();
    assert_eq!((learned.out_of_memory, learned.leaked_bytes), (1, 0), "an injected code leaks nothing");
    assert!(learned.correction_g1 > 1000);
    mock.assert_used_well();
}

#[test]
fn what_a_failed_call_has_leaked_is_booked_as_such() {
    let mock = Mock::new();
    mock.set("leak", 3 * MIB as i64).set("silent", 0);
    let icicle = mock.icicle(512 * MIB);
    multiply(&icicle).expect("room");
    // More scratch than the device has, each time.
    mock.set("scratch", 600_000);
    let outcome = multiply(&icicle);
    mock.set("scratch", 1000);
    let learned = icicle.learned();
    assert!(learned.out_of_memory >= 1, "{outcome:?}, {learned:?}");
    assert_eq!(learned.leaked_bytes, 3 * MIB * learned.out_of_memory);
    assert_eq!(held(&icicle, "device.leaked"), learned.leaked_bytes);
    let books = icicle.reconcile().expect("it tells");
    assert_eq!((books.leaked_bytes, books.foreign_bytes), (learned.leaked_bytes, 0));
    multiply(&icicle).expect("the device is well");
    mock.assert_used_well();
}

/// A buffer that ICICLE would not free, on devices that tell how much is free and on such as do not.
#[test]
fn what_icicle_would_not_free_is_booked_as_leaked() {
    for silent in [0, 1] {
        let mock = Mock::new();
        mock.set("silent", silent);
        let icicle = mock.icicle(512 * MIB);
        multiply(&icicle).expect("room");
        let memory = icicle.owner().allocate(5 * MIB).expect("room");
        mock.fail("free", 1, 5);
        drop(memory);
        multiply(&icicle).expect("it was looked at");
        assert_eq!(icicle.learned().leaked_bytes, 5 * MIB, "silent: {silent}");
        assert_eq!(held(&icicle, "device.leaked"), 5 * MIB);
        assert_eq!(icicle.owner().allocated_bytes(), 0);
        mock.assert_used_well();
    }
}

#[test]
fn a_device_that_leaks_too_much_is_given_up_with_its_limits() {
    let mock = Mock::new();
    // About all that a call is predicted to take, of a budget that is four times that at the most.
    mock.set("leak", 62 * MIB as i64);
    let icicle = mock.icicle(240 * MIB);
    mock.set("scratch", 600_000);
    let error = multiply(&icicle).expect_err("it leaks more than a quarter");
    assert!(matches!(&error, BackendError::DeviceLost { message, .. } if message.contains("restart")), "{error}");
    let error = multiply(&icicle).expect_err("it stays given up");
    assert!(matches!(error, BackendError::DeviceLost { .. }), "{error}");
    assert!(icicle.ledger().snapshot().space(Space::device(0)).expect("budgeted").retired.is_some());
}

#[test]
fn what_a_neighbour_takes_is_booked_and_a_smaller_plan_is_made() {
    let mock = Mock::new();
    let icicle = mock.icicle(900 * MIB);
    multiply(&icicle).expect("room");
    let books = icicle.reconcile().expect("it tells");
    assert_eq!((books.foreign_bytes, books.surplus_bytes), (0, 0), "{books:?}");
    // Of 1 GiB, 60 MiB are left: less than a call needs that keeps 32 MiB of scratch and its margin.
    mock.set("neighbour", 964 * MIB as i64);
    let outcome = multiply(&icicle);
    let learned = icicle.learned();
    assert!(outcome.is_ok() || learned.squeezed > 0, "{outcome:?}");
    let books = icicle.reconcile().expect("it tells");
    assert_eq!(books.foreign_bytes, 964 * MIB);
    mock.set("neighbour", 0);
    assert_eq!(icicle.reconcile().expect("it tells").foreign_bytes, 0);
    assert_eq!(held(&icicle, "device.foreign"), 0);
    multiply(&icicle).expect("room again");
    assert_eq!(mock.get("replanned"), 0, "ICICLE was never left to choose by itself");
    mock.assert_used_well();
}

#[test]
fn what_never_fits_is_an_error_at_once() {
    let mock = Mock::new();
    mock.set("silent", 1);
    // Room for checking, and a little more.
    let icicle = mock.icicle(MIB + MIB / 4);
    let bases = vec![G2Affine::generator(); 4096];
    let scalars = vec![Scalar::ONE; 4096];
    let made = icicle.msm_g2(&bases, &scalars, &mut scratch());
    match made {
        Ok(sum) => assert_eq!(sum, G2Affine::generator() * Scalar::from(4096)),
        Err(error) => assert!(matches!(error, BackendError::DeviceOutOfMemory { .. }), "{error}"),
    }
    let mut data = vec![Scalar::ONE; 1 << 16];
    let domain = Domain::with_log_size(16).expect("small");
    let error = icicle
        .ntt(&domain, &mut data, Transform::Forward, &mut scratch())
        .expect_err("2 MiB of values, and as much for the domain");
    assert!(matches!(error, BackendError::DeviceOutOfMemory { .. }), "{error}");
}

/// Where the books have no room for what a call has allocated beyond its prediction, that is told.
#[test]
fn what_could_not_be_booked_is_counted() {
    let mock = Mock::new();
    let icicle = mock.icicle(300 * MIB);
    mock.set("scratch", 200_000);
    multiply(&icicle).expect("the device has room, the budget has none");
    let learned = icicle.learned();
    assert!(learned.overdrawn_bytes_peak > 0, "{learned:?}");
    assert!(learned.overdrawn_bytes_peak < learned.undersized_bytes_peak, "a part was booked: {learned:?}");
    assert_eq!(held(&icicle, "device.overrun"), 0);
}

/// Somebody else's memory, which nobody had looked at before a call failed, has not leaked: otherwise the device would be given up.
#[test]
fn what_a_neighbour_has_taken_before_a_failure_has_not_leaked() {
    let mock = Mock::new();
    let icicle = mock.icicle(512 * MIB);
    mock.set("neighbour", 300 * MIB as i64);
    multiply(&icicle).expect("there is room for both");
    for code in [2, 99] {
        mock.fail("msm", 1, code);
        let made = multiply(&icicle);
        assert_eq!(made.is_ok(), code == 2, "{made:?}");
        assert_eq!(icicle.learned().leaked_bytes, 0, "code {code}");
        assert_eq!(held(&icicle, "device.foreign"), 300 * MIB, "code {code}");
    }
    assert_eq!(icicle.owner().lost(), None);
    // A leak beside it is told apart.
    mock.set("leak", 3 * MIB as i64).set("scratch", 600_000);
    let outcome = multiply(&icicle);
    mock.set("scratch", 1000);
    let learned = icicle.learned();
    let leaked = 3 * MIB * (learned.out_of_memory - 1);
    assert!(leaked > 0 && learned.leaked_bytes == leaked, "{outcome:?}, {learned:?}");
    assert_eq!(held(&icicle, "device.foreign"), 300 * MIB);
    assert_eq!(icicle.owner().lost(), None);
}

/// Somebody waits for room, and then it is booked for good.
#[test]
fn who_waits_for_what_will_never_be_there_is_told() {
    let mock = Mock::new();
    mock.set("silent", 1).set("memory", 4 * MIB as i64);
    let icicle = mock.icicle(4 * MIB);
    let (ledger, class) = (icicle.ledger(), Class::new("device.abc", Space::device(0)));
    let domain = Domain::with_log_size(14).expect("small");
    let transform = || icicle.ntt(&domain, &mut vec![Scalar::ONE; 1 << 14], Transform::Forward, &mut scratch());
    transform().expect("room");
    let held = ledger.snapshot().space(Space::device(0)).expect("budgeted").held.0;
    let rest = ledger.reserve(class, Bytes(4 * MIB - held)).wait().expect("room");
    let most = rest.bytes().0 - (256 << 10);
    let until = |count| {
        while ledger.snapshot().waiters.len() < count {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let keeps = scope.spawn(|| ledger.reserve(class, Bytes(most)).retained().wait());
        until(1);
        let waits = scope.spawn(transform);
        until(2);
        drop(rest);
        let _kept = keeps.join().expect("no panic").expect("it comes first");
        let error = waits.join().expect("no panic").expect_err("half of what it needs is left");
        assert!(matches!(error, BackendError::DeviceOutOfMemory { .. }), "{error}");
    });
    transform().expect("room again");
}

/// Whoever asks between a failure and the look at the device has it looked at: what has leaked is nobody else's.
#[test]
fn a_leak_is_booked_as_one_whoever_asks_first() {
    let mock = Mock::new();
    mock.set("leak", 3 * MIB as i64);
    let icicle = mock.icicle(512 * MIB);
    multiply(&icicle).expect("room");
    let owner = icicle.owner();
    let (points, room) = (owner.allocate(9 * 96).expect("room"), owner.allocate(9 * 32).expect("room"));
    let mut sum = Sum::new();
    let (scalars, points, group) = (room.all(), points.all(), CurveGroup::G1);
    mock.set("scratch", 600_000);
    let call = MsmCall { group, scalars, points, window: 13, threads: 0, scratch_bytes: 64 * MIB, sum: &mut sum };
    let error = owner.call("msm", move |scope| scope.msm(call)).expect_err("more than there is");
    assert!(error.is_out_of_memory() && owner.is_doubted(), "{error}");
    mock.set("scratch", 1000);
    let books = icicle.reconcile().expect("it tells");
    assert_eq!((books.leaked_bytes, books.foreign_bytes), (3 * MIB, 0));
    assert_eq!((held(&icicle, "device.leaked"), held(&icicle, "device.foreign")), (3 * MIB, 0));
    assert_eq!((icicle.learned().leaked_bytes, owner.is_doubted()), (3 * MIB, false));
    multiply(&icicle).expect("the device is well");
    mock.assert_used_well();
}

/// It may be why the call fails. A device tells what is free, and not who has the rest.
#[test]
fn a_neighbour_that_comes_with_a_failure_costs_neither_room_for_good_nor_the_device() {
    let mock = Mock::new();
    let icicle = mock.icicle(512 * MIB);
    multiply(&icicle).expect("room");
    let predicted = icicle.learned().last_predicted_bytes;
    assert!(predicted < 128 * MIB, "less than what would cost the device");
    mock.set("neighbour_at_msm", mock.get("calls:msm") + 1).set("neighbour_then", 300 * MIB as i64);
    mock.fail("msm", 1, 2);
    multiply(&icicle).expect("there is room for both, and it is made again");
    assert_eq!(icicle.owner().lost(), None);
    // At most what that call was to take may have leaked. Together it is what is gone.
    let leaked = held(&icicle, "device.leaked");
    assert!(leaked <= predicted, "{leaked} of {predicted}");
    assert_eq!((icicle.learned().leaked_bytes, leaked + held(&icicle, "device.foreign")), (leaked, 300 * MIB));
    // It goes, a part first: what is free again was no leak.
    mock.set("neighbour", MIB as i64);
    let books = icicle.reconcile().expect("it tells");
    assert_eq!((books.leaked_bytes, books.foreign_bytes), (MIB, 0), "{books:?}");
    assert_eq!(held(&icicle, "device.leaked"), MIB);
    mock.set("neighbour", 0);
    let books = icicle.reconcile().expect("it tells");
    assert_eq!((books.leaked_bytes, books.foreign_bytes, books.surplus_bytes), (0, 0, 0), "{books:?}");
    assert_eq!((held(&icicle, "device.leaked"), held(&icicle, "device.foreign")), (0, 0));
    assert_eq!((icicle.learned().leaked_bytes, icicle.learned().out_of_memory), (0, 1));
    multiply(&icicle).expect("room");
    mock.assert_used_well();
}

/// Others have let go of memory since the device was opened: a leak is one all the same.
#[test]
fn a_leak_where_more_is_free_than_at_first_is_one() {
    let mock = Mock::new();
    mock.set("neighbour", 100 * MIB as i64).set("leak", 3 * MIB as i64);
    let icicle = mock.icicle(512 * MIB);
    mock.set("neighbour", 0);
    multiply(&icicle).expect("room");
    mock.set("scratch", 600_000);
    let outcome = multiply(&icicle);
    mock.set("scratch", 1000);
    let learned = icicle.learned();
    assert!(learned.out_of_memory >= 1, "{outcome:?}");
    assert_eq!(learned.leaked_bytes, 3 * MIB * learned.out_of_memory);
    let books = icicle.reconcile().expect("it tells");
    assert_eq!((books.leaked_bytes, books.foreign_bytes), (learned.leaked_bytes, 0), "{books:?}");
}

/// ICICLE's other allocations may be as far from what is known of them as those of multiplications.
#[test]
fn what_transforms_and_domains_take_beyond_their_prediction_is_booked_and_learned() {
    let mock = Mock::new();
    // 48 MiB for roots of four, and 40 MiB beside a vector of two.
    mock.set("domain_scale", 12_000).set("ntt_scratch", 20_000);
    let icicle = mock.icicle(900 * MIB);
    let transform = |log_size: u32| {
        let domain = Domain::with_log_size(log_size).expect("small").with_odd_coset();
        let mut data = vec![Scalar::ZERO; 1 << log_size];
        data[0] = Scalar::from(3);
        icicle.ntt(&domain, &mut data, Transform::CosetForward, &mut scratch()).expect("room");
        assert!(data.iter().all(|value| *value == Scalar::from(3)));
    };
    transform(15);
    let learned = icicle.learned();
    assert!(learned.others_undersized >= 1 && learned.addition_vectors > 0, "{learned:?}");
    transform(16);
    let learned = icicle.learned();
    assert!(learned.addition_domain > 0, "{learned:?}");
    assert!(icicle.remarks().expect("it is reported").contains("domains, transforms"), "{:?}", icicle.remarks());
    assert_eq!(held(&icicle, "device.domain"), 48 * MIB + 12 * 32, "all that it takes");
    assert_eq!((held(&icicle, "device.overrun"), learned.overdrawn_bytes_peak), (0, 0));
    let books = icicle.reconcile().expect("it tells");
    assert_eq!((books.foreign_bytes, books.leaked_bytes), (0, 0), "{books:?}");
    let peak = icicle.ledger().snapshot().space(Space::device(0)).expect("budgeted").peak.0;
    let used = mock.get("peak") as u64;
    assert!(used <= peak, "{used} were used while {peak} were booked");
    // From then on it is predicted: as much for a vector as before, and for one of twice the size in twice the domain.
    transform(16);
    mock.set("domain_scale", 6_000).set("ntt_scratch", 12_000);
    transform(17);
    assert_eq!(icicle.learned().others_undersized, learned.others_undersized, "{:?}", icicle.learned());
    assert!(held(&icicle, "device.domain") >= 48 * MIB);
    assert_eq!((learned.undersized, learned.calls), (0, 0), "no multiplication was made");
    mock.assert_used_well();
    drop(icicle);
    mock.assert_empty();
}
