//! A development set-up: makes a proving key from secrets that exist in this process.
//!
//! Whoever knows those secrets (the toxic waste) can prove anything under the key. They are zeroised, but nobody else can
//! know that, so such a key convinces only its maker. Real keys come from a ceremony; this feature is for development,
//! tests and measurements, and is off by default.
//!
//! For the same toxic waste the key is the one that bellperson's generator makes.

use std::fmt;
use std::ops::ControlFlow;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::{Curve, Group};
use plimsoll::pool;
use rand_core::RngCore;

use crate::fixed_base::{FixedBase, FixedBasePlan};
use crate::keys::{HBasis, HQuery, ProvingKey, VerifyingKey};
use crate::r1cs::R1cs;
use crate::secret::erase;

mod lagrange;
mod meter;

use lagrange::lagrange_at;
use meter::Meter;

/// The most that a table of multiples takes. Twice as much would save a tenth of the time, and more memory than a proof of a
/// small circuit needs.
const TABLE_BYTES_MAX: u64 = 9 << 19;

/// The secrets of a set-up. Erased when dropped.
pub struct ToxicWaste {
    /// The generator of G1 that the key is made from.
    pub g1: G1Projective,
    /// The generator of G2 that the key is made from.
    pub g2: G2Projective,
    /// α, which with β ties the three polynomials to the same assignment.
    pub alpha: Scalar,
    /// β.
    pub beta: Scalar,
    /// γ, which keeps public inputs apart.
    pub gamma: Scalar,
    /// δ, which keeps private values and quotient apart.
    pub delta: Scalar,
    /// τ, the point at which all polynomials are evaluated.
    pub tau: Scalar,
}

/// A part of a set-up, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupPhase {
    /// Evaluates the circuit's polynomials at τ.
    Polynomials,
    /// Makes the points in G1.
    PointsG1,
    /// Makes the points in G2.
    PointsG2,
}

/// How far a set-up is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupProgress {
    /// The phase that is running.
    pub phase: SetupPhase,
    /// Points made in the phase.
    pub done: usize,
    /// Points that the phase makes.
    pub total: usize,
}

/// Called as points are made, every few thousand of them; `Break` ends the set-up.
pub type OnProgress<'a> = &'a (dyn Fn(SetupProgress) -> ControlFlow<()> + Sync);

/// Why no key was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// No proof could depend on this variable, so its point would be infinity.
    #[error("private variable {variable} occurs in no constraint; constrain it or leave it out")]
    Unconstrained {
        /// The variable, counted from 0 among the private ones.
        variable: usize,
    },
    /// One of the secrets is zero, or τ is a point of the domain. It happens with probability 2⁻²²⁰ or with a broken
    /// generator.
    #[error("the random generator gave degenerate secrets; check it and try again")]
    Degenerate,
    /// The shape does not say what the products are, and a key depends on them.
    #[error(
        "the circuit's products are not known, only a key's factors; make the key from the circuit or its .r1cs file"
    )]
    ProductsUnknown,
    /// The progress callback said so.
    #[error("the set-up was cancelled")]
    Cancelled,
}

impl ToxicWaste {
    /// Draws the secrets in the order in which bellperson's generator draws them.
    pub fn random<R: RngCore>(rng: &mut R) -> Self {
        Self {
            g1: G1Projective::random(&mut *rng),
            g2: G2Projective::random(&mut *rng),
            alpha: Scalar::random(&mut *rng),
            beta: Scalar::random(&mut *rng),
            gamma: Scalar::random(&mut *rng),
            delta: Scalar::random(&mut *rng),
            tau: Scalar::random(&mut *rng),
        }
    }
}

/// What [`generate`] holds beside the key that it makes, in bytes, with so many threads: scalars and one table at a time.
pub fn scratch_bytes(r1cs: &R1cs, threads: usize) -> u64 {
    let (g1, g2) = plans(r1cs, r1cs.domain().size());
    let table = |plan: FixedBasePlan| plan.table_bytes() + plan.scratch_bytes(threads);
    // Three vectors of variables and the Lagrange polynomials at τ; later the same three and the scalars of h.
    let scalars = (3 * r1cs.variables() + r1cs.domain().size()) * size_of::<Scalar>();
    scalars as u64 + table(g1).max(table(g2))
}

