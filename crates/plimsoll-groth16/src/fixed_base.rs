//! Many multiples of one point, as key generation needs them.
//!
//! A table holds d · 2^(c·w) · base for every window w and every d up to 2^(c−1). A multiple is then one addition per
//! window, made in affine coordinates for a batch of scalars at a time, so that the results need no conversion.

use blstrs::Scalar;
use group::{Curve, Group};
use plimsoll::pool;
use zeroize::Zeroizing;

use crate::backend::AffineCurve;
use crate::backend::kernels::{BATCH, Limbs, Step, add_each, digit, digit_count, limbs};

const SCALAR_BITS: usize = 255;
const MAX_WINDOW_BITS: usize = 18;

/// The window width of a table, chosen before the memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedBasePlan {
    window_bits: usize,
    point_bytes: usize,
}

impl FixedBasePlan {
    /// The plan with the fewest additions for `multiples` multiples in the group of `C`, the table taking at most
    /// `max_table_bytes` (or the smallest possible, 256 points, when that is less).
    pub fn new<C: AffineCurve>(multiples: usize, max_table_bytes: u64) -> Self {
        let plan = |window_bits| Self { window_bits, point_bytes: size_of::<C>() };
        (2..=MAX_WINDOW_BITS)
            .map(plan)
            .filter(|plan| plan.table_bytes() <= max_table_bytes)
            .min_by_key(|plan| plan.windows() * (multiples + plan.points_per_window()))
            .unwrap_or(plan(1))
    }

    /// The bytes of the table.
    pub fn table_bytes(&self) -> u64 {
        (self.windows() * self.points_per_window() * self.point_bytes) as u64
    }

    /// The bytes that [`FixedBase::new`] and [`FixedBase::multiply_each`] use besides the table and the results, with so
    /// many threads.
    pub fn scratch_bytes(&self, threads: usize) -> u64 {
        // Per addition of a batch: the other point and a step (two coordinates, as large as a point), and the number.
        (threads * BATCH * (2 * self.point_bytes + size_of::<Limbs>())) as u64
    }

    fn windows(&self) -> usize {
        digit_count(SCALAR_BITS, self.window_bits)
    }

    fn points_per_window(&self) -> usize {
        1 << (self.window_bits - 1)
    }
}

/// The table of one point.
#[derive(Clone, Debug)]
pub struct FixedBase<C> {
    plan: FixedBasePlan,
    table: Vec<C>,
}

impl<C: AffineCurve> FixedBase<C> {
    /// Makes the table of `base`, in parallel.
    pub fn new(base: &C, plan: FixedBasePlan) -> Self {
        let mut table = vec![C::identity(); plan.windows() * plan.points_per_window()];
        let mut first = vec![C::Curve::identity(); plan.windows()];
        let mut power = base.to_curve();
        for first in &mut first {
            *first = power;
            for _ in 0..plan.window_bits {
                power = power.double();
            }
        }
        pool::for_each_chunk(&mut table, plan.points_per_window(), |offset, window| {
            fill_multiples(window, first[offset / plan.points_per_window()].to_affine());
        });
        Self { plan, table }
    }

    /// `results[i] = scalars[i] · base`, in parallel.
    ///
    /// # Panics
    ///
    /// When the slices differ in length.
    pub fn multiply_each(&self, scalars: &[Scalar], results: &mut [C]) {
        assert_eq!(scalars.len(), results.len(), "one result for each scalar");
        pool::for_each_chunk(results, BATCH, |offset, sums| {
            // The numbers may be secret: key generation makes multiples by toxic waste.
            let numbers: Zeroizing<Vec<Limbs>> =
                Zeroizing::new(scalars[offset..offset + sums.len()].iter().map(limbs).collect());
            let mut others = vec![C::identity(); sums.len()];
            let mut steps = vec![Step::default(); sums.len()];
            for (sum, number) in sums.iter_mut().zip(&*numbers) {
                *sum = self.multiple(0, number);
            }
            for window in 1..self.plan.windows() {
                for (other, number) in others.iter_mut().zip(&*numbers) {
                    *other = self.multiple(window, number);
                }
                add_each(sums, &mut others, &mut steps);
            }
        });
    }

