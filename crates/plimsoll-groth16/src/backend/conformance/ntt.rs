//! Transforms against their definition.

use blstrs::Scalar;
use ff::Field;
use plimsoll::pool;

use super::super::{Backend, BackendError, Transform};
use super::{Stream, scratch_of, with_exact_scratch};
use crate::domain::Domain;

/// Up to this size every evaluation is compared with the definition, above it a sample.
const EXHAUSTIVE: usize = 1 << 7;
const SAMPLES: usize = 6;

pub(super) fn check(backend: &dyn Backend, log_size: u32) {
    let domain = Domain::with_log_size(log_size).expect("a supported size");
    let n = domain.size();
    for (name, coefficients) in inputs(n) {
        let what = format!("{} 2^{log_size} {name}", backend.name());
        for (transform, inverse, shift) in [
            (Transform::Forward, Transform::Inverse, Scalar::ONE),
            (Transform::CosetForward, Transform::CosetInverse, domain.coset_shift()),
        ] {
            let evaluations = transformed(backend, &domain, &coefficients, transform);
            for (i, expected) in at_indices(&domain, shift, |x| evaluate(&coefficients, x)) {
                assert_eq!(evaluations[i], expected, "{what}: {transform:?} at {i}");
            }
            let back = transformed(backend, &domain, &evaluations, inverse);
            assert!(back == coefficients, "{what}: {inverse:?} does not undo {transform:?}");
        }
    }
    check_quotient(backend, &domain);
    check_refusals(backend, &domain);
}

fn inputs(n: usize) -> Vec<(&'static str, Vec<Scalar>)> {
    let mut stream = Stream::new(n as u64);
    let mut impulse = vec![Scalar::ZERO; n];
    impulse[n / 2] = -Scalar::ONE;
    vec![
        ("zeros", vec![Scalar::ZERO; n]),
        ("ones", vec![Scalar::ONE; n]),
        ("minus ones", vec![-Scalar::ONE; n]),
        ("one impulse", impulse),
        ("random", (0..n).map(|_| stream.next_scalar()).collect()),
    ]
}

/// All indices of a small vector; of a large one the ends, the middle and some others.
fn indices(n: usize) -> Vec<usize> {
    if n <= EXHAUSTIVE {
        return (0..n).collect();
    }
    let mut stream = Stream::new(7);
    let others = (0..SAMPLES).map(|_| stream.next_u64() as usize % n);
    [0, 1, n / 2 - 1, n / 2, n - 1].into_iter().chain(others).collect()
}

/// What `f` says at each of the indices' points, possibly in parallel.
fn at_indices<R: Send>(domain: &Domain, shift: Scalar, f: impl Fn(&Scalar) -> R + Sync) -> Vec<(usize, R)> {
    let indices = indices(domain.size());
    pool::map_indices(indices.len(), |which| {
        let i = indices[which];
        (i, f(&(shift * domain.omega().pow_vartime([i as u64]))))
    })
}

/// The polynomial at x, by Horner's rule.
fn evaluate(coefficients: &[Scalar], x: &Scalar) -> Scalar {
    coefficients.iter().rev().fold(Scalar::ZERO, |sum, coefficient| sum * x + coefficient)
}

fn transformed(backend: &dyn Backend, domain: &Domain, data: &[Scalar], transform: Transform) -> Vec<Scalar> {
    let mut data = data.to_vec();
    let footprint = backend.ntt_scratch_bytes(data.len(), plimsoll::pool::current_threads());
    with_exact_scratch(&format!("{transform:?}"), footprint, |scratch| {
        backend.ntt(domain, &mut data, transform, scratch)
    });
    data
}

/// For c = a·b on the domain (and one entry off), the quotient's values on the coset fulfil q·t = a·b − c there.
fn check_quotient(backend: &dyn Backend, domain: &Domain) {
    let n = domain.size();
    let what = format!("{} quotient 2^{}", backend.name(), domain.log_size());
    let mut stream = Stream::new(n as u64 + 1);
    let a: Vec<_> = (0..n).map(|_| stream.next_scalar()).collect();
    let b: Vec<_> = (0..n).map(|_| stream.next_scalar()).collect();
    let c: Vec<_> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
    let [mut quotient, mut b_used, mut c_used] = [a.clone(), b.clone(), c.clone()];
    let footprint = backend.quotient_scratch_bytes(n, plimsoll::pool::current_threads());
    with_exact_scratch(&what, footprint, |scratch| {
        let factor = domain.vanishing_on_coset_inverse();
        backend.quotient_on_coset(domain, &mut quotient, &mut b_used, &mut c_used, &factor, scratch)
    });
    if backend.quotient_vectors() < 3 {
        // With c in the place of b it is the same.
        let [mut in_two, mut second] = [a.clone(), b.clone()];
        let mut product = |scratch: &mut _| backend.product_on_coset(domain, &mut in_two, &mut second, scratch);
        with_exact_scratch(&what, footprint, &mut product);
        second.copy_from_slice(&c);
        with_exact_scratch(&what, footprint, |scratch| {
            let factor = domain.vanishing_on_coset_inverse();
            backend.subtract_on_coset(domain, &mut in_two, &mut second, &factor, scratch)
        });
        assert!(in_two == quotient, "{what} in two vectors");
    }
    let coefficients = [&a, &b, &c].map(|values| transformed(backend, domain, values, Transform::Inverse));
    let divided = |x: &Scalar| {
        let [a, b, c] = coefficients.each_ref().map(|polynomial| evaluate(polynomial, x));
        (domain.vanishing_at(x), a * b - c)
    };
    for (i, (vanishing, expected)) in at_indices(domain, domain.coset_shift(), divided) {
        assert_eq!(quotient[i] * vanishing, expected, "{what} at {i}");
    }
    // The division leaves no remainder, so the degree of the quotient is at most n − 2.
    let coefficients = transformed(backend, domain, &quotient, Transform::CosetInverse);
    assert_eq!(coefficients[n - 1], Scalar::ZERO, "{what}: the degree of the quotient");
}

fn check_refusals(backend: &dyn Backend, domain: &Domain) {
    let n = domain.size();
    let threads = plimsoll::pool::current_threads();
    let wrong = |result: Result<(), BackendError>| match result {
        Err(BackendError::LengthMismatch { .. }) => {}
        other => panic!("{}: a vector of another length must be refused, got {other:?}", backend.name()),
    };
    let mut long = vec![Scalar::ONE; n + 1];
    let mut fitting = vec![Scalar::ONE; n];
    let mut other = vec![Scalar::ONE; n];
    let mut scratch = scratch_of(backend.ntt_scratch_bytes(2 * n, threads));
    wrong(backend.ntt(domain, &mut long, Transform::Forward, &mut scratch));
    wrong(backend.ntt(domain, &mut long[..n - 1], Transform::Inverse, &mut scratch));
    wrong(backend.mul_sub_scale(&mut fitting, &long, &other, &Scalar::ONE));
    wrong(backend.mul_sub_scale(&mut fitting, &other, &long, &Scalar::ONE));
    let mut scratch = scratch_of(backend.quotient_scratch_bytes(2 * n, threads));
    wrong(backend.quotient_on_coset(domain, &mut fitting, &mut other, &mut long, &Scalar::ONE, &mut scratch));
    wrong(backend.product_on_coset(domain, &mut fitting, &mut long, &mut scratch));
    wrong(backend.subtract_on_coset(domain, &mut long, &mut other, &Scalar::ONE, &mut scratch));
    wrong(backend.subtract_on_coset(domain, &mut fitting, &mut long, &Scalar::ONE, &mut scratch));
}
