//! Additions of affine points, many at a time.
//!
//! A single affine addition needs 1/(x2 − x1), which costs as much as 70 multiplications. Montgomery's trick inverts the
//! product of many differences instead, and three multiplications a pair take it apart: an addition then costs five
//! multiplications and a square, where the projective formulas take ten or more.

use blst::{blst_fp, blst_fp2};
use blstrs::{G1Affine, G2Affine, Scalar};
use group::Curve;
use group::prime::PrimeCurveAffine;

use super::field::Coordinate;

/// How many additions share an inversion. The working set of a call is then about 170 KiB in G1.
pub(crate) const BATCH: usize = 512;

/// A curve y² = x³ + b in affine coordinates, (0, 0) standing for infinity.
///
/// Implemented for [`G1Affine`] and [`G2Affine`], and not meant for others.
pub trait AffineCurve: PrimeCurveAffine<Scalar = Scalar, Curve: Curve<AffineRepr = Self>> + Default {
    /// The field of the coordinates.
    type Field: Coordinate;

    /// The first coordinate.
    fn x(&self) -> &Self::Field;
    /// The second coordinate.
    fn y(&self) -> &Self::Field;
    /// The point with these coordinates, which is not checked to be on the curve.
    fn new(x: Self::Field, y: Self::Field) -> Self;

    /// Whether this is the neutral element.
    #[inline]
    fn is_infinity(&self) -> bool {
        self.x().is_zero() && self.y().is_zero()
    }

    /// The point, or its opposite.
    #[inline]
    fn signed(&self, negative: bool) -> Self {
        Self::new(*self.x(), self.y().negated_if(negative))
    }
}

macro_rules! affine_curve {
    ($point:ty, $field:ty) => {
        impl AffineCurve for $point {
            type Field = $field;

            #[inline]
            fn x(&self) -> &$field {
                &self.as_ref().x
            }

            #[inline]
            fn y(&self) -> &$field {
                &self.as_ref().y
            }

            #[inline]
            fn new(x: $field, y: $field) -> Self {
                let mut point = Self::default();
                (point.as_mut().x, point.as_mut().y) = (x, y);
                point
            }
        }
    };
}

affine_curve!(G1Affine, blst_fp);
affine_curve!(G2Affine, blst_fp2);

/// What one addition leaves for the way back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<F> {
    /// The product of the denominators of all earlier pairs.
    product: F,
    /// This pair's denominator; zero when the pair is already done.
    denominator: F,
}

impl<F: Coordinate> Default for Step<F> {
    fn default() -> Self {
        Self { product: F::default(), denominator: F::default() }
    }
}

/// `sums[i] += others[i]` for all i, whatever the points: equal, opposite, infinite. `others` is used up; `steps` is
/// working memory, at least as long.
pub(crate) fn add_each<C: AffineCurve>(sums: &mut [C], others: &mut [C], steps: &mut [Step<C::Field>]) {
    let mut product = C::Field::one();
    for ((sum, other), step) in sums.iter_mut().zip(others.iter_mut()).zip(steps.iter_mut()) {
        let denominator = denominator(sum, other);
        *step = Step { product, denominator };
        if !denominator.is_zero() {
            product = product.mul(&denominator);
        }
    }
    let mut inverse = product.invert();
    for ((sum, other), step) in sums.iter_mut().zip(others.iter()).zip(steps.iter()).rev() {
        if step.denominator.is_zero() {
            continue;
        }
        let slope = other.y().sub(sum.y()).mul(&inverse.mul(&step.product));
        inverse = inverse.mul(&step.denominator);
        let x = slope.square().sub(sum.x()).sub(other.x());
        let y = slope.mul(&sum.x().sub(&x)).sub(sum.y());
        *sum = C::new(x, y);
    }
}

/// What the pair's slope is divided by; zero when nothing is left to do because one of the points or the sum is infinity.
/// For a doubling, `other` is changed such that the formulas of an addition give the double.
#[inline]
fn denominator<C: AffineCurve>(sum: &mut C, other: &mut C) -> C::Field {
    let difference = other.x().sub(sum.x());
    if sum.x().is_zero() | other.x().is_zero() | difference.is_zero() {
        return special_denominator(sum, other, difference);
    }
    difference
}

#[cold]
fn special_denominator<C: AffineCurve>(sum: &mut C, other: &mut C, difference: C::Field) -> C::Field {
    let done = C::Field::default();
    if other.is_infinity() {
        return done;
    }
    if sum.is_infinity() {
        *sum = *other;
        return done;
    }
    if !difference.is_zero() {
        return difference;
    }
    if *sum.y() != *other.y() || sum.y().is_zero() {
        *sum = C::new(C::Field::default(), C::Field::default());
        return done;
    }
    // The slope of the tangent is 3x²/2y, and the addition subtracts y from the numerator.
    let square = sum.x().square();
    let numerator = square.add(&square).add(&square);
    *other = C::new(*sum.x(), numerator.add(sum.y()));
    sum.y().add(sum.y())
}

#[cfg(test)]
mod tests {
    use blstrs::{G1Affine, G2Affine};
    use ff::Field;
    use group::Group;

    use super::*;

    fn check_additions<C: AffineCurve>() {
        // Logarithms with every kind of pair: ordinary, equal, opposite, one or both infinite.
        let logs: Vec<(i64, i64)> = (-4..=4).flat_map(|a| (-4..=4).map(move |b| (a, b))).collect();
        let point = |log: i64| {
            let absolute = C::generator() * Scalar::from(log.unsigned_abs());
            (if log < 0 { -absolute } else { absolute }).to_affine()
        };
        let mut sums: Vec<C> = logs.iter().map(|(a, _)| point(*a)).collect();
        let mut others: Vec<C> = logs.iter().map(|(_, b)| point(*b)).collect();
        let mut steps = vec![Step::default(); logs.len()];
        add_each(&mut sums, &mut others, &mut steps);
        for ((a, b), sum) in logs.iter().zip(&sums) {
            assert_eq!(*sum, point(a + b), "{a} + {b}");
        }
    }

    #[test]
    fn any_two_points_are_added() {
        check_additions::<G1Affine>();
        check_additions::<G2Affine>();
    }

    #[test]
    fn infinity_is_all_zeros() {
        // What scratch is erased with.
        assert!(G1Affine::default().is_infinity() && G2Affine::default().is_infinity());
        assert!(G1Affine::identity().is_infinity() && G2Affine::identity().is_infinity());
        assert!(!G1Affine::generator().is_infinity() && !G2Affine::generator().is_infinity());
        assert_eq!(G1Affine::generator() * Scalar::ZERO, blstrs::G1Projective::identity());
    }
}
