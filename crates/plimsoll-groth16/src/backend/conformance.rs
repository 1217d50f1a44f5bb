//! The harness that every backend must pass.
//!
//! It knows no backend: transforms are compared with their definition, multi-scalar multiplications with blstrs on bases
//! whose discrete logarithms are known (so that any size can be checked), quotients with their defining equation. Each
//! operation is handed exactly its footprint, must give it back, and must refuse a byte less.
//!
//! All functions panic with the name of the case on the first difference.

mod msm;
mod ntt;

use std::ops::RangeInclusive;

use blstrs::Scalar;
use ff::{Field, PrimeField};
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};

use super::{Backend, BackendError, CurveGroup};

const SCRATCH: Class = Class::new("scratch", Space::HOST);

/// Runs every check on sizes 2^`log_sizes` (and, for multiplications, on sizes beside the powers of two).
///
/// # Panics
///
/// When the backend fails a check.
pub fn check(backend: &dyn Backend, log_sizes: RangeInclusive<u32>) {
    let largest = 1 << log_sizes.end();
    for log_size in log_sizes {
        check_transforms(backend, log_size);
        check_msm(backend, CurveGroup::G1, 1 << log_size);
        check_msm(backend, CurveGroup::G2, 1 << log_size);
    }
    for n in [0, 3, 5, 31, 33, 100, 777].into_iter().filter(|n| *n <= largest) {
        check_msm(backend, CurveGroup::G1, n);
        check_msm(backend, CurveGroup::G2, n);
    }
}

/// Transforms, round trips and the quotient over the domain of 2^`log_size` points.
///
/// # Panics
///
/// When the backend fails a check.
pub fn check_transforms(backend: &dyn Backend, log_size: u32) {
    ntt::check(backend, log_size);
}

/// Multi-scalar multiplications of `n` terms, for every combination of bases and scalars that the harness knows.
///
/// # Panics
///
/// When the backend fails a check.
pub fn check_msm(backend: &dyn Backend, group: CurveGroup, n: usize) {
    match group {
        CurveGroup::G1 => msm::check(backend, group, n, |bases, scalars, scratch| {
            let sum = backend.msm_g1(bases, scalars, scratch)?;
            let mut own = scalars.to_vec();
            assert_eq!(backend.msm_g1_mut(bases, &mut own, scratch)?, sum, "{}: {n} terms in place", backend.name());
            assert!(own == scalars, "{}: {n} scalars are as they were", backend.name());
            Ok(sum)
        }),
        CurveGroup::G2 => msm::check(backend, group, n, |bases, scalars, scratch| {
            let sum = backend.msm_g2(bases, scalars, scratch)?;
            let mut own = scalars.to_vec();
            assert_eq!(backend.msm_g2_mut(bases, &mut own, scratch)?, sum, "{}: {n} terms in place", backend.name());
            assert!(own == scalars, "{}: {n} scalars are as they were", backend.name());
            Ok(sum)
        }),
    }
}

/// So many bytes to work with.
fn scratch_of(bytes: u64) -> Reservation {
    Ledger::unlimited().reserve(SCRATCH, Bytes(bytes)).wait().expect("an unlimited ledger grants everything")
}

/// Runs an operation with exactly `footprint` bytes and sees that they come back; then with a byte less, which must fail.
fn with_exact_scratch<R: std::fmt::Debug>(
    what: &str,
    footprint: u64,
    mut operation: impl FnMut(&mut Reservation) -> Result<R, BackendError>,
) -> R {
    if footprint > 0 {
        let mut scratch = scratch_of(footprint - 1);
        match operation(&mut scratch) {
            Err(BackendError::ScratchTooSmall { .. }) => {}
            other => panic!("{what}: scratch below the footprint must be refused, got {other:?}"),
        }
        assert_eq!(scratch.bytes().0, footprint - 1, "{what}: scratch after a refusal");
    }
    let mut scratch = scratch_of(footprint);
    let result = operation(&mut scratch).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(scratch.bytes().0, footprint, "{what}: scratch given back");
    result
}

/// A deterministic stream of field elements without structure that matters here: x ← x² + 5.
#[derive(Debug)]
struct Stream(Scalar);

