//! blst's field arithmetic behind safe functions: the only unsafe code of this backend.

use blst::{blst_fp, blst_fp2, blst_fr};
use blstrs::Scalar;

/// A field over which a curve's coordinates lie: the base field or its quadratic extension, as blst lays them out
/// (Montgomery form, reduced, so that equal elements have equal bytes).
pub trait Coordinate: Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// The neutral element of multiplication; that of addition is the default.
    fn one() -> Self;
    /// self + other.
    fn add(&self, other: &Self) -> Self;
    /// self − other.
    fn sub(&self, other: &Self) -> Self;
    /// −self if `negative`, else self, without a branch.
    fn negated_if(&self, negative: bool) -> Self;
    /// self · other.
    fn mul(&self, other: &Self) -> Self;
    /// self².
    fn square(&self) -> Self;
    /// 1/self; zero for zero. Takes variable time.
    fn invert(&self) -> Self;

    /// Whether this is the neutral element of addition.
    fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

macro_rules! coordinate {
    ($field:ty, $one:expr, $add:ident, $sub:ident, $cneg:ident, $mul:ident, $sqr:ident, $inverse:ident) => {
        impl Coordinate for $field {
            #[inline]
            fn one() -> Self {
                $one
            }

            #[inline]
            fn add(&self, other: &Self) -> Self {
                let mut out = Self::default();
                // SAFETY: all pointers come from references to distinct or read-only elements and are not kept.
                unsafe { blst::$add(&mut out, self, other) };
                out
            }

            #[inline]
            fn sub(&self, other: &Self) -> Self {
                let mut out = Self::default();
                // SAFETY: as in `add`.
                unsafe { blst::$sub(&mut out, self, other) };
                out
            }

            #[inline]
            fn negated_if(&self, negative: bool) -> Self {
                let mut out = Self::default();
                // SAFETY: as in `add`.
                unsafe { blst::$cneg(&mut out, self, negative) };
                out
            }

            #[inline]
            fn mul(&self, other: &Self) -> Self {
                let mut out = Self::default();
                // SAFETY: as in `add`.
                unsafe { blst::$mul(&mut out, self, other) };
                out
            }

            #[inline]
            fn square(&self) -> Self {
                let mut out = Self::default();
                // SAFETY: as in `add`.
                unsafe { blst::$sqr(&mut out, self) };
                out
            }

            fn invert(&self) -> Self {
                let mut out = Self::default();
                // SAFETY: as in `add`.
                unsafe { blst::$inverse(&mut out, self) };
                out
            }
        }
    };
}

/// 2^384 mod p, which is 1 in Montgomery form.
const FP_ONE: blst_fp = blst_fp {
    l: [
        0x7609_0000_0002_fffd,
        0xebf4_000b_c40c_0002,
        0x5f48_9857_53c7_58ba,
        0x77ce_5853_7052_5745,
        0x5c07_1a97_a256_ec6d,
        0x15f6_5ec3_fa80_e493,
    ],
};

coordinate!(blst_fp, FP_ONE, blst_fp_add, blst_fp_sub, blst_fp_cneg, blst_fp_mul, blst_fp_sqr, blst_fp_eucl_inverse);
coordinate!(
    blst_fp2,
    blst_fp2 { fp: [FP_ONE, blst_fp { l: [0; 6] }] },
    blst_fp2_add,
    blst_fp2_sub,
    blst_fp2_cneg,
    blst_fp2_mul,
    blst_fp2_sqr,
    blst_fp2_eucl_inverse
);

/// The scalar as blst knows it.
fn raw_mut(scalar: &mut Scalar) -> *mut blst_fr {
    // `Scalar` is `repr(transparent)` over `blst_fr`.
    std::ptr::from_mut(scalar).cast()
}

/// The scalar as blst knows it.
fn raw(scalar: &Scalar) -> *const blst_fr {
    // `Scalar` is `repr(transparent)` over `blst_fr`.
    std::ptr::from_ref(scalar).cast()
}

/// (x0, x1) ← (x0 + t·x1, x0 − t·x1).
#[inline]
pub(super) fn butterfly_before(x0: &mut Scalar, x1: &mut Scalar, twiddle: &Scalar) {
    // SAFETY: the three pointers come from references, so they are valid and aligned, and the two that are written are
    // distinct; the function keeps none of them.
    unsafe { blst::blst_fr_ct_bfly(raw_mut(x0), raw_mut(x1), raw(twiddle)) }
}

/// (x0, x1) ← (x0 + x1, t·(x0 − x1)).
#[inline]
pub(super) fn butterfly_after(x0: &mut Scalar, x1: &mut Scalar, twiddle: &Scalar) {
    // SAFETY: as in `butterfly_before`.
    unsafe { blst::blst_fr_gs_bfly(raw_mut(x0), raw_mut(x1), raw(twiddle)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_field<F: Coordinate + std::fmt::Debug>() {
        let one = F::one();
        let three = one.add(&one).add(&one);
        assert_eq!(three.mul(&one), three);
        assert_eq!(three.square(), three.add(&three).add(&three));
        assert_eq!(three.mul(&three.invert()), one);
        assert_eq!(three.sub(&three), F::default());
        assert_eq!(three.add(&three.negated_if(true)), F::default());
        assert_eq!(F::default().negated_if(true), F::default());
        assert_eq!(three.negated_if(false), three);
        assert!(F::default().invert().is_zero());
    }

    #[test]
    fn coordinates_are_fields() {
        check_field::<blst_fp>();
        check_field::<blst_fp2>();
    }
}
