//! Multi-scalar multiplications against one multiplication of the generator.

use std::fmt::Debug;

use blstrs::Scalar;
use ff::Field;
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};

use plimsoll::{Reservation, pool};

use super::super::{Backend, BackendError, CurveGroup};
use super::{Stream, scratch_of, with_exact_scratch};

/// Up to this many terms, all bases meet all scalars.
const EXHAUSTIVE: usize = 1 << 6;

pub(super) fn check<C>(
    backend: &dyn Backend,
    group: CurveGroup,
    n: usize,
    msm: impl Fn(&[C], &[Scalar], &mut Reservation) -> Result<C::Curve, BackendError>,
) where
    C: PrimeCurveAffine<Scalar = Scalar> + Debug,
    C::Curve: Curve<AffineRepr = C>,
{
    let footprint = backend.msm_scratch_bytes(group, n, pool::current_threads());
    for (bases_index, (bases_name, logarithms)) in bases(n).into_iter().enumerate() {
        let points = points_of::<C>(&logarithms);
        for (scalars_index, (scalars_name, scalars)) in scalars(n).into_iter().enumerate() {
            // Every pair when small; when large every bases with random scalars, every scalars with random bases.
            if n > EXHAUSTIVE && bases_index > 0 && scalars_index > 0 {
                continue;
            }
            let what = format!("{} {group:?} {n} terms, bases {bases_name}, scalars {scalars_name}", backend.name());
            let sum = with_exact_scratch(&what, footprint, |scratch| msm(&points, &scalars, scratch));
            let expected = inner_product(&logarithms, &scalars);
            assert_eq!(sum, C::generator() * expected, "{what}");
        }
    }
    let points = points_of::<C>(&vec![Scalar::ONE; n + 1]);
    let mut scratch = scratch_of(backend.msm_scratch_bytes(group, n + 1, pool::current_threads()));
    match msm(&points, &vec![Scalar::ONE; n], &mut scratch) {
        Err(BackendError::LengthMismatch { .. }) => {}
        other => panic!("{}: more bases than scalars must be refused, got {other:?}", backend.name()),
    }
}

/// The bases by their logarithms to the generator.
fn bases(n: usize) -> Vec<(&'static str, Vec<Scalar>)> {
    let mut stream = Stream::new(1);
    let mut log = stream.next_scalar();
    let random: Vec<_> = (0..n)
        .map(|i| {
            log = if i < EXHAUSTIVE { stream.next_scalar() } else { log + step() };
            log
        })
        .collect();
    let one_of = |period: usize| (0..n).map(|i| random[i / period * period]).collect::<Vec<_>>();
    let pairs = (0..n).map(|i| if i % 2 == 0 { random[i] } else { -random[i - 1] }).collect();
    let infinity = (0..n).map(|i| if i % 3 == 1 { Scalar::ZERO } else { random[i] }).collect();
    vec![
        ("random", random.clone()),
        ("all the same", one_of(n.max(1))),
        ("in threes", one_of(3)),
        ("P and -P", pairs),
        ("a third at infinity", infinity),
        ("all at infinity", vec![Scalar::ZERO; n]),
    ]
}

/// Scalars as they come in witnesses, and such as break window arithmetic.
fn scalars(n: usize) -> Vec<(&'static str, Vec<Scalar>)> {
    let mut stream = Stream::new(2);
    let mut make = |f: &mut dyn FnMut(usize, &mut Stream) -> Scalar| -> Vec<Scalar> {
        (0..n).map(|i| f(i, &mut stream)).collect()
    };
    let two = Scalar::from(2);
    let half = two.invert().expect("not zero");
    let same = Stream::new(3).next_scalar();
    let powers: Vec<_> = std::iter::successors(Some(Scalar::ONE), |power| Some(power.double())).take(255).collect();
    vec![
        ("random", make(&mut |_, stream| stream.next_scalar())),
        ("zero", make(&mut |_, _| Scalar::ZERO)),
        ("one", make(&mut |_, _| Scalar::ONE)),
        ("minus one", make(&mut |_, _| -Scalar::ONE)),
        ("bytes", make(&mut |_, stream| Scalar::from(stream.next_u64() & 255))),
        ("negative bytes", make(&mut |_, stream| -Scalar::from(stream.next_u64() & 255))),
        ("words", make(&mut |_, stream| Scalar::from(stream.next_u64()))),
        ("half equal 2", make(&mut |i, stream| if i % 2 == 0 { two } else { stream.next_scalar() })),
        ("powers of two", make(&mut |i, _| powers[i % 255])),
        ("powers of two less one", make(&mut |i, _| powers[i % 255] - Scalar::ONE)),
        ("near half the order", make(&mut |i, _| half + Scalar::from(i as u64 / 2))),
        (
            "mostly bits",
            make(&mut |i, stream| match i % 16 {
                15 => stream.next_scalar(),
                _ => Scalar::from(stream.next_u64() & 1),
            }),
        ),
        ("the same random one", make(&mut |_, _| same)),
    ]
}

/// From the [`EXHAUSTIVE`]th base on, logarithms go up by this, so that large sets of points are quick to make.
fn step() -> Scalar {
    Stream::new(4).next_scalar()
}

fn inner_product(a: &[Scalar], b: &[Scalar]) -> Scalar {
    let parts = pool::map_indices(a.len().div_ceil(CHUNK), |part| {
        let range = part * CHUNK..((part + 1) * CHUNK).min(a.len());
        a[range.clone()].iter().zip(&b[range]).map(|(a, b)| a * b).sum::<Scalar>()
    });
    parts.into_iter().sum()
}

/// How many points or products a task makes.
const CHUNK: usize = 1 << 12;

fn points_of<C>(logarithms: &[Scalar]) -> Vec<C>
where
    C: PrimeCurveAffine<Scalar = Scalar>,
    C::Curve: Curve<AffineRepr = C>,
{
    // Most points are a few steps from the one before, or from its negative.
    let few: [Scalar; 4] = std::array::from_fn(|steps| step() * Scalar::from(steps as u64));
    let few_points = few.map(|log| C::generator() * log);
    let mut points = vec![C::identity(); logarithms.len()];
    pool::for_each_chunk(&mut points, CHUNK, |first, points| {
        let (mut last_log, mut last) = (Scalar::ZERO, C::Curve::identity());
        let projective: Vec<C::Curve> = logarithms[first..first + points.len()]
            .iter()
            .map(|log| {
                if *log == Scalar::ZERO {
                    return C::Curve::identity();
                }
                let steps_from = |from: Scalar| few.iter().position(|few| *log - from == *few);
                last = match (steps_from(last_log), steps_from(-last_log)) {
                    (Some(steps), _) => last + few_points[steps],
                    (_, Some(steps)) => -last + few_points[steps],
                    _ => C::generator() * log,
                };
                last_log = *log;
                last
            })
            .collect();
        C::Curve::batch_normalize(&projective, points);
    });
    points
}
