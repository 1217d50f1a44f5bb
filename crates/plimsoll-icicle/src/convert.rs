//! blstrs's values as ICICLE has them, and back.
//!
//! | | blstrs | ICICLE |
//! |---|---|---|
//! | scalar, 32 bytes | Montgomery | standard; Montgomery where a flag says so |
//! | affine point, 96 or 192 bytes | Montgomery, infinity (0, 0) | standard, infinity (0, 0) |
//! | sum, 144 or 288 bytes | Jacobian: x = X/Z², y = Y/Z³ | homogeneous: x = X/Z, y = Y/Z, infinity (0, 1, 0) |
//!
//! Numbers are little-endian on both sides. Scalars and points cross as they lie in memory, and are converted on the device, or
//! not at all; sums are converted here.

use blst::{blst_fp, blst_fp2};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::Group;
use group::prime::PrimeCurveAffine;
use plimsoll_groth16::backend::{Coordinate, CurveGroup, base_element};

/// A field element's bytes.
const FP: usize = 48;

/// R² mod p for R = 2^384: a Montgomery multiplication by it takes a standard form to its Montgomery form.
const R_SQUARED: blst_fp = blst_fp {
    l: [
        0xf4df_1f34_1c34_1746,
        0x0a76_e6a6_09d1_04f1,
        0x8de5_476c_4c95_b6d5,
        0x67eb_88a9_939d_83c0,
        0x9a79_3e85_b519_952d,
        0x1198_8fe5_92ca_e3aa,
    ],
};

/// A group as ICICLE computes in it.
pub(crate) trait IcicleCurve: PrimeCurveAffine<Scalar = Scalar> + Send + Sync + 'static {
    /// Which of the two it is.
    const GROUP: CurveGroup;

    /// A sum out of ICICLE's homogeneous coordinates; `None` if they are no field elements, or no point of the curve.
    fn sum(bytes: &[u8]) -> Option<Self::Curve>;
}

/// The bytes of an affine point.
pub(crate) const fn affine_bytes(group: CurveGroup) -> u64 {
    match group {
        CurveGroup::G1 => 96,
        CurveGroup::G2 => 192,
    }
}

/// The bytes of a sum.
pub(crate) const fn projective_bytes(group: CurveGroup) -> u64 {
    match group {
        CurveGroup::G1 => 144,
        CurveGroup::G2 => 288,
    }
}

fn fp(bytes: &[u8]) -> Option<blst_fp> {
    Some(base_element(bytes)?.mul(&R_SQUARED))
}

fn fp2(bytes: &[u8]) -> Option<blst_fp2> {
    let (c0, c1) = bytes.split_at_checked(FP)?;
    Some(blst_fp2 { fp: [fp(c0)?, fp(c1)?] })
}

/// (X, Y, Z) → (XZ, YZ², Z).
fn jacobian<F: Coordinate>(bytes: &[u8], coordinate: impl Fn(&[u8]) -> Option<F>) -> Option<(F, F, F)> {
    if !bytes.len().is_multiple_of(3) {
        return None;
    }
    let (x, rest) = bytes.split_at(bytes.len() / 3);
    let (y, z) = rest.split_at(bytes.len() / 3);
    let (x, y, z) = (coordinate(x)?, coordinate(y)?, coordinate(z)?);
    Some((x.mul(&z), y.mul(&z.square()), z))
}

impl IcicleCurve for G1Affine {
    const GROUP: CurveGroup = CurveGroup::G1;

    fn sum(bytes: &[u8]) -> Option<G1Projective> {
        let (x, y, z) = jacobian(bytes, fp)?;
        if z.is_zero() {
            return Some(G1Projective::identity());
        }
        let point = G1Projective::from_raw_unchecked(x.into(), y.into(), z.into());
        bool::from(point.is_on_curve()).then_some(point)
    }
}

impl IcicleCurve for G2Affine {
    const GROUP: CurveGroup = CurveGroup::G2;

    fn sum(bytes: &[u8]) -> Option<G2Projective> {
        let (x, y, z) = jacobian(bytes, fp2)?;
        if z.is_zero() {
            return Some(G2Projective::identity());
        }
        let point = G2Projective::from_raw_unchecked(x.into(), y.into(), z.into());
        bool::from(point.is_on_curve()).then_some(point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Montgomery form's standard form, as ICICLE has it.
    fn standard(value: blst_fp) -> Vec<u8> {
        let one = blst_fp { l: [1, 0, 0, 0, 0, 0] };
        value.mul(&one).l.iter().flat_map(|limb| limb.to_le_bytes()).collect()
    }

    fn small(value: u64) -> blst_fp {
        blst_fp { l: [value, 0, 0, 0, 0, 0] }.mul(&R_SQUARED)
    }

    fn bytes_of_g1(point: &G1Affine, z: blst_fp) -> Vec<u8> {
        let (x, y) = (blst_fp::from(point.x()), blst_fp::from(point.y()));
        [x.mul(&z), y.mul(&z), z].into_iter().flat_map(standard).collect()
    }

    fn bytes_of_g2(point: &G2Affine, z: blst_fp2) -> Vec<u8> {
        let (x, y) = (blst_fp2::from(point.x()), blst_fp2::from(point.y()));
        [x.mul(&z), y.mul(&z), z].into_iter().flat_map(|c| c.fp).flat_map(standard).collect()
    }

    #[test]
    fn a_sum_is_the_same_point_whatever_its_z() {
        let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
        for z in [1, 2, 0xffff_ffff_u64] {
            assert_eq!(G1Affine::sum(&bytes_of_g1(&g1, small(z))), Some(g1.into()));
            let z = blst_fp2 { fp: [small(z), small(3)] };
            assert_eq!(G2Affine::sum(&bytes_of_g2(&g2, z)), Some(g2.into()));
        }
    }

    #[test]
    fn infinity_is_0_1_0() {
        let zero = vec![0; FP];
        let one = standard(blst_fp::one());
        assert_eq!(one[0], 1);
        let infinity = [&zero[..], &one, &zero].concat();
        assert_eq!(G1Affine::sum(&infinity), Some(G1Projective::identity()));
        let infinity = [&zero[..], &zero, &one, &zero, &zero, &zero].concat();
        assert_eq!(G2Affine::sum(&infinity), Some(G2Projective::identity()));
    }

    #[test]
    fn what_is_no_point_is_none() {
        let mut off = bytes_of_g1(&G1Affine::generator(), small(1));
        off[FP] ^= 1;
        assert_eq!(G1Affine::sum(&off), None);
        assert_eq!(G1Affine::sum(&[0xff; 144]), None);
        assert_eq!(G1Affine::sum(&[0; 143]), None);
        let modulus: Vec<u8> =
            plimsoll_groth16::backend::BASE_MODULUS.iter().flat_map(|limb| limb.to_le_bytes()).collect();
        assert!(fp(&modulus).is_none(), "p itself is not reduced");
        let mut off = bytes_of_g2(&G2Affine::generator(), blst_fp2 { fp: [small(1), small(0)] });
        off[0] ^= 1;
        assert_eq!(G2Affine::sum(&off), None);
    }
}