/// How the tables of G1 and of G2 are laid out, with `h` points in the h query.
fn plans(r1cs: &R1cs, h: usize) -> (FixedBasePlan, FixedBasePlan) {
    let (a, b) = (r1cs.a_density().total(), r1cs.b_density().total());
    let g1_points = r1cs.variables() + h + a + b;
    (FixedBasePlan::new::<G1Affine>(g1_points, TABLE_BYTES_MAX), FixedBasePlan::new::<G2Affine>(b, TABLE_BYTES_MAX))
}

/// Makes a key in bellperson's basis from secrets drawn from `rng`, on all threads of the current pool.
pub fn generate<R: RngCore>(r1cs: &R1cs, rng: &mut R, on_progress: OnProgress<'_>) -> Result<ProvingKey, SetupError> {
    generate_from(r1cs, &ToxicWaste::random(rng), HBasis::PowersOfTau, on_progress)
}

/// Makes a key from given secrets, with h in the given basis.
pub fn generate_from(
    r1cs: &R1cs,
    toxic: &ToxicWaste,
    basis: HBasis,
    on_progress: OnProgress<'_>,
) -> Result<ProvingKey, SetupError> {
    let (inputs, variables, n) = (r1cs.inputs(), r1cs.variables(), r1cs.domain().size());
    let invert = |value: &Scalar| Option::<Scalar>::from(value.invert()).ok_or(SetupError::Degenerate);
    let (gamma_inverse, delta_inverse) = (invert(&toxic.gamma)?, invert(&toxic.delta)?);
    let _ = (invert(&toxic.alpha)?, invert(&toxic.beta)?);
    if bool::from(toxic.g1.is_identity() | toxic.g2.is_identity()) {
        return Err(SetupError::Degenerate);
    }
    if r1cs.products_implied() {
        return Err(SetupError::ProductsUnknown);
    }
    let mut polynomials = Meter::new(SetupPhase::Polynomials, n, on_progress);
    polynomials.add(0)?;

    // Column sums: the variables' polynomials at τ, from the constraints' Lagrange polynomials at τ.
    let lagrange = Secrets(lagrange_at(r1cs.domain(), &toxic.tau).ok_or(SetupError::Degenerate)?);
    let matrices = [r1cs.a(), r1cs.b(), r1cs.c()];
    let mut columns = pool::map_indices(3, |which| {
        let mut sums = Secrets(vec![Scalar::ZERO; variables]);
        let mut rows = matrices[which].walk();
        for row in 0..r1cs.constraints() {
            for (column, coefficient) in rows.next_row() {
                sums.0[column] += lagrange.0[r1cs.place_of(row)] * r1cs.coefficients()[coefficient as usize];
            }
        }
        sums
    });
    drop(lagrange);
    let (c, b, a) = (columns.pop(), columns.pop(), columns.pop());
    let (Some(a), Some(b), Some(mut c)) = (a, b, c) else { return Err(SetupError::Degenerate) };
    let chunk = variables.div_ceil(4 * pool::current_threads()).max(1);
    pool::for_each_chunk(&mut c.0, chunk, |first, sums| {
        for (i, sum) in sums.iter_mut().enumerate() {
            let variable = first + i;
            let by = if variable < inputs { &gamma_inverse } else { &delta_inverse };
            *sum = (toxic.beta * a.0[variable] + toxic.alpha * b.0[variable] + *sum) * by;
        }
    });
    let combined = c;
    if let Some(variable) = combined.0[inputs..].iter().position(|value| value.is_zero_vartime()) {
        return Err(SetupError::Unconstrained { variable });
    }
    if combined.0[..inputs].iter().any(|value| value.is_zero_vartime()) {
        return Err(SetupError::Degenerate);
    }
    let h = Secrets(h_scalars(r1cs, toxic, basis, &delta_inverse).ok_or(SetupError::Degenerate)?);
    polynomials.add(n)?;

    let (mut a, mut b) = (a, b);
    a.keep_non_zero();
    b.keep_non_zero();
    let (g1_plan, g2_plan) = plans(r1cs, h.0.len());
    let g1_points = variables + h.0.len() + a.0.len() + b.0.len();
    let mut meter = Meter::new(SetupPhase::PointsG1, g1_points, on_progress);
    let table = FixedBase::new(&toxic.g1.to_affine(), g1_plan);
    let ic = meter.multiples(&table, &combined.0[..inputs])?;
    let h = HQuery { basis, points: meter.multiples(&table, &h.0)? };
    let l = meter.multiples(&table, &combined.0[inputs..])?;
    let a = meter.multiples(&table, &a.0)?;
    let b_g1 = meter.multiples(&table, &b.0)?;
    drop(table);
    let mut meter = Meter::new(SetupPhase::PointsG2, b.0.len(), on_progress);
    let b_g2 = meter.multiples(&FixedBase::new(&toxic.g2.to_affine(), g2_plan), &b.0)?;

    let vk = VerifyingKey {
        alpha_g1: (toxic.g1 * toxic.alpha).to_affine(),
        beta_g1: (toxic.g1 * toxic.beta).to_affine(),
        beta_g2: (toxic.g2 * toxic.beta).to_affine(),
        gamma_g2: (toxic.g2 * toxic.gamma).to_affine(),
        delta_g1: (toxic.g1 * toxic.delta).to_affine(),
        delta_g2: (toxic.g2 * toxic.delta).to_affine(),
        ic,
    };
    Ok(ProvingKey { vk, h, l, a, b_g1, b_g2 })
}