impl Stream {
    fn new(seed: u64) -> Self {
        let mut stream = Self(Scalar::from(seed) + Scalar::MULTIPLICATIVE_GENERATOR);
        for _ in 0..10 {
            stream.next_scalar();
        }
        stream
    }

    fn next_scalar(&mut self) -> Scalar {
        self.0 = self.0.square() + Scalar::from(5);
        self.0
    }

    fn next_u64(&mut self) -> u64 {
        let bytes = self.next_scalar().to_repr();
        bytes[..8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::pool::{Pool, PoolConfig};

    use super::super::scratch::low_water;
    use super::super::{Cpu, Reference, Transform};
    use super::*;
    use crate::domain::Domain;

    #[test]
    fn reference_conforms() {
        check(&Reference, 0..=5);
    }

    #[test]
    fn cpu_conforms() {
        check(&Cpu::new(), 0..=7);
        for log_size in [10, 12] {
            check_transforms(&Cpu::new(), log_size);
        }
        check_msm(&Cpu::new(), CurveGroup::G1, 1 << 12);
        check_msm(&Cpu::new(), CurveGroup::G2, 1 << 10);
    }

    #[test]
    fn cpu_conforms_on_several_threads() {
        for threads in [2, 5] {
            in_pool(threads, || {
                for log_size in [1, 6, 13] {
                    check_transforms(&Cpu::new(), log_size);
                }
                for n in [37, 2000] {
                    check_msm(&Cpu::new(), CurveGroup::G1, n);
                    check_msm(&Cpu::new(), CurveGroup::G2, n);
                }
            });
        }
    }

    /// That a footprint is never exceeded is seen by every check, which hands in no more. Here: nearly all of it is used.
    #[test]
    fn cpu_footprints_are_tight() {
        for threads in [1, 3] {
            in_pool(threads, || (0..=14).for_each(|log_size| check_tight(&Cpu::new(), log_size, threads)));
        }
    }

    fn in_pool(threads: usize, f: impl FnOnce() + Send) {
        let pool = Pool::new(PoolConfig { threads, ..PoolConfig::default() }).expect("a few threads");
        pool.install(f);
    }

    fn check_tight(backend: &dyn Backend, log_size: u32, threads: usize) {
        let n = 1 << log_size;
        let mut stream = Stream::new(5);
        let scalars: Vec<_> = (0..n).map(|_| stream.next_scalar()).collect();
        let tight = |what: &str, footprint: u64, operation: &mut dyn FnMut(&mut Reservation)| {
            low_water::take();
            operation(&mut scratch_of(footprint));
            let unused = low_water::take();
            assert!(unused <= footprint / 10, "{what} 2^{log_size}: {unused} of {footprint} bytes were not used");
        };
        let domain = Domain::with_log_size(log_size).expect("a supported size");
        let mut data = scalars.clone();
        tight("ntt", backend.ntt_scratch_bytes(n, threads), &mut |scratch| {
            backend.ntt(&domain, &mut data, Transform::CosetForward, scratch).expect("enough scratch");
        });
        let [mut a, mut b, mut c] = [scalars.clone(), scalars.clone(), scalars.clone()];
        tight("quotient", backend.quotient_scratch_bytes(n, threads), &mut |scratch| {
            backend.quotient_on_coset(&domain, &mut a, &mut b, &mut c, &Scalar::ONE, scratch).expect("enough scratch");
        });
        let points = vec![<blstrs::G1Affine as group::prime::PrimeCurveAffine>::generator(); n];
        tight("msm_g1", backend.msm_scratch_bytes(CurveGroup::G1, n, threads), &mut |scratch| {
            backend.msm_g1(&points, &scalars, scratch).expect("enough scratch");
        });
        let points = vec![<blstrs::G2Affine as group::prime::PrimeCurveAffine>::generator(); n];
        tight("msm_g2", backend.msm_scratch_bytes(CurveGroup::G2, n, threads), &mut |scratch| {
            backend.msm_g2(&points, &scalars, scratch).expect("enough scratch");
        });
    }
}