    /// The part of number · base that one window contributes.
    fn multiple(&self, window: usize, number: &Limbs) -> C {
        let digit = digit(number, window * self.plan.window_bits, self.plan.window_bits);
        match digit.unsigned_abs() as usize {
            0 => C::identity(),
            absolute => self.table[window * self.plan.points_per_window() + absolute - 1].signed(digit < 0),
        }
    }
}

/// point, 2 · point, 3 · point, …: what is there, plus its last element, is the next piece.
fn fill_multiples<C: AffineCurve>(multiples: &mut [C], point: C) {
    multiples[0] = point;
    let mut others = vec![C::identity(); BATCH.min(multiples.len())];
    let mut steps = vec![Step::default(); others.len()];
    let mut filled = 1;
    while filled < multiples.len() {
        let len = filled.min(multiples.len() - filled).min(BATCH);
        let (done, rest) = multiples.split_at_mut(filled);
        rest[..len].copy_from_slice(&done[..len]);
        others[..len].fill(done[filled - 1]);
        add_each(&mut rest[..len], &mut others[..len], &mut steps);
        filled += len;
    }
}

#[cfg(test)]
mod tests {
    use blstrs::{G1Affine, G2Affine};
    use ff::Field;
    use rand_core::SeedableRng;
    use rand_xorshift::XorShiftRng;

    use super::*;

    fn check_multiples<C: AffineCurve>(plan: FixedBasePlan) {
        let mut rng = XorShiftRng::seed_from_u64(1);
        let base = (C::generator() * Scalar::random(&mut rng)).to_affine();
        let mut scalars = vec![Scalar::ZERO, Scalar::ONE, -Scalar::ONE, Scalar::from(2), -Scalar::from(3)];
        scalars.extend((0..BATCH).map(|_| Scalar::random(&mut rng)));
        let mut results = vec![C::identity(); scalars.len()];
        FixedBase::new(&base, plan).multiply_each(&scalars, &mut results);
        for (scalar, result) in scalars.iter().zip(&results) {
            assert_eq!(result.to_curve(), base * scalar, "{scalar:?} with {plan:?}");
        }
        let mut nothing = vec![C::identity(); 2];
        FixedBase::new(&C::identity(), plan).multiply_each(&[Scalar::ONE, Scalar::ZERO], &mut nothing);
        assert!(nothing.iter().all(|point| bool::from(point.is_identity())));
    }

    #[test]
    fn multiples_are_those_of_blstrs() {
        for multiples in [1, 100, 20_000] {
            check_multiples::<G1Affine>(FixedBasePlan::new::<G1Affine>(multiples, u64::MAX));
            check_multiples::<G2Affine>(FixedBasePlan::new::<G2Affine>(multiples, u64::MAX));
        }
    }

    #[test]
    fn a_plan_keeps_to_its_memory() {
        for max_table_bytes in [0, 30_000, 1 << 20, 1 << 24, 1 << 30] {
            let plan = FixedBasePlan::new::<G1Affine>(1 << 20, max_table_bytes);
            assert!(plan.table_bytes() <= max_table_bytes || plan.window_bits == 1, "{plan:?}");
            check_multiples::<G1Affine>(FixedBasePlan::new::<G1Affine>(1, max_table_bytes));
        }
        let wide = FixedBasePlan::new::<G1Affine>(1 << 22, u64::MAX);
        let narrow = FixedBasePlan::new::<G1Affine>(1 << 10, u64::MAX);
        assert!(wide.window_bits > narrow.window_bits);
        let table = FixedBase::new(&<G1Affine as group::prime::PrimeCurveAffine>::generator(), narrow).table;
        assert_eq!(size_of_val(&*table) as u64, narrow.table_bytes());
    }
}