/// The discrete logarithms of the h query's points.
fn h_scalars(r1cs: &R1cs, toxic: &ToxicWaste, basis: HBasis, delta_inverse: &Scalar) -> Option<Vec<Scalar>> {
    let domain = r1cs.domain();
    match basis {
        HBasis::PowersOfTau => {
            let mut powers = vec![Scalar::ZERO; domain.size() - 1];
            let factor = domain.vanishing_at(&toxic.tau) * delta_inverse;
            let chunk = powers.len().div_ceil(4 * pool::current_threads()).max(1);
            pool::for_each_chunk(&mut powers, chunk, |first, powers| {
                let mut power = toxic.tau.pow_vartime([first as u64]) * factor;
                for place in powers {
                    *place = power;
                    power *= toxic.tau;
                }
            });
            Some(powers)
        }
        HBasis::OddCosetLagrange => {
            let double = crate::domain::Domain::with_log_size(domain.log_size() + 1)?;
            let all = Secrets(lagrange_at(&double, &toxic.tau)?);
            Some(all.0.iter().skip(1).step_by(2).map(|value| *value * delta_inverse).collect())
        }
    }
}

/// Scalars that are erased when dropped.
struct Secrets(Vec<Scalar>);

impl Secrets {
    /// Leaves out the zeros, in place. Behind the rest are zeros only, no forgotten secrets.
    fn keep_non_zero(&mut self) {
        let mut kept = 0;
        for i in 0..self.0.len() {
            if !self.0[i].is_zero_vartime() {
                self.0.swap(kept, i);
                kept += 1;
            }
        }
        self.0.truncate(kept);
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        erase(&mut self.0);
    }
}

impl Drop for ToxicWaste {
    fn drop(&mut self) {
        let mut scalars = [&mut self.alpha, &mut self.beta, &mut self.gamma, &mut self.delta, &mut self.tau];
        for scalar in &mut scalars {
            erase(std::slice::from_mut(*scalar));
        }
    }
}

impl fmt::Debug for ToxicWaste {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToxicWaste(..)")
    }
}

#[cfg(test)]
mod tests;
