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
    fn is_zero(&self) -> bool;
}

/// p, the order of the base field, in 64-bit limbs from the lowest up.
pub const BASE_MODULUS: [u64; 6] = [
    0xb9fe_ffff_ffff_aaab,
    0x1eab_fffe_b153_ffff,
    0x6730_d2a0_f6b0_f624,
    0x6477_4b84_f385_12bf,
    0x4b1b_a7b6_434b_acd7,
    0x1a01_11ea_397f_e69a,
];

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

/// The element that lies in memory as these bytes, which are its Montgomery form, little-endian; `None` unless they are 48 and
/// below p.
pub fn base_element(bytes: &[u8]) -> Option<blst_fp> {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: &[[u8; 8]; 6] = words.try_into().ok()?;
    let limbs = words.map(u64::from_le_bytes);
    (rest.is_empty() && limbs.iter().rev().lt(BASE_MODULUS.iter().rev())).then_some(blst_fp { l: limbs })
}

/// `a` − `b`, and whether that is negative (and 2^384 was added).
#[inline(always)]
fn subtract(a: &[u64; 6], b: &[u64; 6]) -> ([u64; 6], bool) {
    let (mut out, mut borrow) = ([0; 6], false);
    for i in 0..6 {
        (out[i], borrow) = a[i].borrowing_sub(b[i], borrow);
    }
    (out, borrow)
}

/// `a` + (`b` if `condition` else 0), modulo 2^384.
#[inline(always)]
fn add_if(a: &[u64; 6], b: &[u64; 6], condition: bool) -> [u64; 6] {
    let mask = u64::from(condition).wrapping_neg();
    let (mut out, mut carry) = ([0; 6], false);
    for i in 0..6 {
        (out[i], carry) = a[i].carrying_add(b[i] & mask, carry);
    }
    out
}

// Additions are a few instructions and are inlined; a call into blst would cost as much again.
impl Coordinate for blst_fp {
    #[inline(always)]
    fn one() -> Self {
        FP_ONE
    }

    #[inline(always)]
    fn add(&self, other: &Self) -> Self {
        // Below 2p, which fits.
        let (reduced, negative) = subtract(&add_if(&self.l, &other.l, true), &BASE_MODULUS);
        Self { l: add_if(&reduced, &BASE_MODULUS, negative) }
    }

    #[inline(always)]
    fn sub(&self, other: &Self) -> Self {
        let (difference, negative) = subtract(&self.l, &other.l);
        Self { l: add_if(&difference, &BASE_MODULUS, negative) }
    }

    #[inline(always)]
    fn negated_if(&self, negative: bool) -> Self {
        let (opposite, _) = subtract(&BASE_MODULUS, &self.l);
        let mask = u64::from(negative && !self.is_zero()).wrapping_neg();
        Self { l: std::array::from_fn(|i| self.l[i] ^ ((self.l[i] ^ opposite[i]) & mask)) }
    }

    #[inline(always)]
    fn mul(&self, other: &Self) -> Self {
        let mut out = Self::default();
        // SAFETY: the pointers come from references, `out` is distinct from the others, and none is kept.
        unsafe { blst::blst_fp_mul(&mut out, self, other) };
        out
    }

    #[inline(always)]
    fn square(&self) -> Self {
        let mut out = Self::default();
        // SAFETY: as in `mul`.
        unsafe { blst::blst_fp_sqr(&mut out, self) };
        out
    }

    fn invert(&self) -> Self {
        let mut out = Self::default();
        // SAFETY: as in `mul`.
        unsafe { blst::blst_fp_eucl_inverse(&mut out, self) };
        out
    }

    #[inline(always)]
    fn is_zero(&self) -> bool {
        self.l.iter().fold(0, |bits, limb| bits | limb) == 0
    }
}

impl Coordinate for blst_fp2 {
    #[inline(always)]
    fn one() -> Self {
        Self { fp: [FP_ONE, blst_fp { l: [0; 6] }] }
    }

    #[inline(always)]
    fn add(&self, other: &Self) -> Self {
        Self { fp: [self.fp[0].add(&other.fp[0]), self.fp[1].add(&other.fp[1])] }
    }

    #[inline(always)]
    fn sub(&self, other: &Self) -> Self {
        Self { fp: [self.fp[0].sub(&other.fp[0]), self.fp[1].sub(&other.fp[1])] }
    }

    #[inline(always)]
    fn negated_if(&self, negative: bool) -> Self {
        Self { fp: [self.fp[0].negated_if(negative), self.fp[1].negated_if(negative)] }
    }

    #[inline(always)]
    fn mul(&self, other: &Self) -> Self {
        let mut out = Self::default();
        // SAFETY: as for the base field.
        unsafe { blst::blst_fp2_mul(&mut out, self, other) };
        out
    }

    #[inline(always)]
    fn square(&self) -> Self {
        let mut out = Self::default();
        // SAFETY: as for the base field.
        unsafe { blst::blst_fp2_sqr(&mut out, self) };
        out
    }

    fn invert(&self) -> Self {
        let mut out = Self::default();
        // SAFETY: as for the base field.
        unsafe { blst::blst_fp2_eucl_inverse(&mut out, self) };
        out
    }

    #[inline(always)]
    fn is_zero(&self) -> bool {
        self.fp[0].is_zero() && self.fp[1].is_zero()
    }
}

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

    /// Elements near the ends of the range, where carries and reductions happen, and some from the middle.
    fn elements() -> Vec<blst_fp> {
        let one = blst_fp { l: [1, 0, 0, 0, 0, 0] };
        let largest = blst_fp { l: subtract(&BASE_MODULUS, &one.l).0 };
        let mut elements = vec![blst_fp::default(), one, FP_ONE, largest, FP_ONE.negated_if(true)];
        for _ in 0..8 {
            let last = elements[elements.len() - 1];
            elements.push(last.square().add(&elements[elements.len() - 3]));
        }
        elements
    }

    #[test]
    fn additions_are_those_of_blst() {
        for a in elements() {
            for b in elements() {
                let [mut sum, mut difference, mut opposite] = [blst_fp::default(); 3];
                // SAFETY: the pointers come from references to distinct elements.
                unsafe {
                    blst::blst_fp_add(&mut sum, &a, &b);
                    blst::blst_fp_sub(&mut difference, &a, &b);
                    blst::blst_fp_cneg(&mut opposite, &a, true);
                }
                assert_eq!((a.add(&b), a.sub(&b), a.negated_if(true)), (sum, difference, opposite), "{a:?} {b:?}");
                assert_eq!(a.negated_if(false), a);
            }
        }
    }

    fn check_field<F: Coordinate>() {
        let one = F::one();
        let three = one.add(&one).add(&one);
        assert_eq!(three.mul(&one), three);
        assert_eq!(three.square(), three.add(&three).add(&three));
        assert_eq!(three.mul(&three.invert()), one);
        assert_eq!(three.sub(&three), F::default());
        assert_eq!(three.add(&three.negated_if(true)), F::default());
        assert!(F::default().invert().is_zero() && !one.is_zero());
    }

    #[test]
    fn coordinates_are_fields() {
        check_field::<blst_fp>();
        check_field::<blst_fp2>();
    }
}
