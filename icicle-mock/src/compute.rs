//! The arithmetic, with blstrs.

use blst::{blst_fp, blst_fp_from_lendian, blst_fp_mul, blst_fp2, blst_fp2_mul, blst_lendian_from_fp};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};

/// A scalar out of its standard form.
pub(crate) fn standard(bytes: &[u8]) -> Option<Scalar> {
    Scalar::from_bytes_le(bytes.try_into().ok()?).into()
}

/// A scalar out of its Montgomery form.
pub(crate) fn montgomery(bytes: &[u8]) -> Option<Scalar> {
    // The standard form of x·R is the Montgomery form of x, so this is x.
    Some(standard(bytes)? * r_inverse())
}

/// 1/R for R = 2^256.
fn r_inverse() -> Scalar {
    Option::from(Scalar::from(2).pow_vartime([256]).invert()).expect("two is not zero")
}

fn fp_in(bytes: &[u8]) -> blst_fp {
    let mut value = blst_fp::default();
    // SAFETY: 48 bytes, as the callers' chunks are.
    unsafe { blst_fp_from_lendian(&mut value, bytes[..48].as_ptr()) };
    value
}

fn fp_out(value: &blst_fp) -> [u8; 48] {
    let mut bytes = [0; 48];
    // SAFETY: 48 bytes.
    unsafe { blst_lendian_from_fp(bytes.as_mut_ptr(), value) };
    bytes
}

fn fp_mul(a: &blst_fp, b: &blst_fp) -> blst_fp {
    let mut out = blst_fp::default();
    // SAFETY: values of blst's.
    unsafe { blst_fp_mul(&mut out, a, b) };
    out
}

fn fp2_mul(a: &blst_fp2, b: &blst_fp2) -> blst_fp2 {
    let mut out = blst_fp2::default();
    // SAFETY: values of blst's.
    unsafe { blst_fp2_mul(&mut out, a, b) };
    out
}

/// A group, as the interface has its points.
pub(crate) trait Group2: PrimeCurveAffine<Scalar = Scalar> {
    const AFFINE: usize;
    const PROJECTIVE: usize;
    fn read(bytes: &[u8]) -> Self;
    fn write(sum: &Self::Curve, out: &mut [u8]);
    fn multi_exp(points: &[Self::Curve], scalars: &[Scalar]) -> Self::Curve;
    /// Takes a point out of Montgomery form, in place.
    fn convert(bytes: &mut [u8]);
}

/// Coordinates of 48 bytes, from Montgomery form to standard form.
fn convert(bytes: &mut [u8]) {
    for coordinate in bytes.chunks_exact_mut(48) {
        let (words, _) = coordinate.as_chunks::<8>();
        let mut value = blst_fp::default();
        for (limb, word) in value.l.iter_mut().zip(words) {
            *limb = u64::from_le_bytes(*word);
        }
        coordinate.copy_from_slice(&fp_out(&value));
    }
}

impl Group2 for G1Affine {
    const AFFINE: usize = 96;
    const PROJECTIVE: usize = 144;

    fn read(bytes: &[u8]) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            return Self::identity();
        }
        Self::from_raw_unchecked(fp_in(&bytes[..48]).into(), fp_in(&bytes[48..]).into(), false)
    }

    fn write(sum: &G1Projective, out: &mut [u8]) {
        let affine = sum.to_affine();
        let z = fp_in(&[3; 48]);
        let [x, y]: [blst_fp; 2] = [affine.x().into(), affine.y().into()];
        let coordinates = match bool::from(affine.is_identity()) {
            true => [blst_fp::default(), fp_in(&one()), blst_fp::default()],
            false => [fp_mul(&x, &z), fp_mul(&y, &z), z],
        };
        for (to, from) in out.chunks_exact_mut(48).zip(&coordinates) {
            to.copy_from_slice(&fp_out(from));
        }
    }

    fn multi_exp(points: &[G1Projective], scalars: &[Scalar]) -> G1Projective {
        G1Projective::multi_exp(points, scalars)
    }

    fn convert(bytes: &mut [u8]) {
        convert(bytes);
    }
}

impl Group2 for G2Affine {
    const AFFINE: usize = 192;
    const PROJECTIVE: usize = 288;

    fn read(bytes: &[u8]) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            return Self::identity();
        }
        let fp2 = |bytes: &[u8]| blst_fp2 { fp: [fp_in(&bytes[..48]), fp_in(&bytes[48..])] };
        Self::from_raw_unchecked(fp2(&bytes[..96]).into(), fp2(&bytes[96..]).into(), false)
    }

    fn write(sum: &G2Projective, out: &mut [u8]) {
        let affine = sum.to_affine();
        let z = blst_fp2 { fp: [fp_in(&[3; 48]), fp_in(&[5; 48])] };
        let [x, y]: [blst_fp2; 2] = [affine.x().into(), affine.y().into()];
        let coordinates = match bool::from(affine.is_identity()) {
            true => [blst_fp2::default(), blst_fp2 { fp: [fp_in(&one()), blst_fp::default()] }, blst_fp2::default()],
            false => [fp2_mul(&x, &z), fp2_mul(&y, &z), z],
        };
        for (to, from) in out.chunks_exact_mut(48).zip(coordinates.iter().flat_map(|value| &value.fp)) {
            to.copy_from_slice(&fp_out(from));
        }
    }

    fn multi_exp(points: &[G2Projective], scalars: &[Scalar]) -> G2Projective {
        G2Projective::multi_exp(points, scalars)
    }

    fn convert(bytes: &mut [u8]) {
        convert(bytes);
    }
}

fn one() -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[0] = 1;
    bytes
}

/// Σ scalar·point.
pub(crate) fn sum<G: Group2>(scalars: &[Scalar], points: &[u8]) -> G::Curve {
    let pairs = points.chunks_exact(G::AFFINE).map(G::read).zip(scalars);
    let (points, scalars): (Vec<G::Curve>, Vec<Scalar>) =
        pairs.filter(|(point, _)| !bool::from(point.is_identity())).map(|(p, s)| (p.to_curve(), *s)).unzip();
    if points.is_empty() { G::Curve::identity() } else { G::multi_exp(&points, &scalars) }
}

/// The transform over the powers of `root`, whose order is the length, in natural order.
pub(crate) fn transform(data: &mut [Scalar], root: Scalar) {
    let n = data.len();
    let bits = n.trailing_zeros();
    for i in 0..n {
        let j = if bits == 0 { 0 } else { i.reverse_bits() >> (usize::BITS - bits) };
        if i < j {
            data.swap(i, j);
        }
    }
    let mut half = 1;
    while half < n {
        let step = root.pow_vartime([(n / (2 * half)) as u64]);
        let twiddles: Vec<Scalar> = std::iter::successors(Some(Scalar::ONE), |t| Some(*t * step)).take(half).collect();
        for block in data.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for ((a, b), t) in low.iter_mut().zip(high).zip(&twiddles) {
                let product = *b * t;
                *b = *a - product;
                *a += product;
            }
        }
        half *= 2;
    }
}
