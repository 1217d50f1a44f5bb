//! Conformance: the harness that all backends pass, and closed forms for sizes that it would take too long for.

use std::time::Instant;

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::{Field, PrimeField};
use group::Curve;
use group::prime::PrimeCurveAffine;
use plimsoll::Bytes;
use plimsoll_cuda::{Cuda, CudaDriver};
use plimsoll_groth16::backend::{Backend, BackendError, CurveGroup, Transform, conformance};
use plimsoll_groth16::domain::Domain;

use crate::{Outcome, arena_bytes, number, say};

pub(crate) fn run(args: &[String]) -> Outcome {
    let (low, high) = (number(args, 0, 0)?, number(args, 1, 12)?);
    let cuda = Cuda::alone(CudaDriver::open(0, arena_bytes(16 << 10))?)?;
    // What the harness compares with is computed on all of the machine's cores.
    let pool = crate::prove::pool()?;
    for log_size in low..=high {
        let started = Instant::now();
        pool.install(|| conformance::check_transforms(&cuda, log_size));
        let transforms = started.elapsed().as_secs_f64();
        for group in [CurveGroup::G1, CurveGroup::G2] {
            pool.install(|| conformance::check_msm(&cuda, group, 1 << log_size));
        }
        say(&format!(
            "2^{log_size}: conforms ({transforms:.2} s transforms, {:.2} s all)",
            started.elapsed().as_secs_f64()
        ));
    }
    for n in [0, 3, 5, 31, 33, 100, 777, 5000].into_iter().filter(|n| *n <= 1 << high) {
        for group in [CurveGroup::G1, CurveGroup::G2] {
            conformance::check_msm(&cuda, group, n);
        }
    }
    say("odd sizes: conform");
    assert_eq!(cuda.device().driver().used_bytes(), 0, "everything was given back");
    Ok(())
}

/// Σ i·G over many points that are powers of few: the sum has a closed form however many terms there are. Transforms of a
/// geometric series: Σ (c·x)^i has one too.
pub(crate) fn large(args: &[String]) -> Outcome {
    let (low, high) = (number(args, 0, 21)?, number(args, 1, 24)?);
    let cuda = Cuda::alone(CudaDriver::open(0, arena_bytes(64 << 10))?)?;
    for log_size in low..=high {
        let started = Instant::now();
        let n = 1_usize << log_size;
        transform(&cuda, log_size)?;
        multiplication::<G1Affine>(n, "G1", |points, scalars| cuda.msm_g1(points, scalars, &mut nothing()))?;
        if log_size <= 24 {
            multiplication::<G2Affine>(n, "G2", |points, scalars| cuda.msm_g2(points, scalars, &mut nothing()))?;
        }
        say(&format!("2^{log_size}: closed forms hold ({:.1} s)", started.elapsed().as_secs_f64()));
    }
    Ok(())
}

pub(crate) fn nothing() -> plimsoll::Reservation {
    scratch(0)
}

pub(crate) fn scratch(bytes: u64) -> plimsoll::Reservation {
    const SCRATCH: plimsoll::Class = plimsoll::Class::new("scratch", plimsoll::Space::HOST);
    plimsoll::Ledger::unlimited().reserve(SCRATCH, Bytes(bytes)).wait().expect("an unlimited ledger grants everything")
}

/// The coefficients c^i: the evaluation at x is ((c·x)^n − 1)/(c·x − 1).
fn transform(cuda: &Cuda, log_size: u32) -> Outcome {
    let domain = Domain::with_log_size(log_size).ok_or("the domain is too large")?;
    let n = domain.size();
    let ratio = Scalar::from(0x1234_5678_9abc_def1);
    let mut power = Scalar::ONE;
    let coefficients: Vec<Scalar> = (0..n)
        .map(|_| {
            let coefficient = power;
            power *= ratio;
            coefficient
        })
        .collect();
    for (forward, inverse, shift) in [
        (Transform::Forward, Transform::Inverse, Scalar::ONE),
        (Transform::CosetForward, Transform::CosetInverse, domain.coset_shift()),
    ] {
        let mut data = coefficients.clone();
        cuda.ntt(&domain, &mut data, forward, &mut nothing())?;
        for i in [0, 1, 2, n / 3, n / 2, n / 2 + 1, n - 2, n - 1] {
            let x = ratio * shift * domain.omega().pow_vartime([i as u64]);
            let expected = (x.pow_vartime([n as u64]) - Scalar::ONE)
                * Option::<Scalar>::from((x - Scalar::ONE).invert()).ok_or("x is 1")?;
            if data[i] != expected {
                return Err(format!("{forward:?} of 2^{log_size} is wrong at {i}").into());
            }
        }
        cuda.ntt(&domain, &mut data, inverse, &mut nothing())?;
        if data != coefficients {
            return Err(format!("{inverse:?} of 2^{log_size} does not undo {forward:?}").into());
        }
    }
    Ok(())
}

/// 2^12 different points again and again: the sum is that of 2^12 points with the scalars' sums.
fn multiplication<P: PrimeCurveAffine<Scalar = Scalar>>(
    n: usize,
    name: &str,
    msm: impl Fn(&[P], &[Scalar]) -> Result<P::Curve, BackendError>,
) -> Outcome
where
    P::Curve: Curve<AffineRepr = P>,
{
    const DIFFERENT: usize = 1 << 12;
    let mut logs = Vec::with_capacity(DIFFERENT);
    let mut few = Vec::with_capacity(DIFFERENT);
    for i in 0..DIFFERENT {
        let log = Scalar::from(i as u64 * i as u64 + 3);
        logs.push(log);
        few.push((P::generator() * log).to_affine());
    }
    let points: Vec<P> = (0..n).map(|i| few[i % DIFFERENT]).collect();
    let random = random_scalars(n);
    let half: Vec<Scalar> =
        random.iter().enumerate().map(|(i, &value)| if i % 2 == 0 { random[1] } else { value }).collect();
    let bits: Vec<Scalar> = random
        .iter()
        .enumerate()
        .map(|(i, &value)| if i % 16 == 0 { value } else { Scalar::from(i as u64 / 3 % 2) })
        .collect();
    for (kind, scalars) in [("random", &random), ("half equal", &half), ("mostly bits", &bits)] {
        let expected: Scalar = scalars.iter().enumerate().map(|(i, scalar)| logs[i % DIFFERENT] * scalar).sum();
        if msm(&points, scalars)? != P::generator() * expected {
            return Err(format!("{name} with {n} terms, {kind}, is wrong").into());
        }
    }
    Ok(())
}

/// Scalars without structure that matters here: x ← x² + 5, in several chains so that it does not take for ever.
pub(crate) fn random_scalars(n: usize) -> Vec<Scalar> {
    let mut scalars = vec![Scalar::ZERO; n];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let chunk = n.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (index, part) in scalars.chunks_mut(chunk).enumerate() {
            scope.spawn(move || {
                let mut x = Scalar::from(index as u64 + 11).square() + Scalar::ROOT_OF_UNITY;
                for scalar in part {
                    x = x.square() + Scalar::from(5);
                    *scalar = x;
                }
            });
        }
    });
    scalars
}
