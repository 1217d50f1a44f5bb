//! Known answers: whether a device is to be trusted.
//!
//! Asked when it is opened, and again after something went wrong. A few terms and points are enough to see that the library reads
//! the layouts that it is handed, that scalars and points are in the forms that they are taken for, that the domain's root is
//! ours, and that the device computes at all. That every result is right, no check of the start can say: proofs are verified
//! before they are returned.

use std::sync::Arc;

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::{Field, PrimeField};
use group::{Curve, Group};

use crate::abi::SCALAR_BYTES;
use crate::convert::{IcicleCurve, affine_bytes};
use crate::error::{CallError, OpenError};
use crate::memory::{MsmPlan, Scratch};
use crate::owner::{MsmCall, Owner, Plain, Scope, Sum};

/// The terms of the multiplications.
const TERMS: usize = 5;
/// Their window.
const WINDOW: u32 = 2;
/// A multiplication that fails for no reason is made again so often.
const DRAIN_MAX: u32 = 4;

/// How a vector is multiplied by one scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scaling {
    /// By ICICLE's function for it.
    Function,
    /// By a vector that has the scalar in each place, for forks that have no such function, or a wrong one.
    Vector,
}

/// Why a device is not trusted.
#[derive(Debug)]
pub(crate) enum Doubt {
    /// A call failed.
    Call(CallError),
    /// A result was wrong.
    Wrong(String),
}

impl From<CallError> for Doubt {
    fn from(error: CallError) -> Self {
        Doubt::Call(error)
    }
}

impl Doubt {
    pub(crate) fn for_opening(self, owner: &Owner) -> OpenError {
        match self {
            Doubt::Call(error) => OpenError::call(error, owner.name()),
            Doubt::Wrong(what) => OpenError::Untrusted { device: owner.name().to_string(), what },
        }
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Doubt::Call(error) => error.fmt(f),
            Doubt::Wrong(what) => what.fmt(f),
        }
    }
}

/// The device memory that a check takes at the most.
pub(crate) fn check_bytes(scratch: Scratch) -> u64 {
    use plimsoll_groth16::backend::CurveGroup::G2;
    let terms = TERMS as u64;
    MsmPlan::new(G2, terms, terms, WINDOW, false, scratch, 2000).bytes() + (64 << 10)
}

/// Looks at everything. Nothing else is under way on the device, or whatever is does not mind.
pub(crate) fn check(owner: &Arc<Owner>) -> Result<Scaling, Doubt> {
    check_layout(owner)?;
    let scaling = check_vectors(owner)?;
    if owner.scaling(scaling) == Scaling::Function && scaling == Scaling::Vector {
        // It is what everybody here scales with since.
        return Err(wrong("a vector times one factor"));
    }
    check_msm::<G1Affine>(owner)?;
    check_msm::<G2Affine>(owner)?;
    check_transforms(owner)?;
    Ok(scaling)
}

/// A call that computes while the device is in doubt.
fn ask<'env, R: Send + 'env>(
    owner: &Owner,
    operation: &'static str,
    f: impl FnOnce(&mut Scope<'_, 'env>) -> Result<R, CallError> + Send + 'env,
) -> Result<R, CallError> {
    owner.call(operation, |scope| {
        scope.for_checking();
        f(scope)
    })
}

/// After a multiplication that was out of memory, the next one on its thread fails as well: this takes that upon itself.
pub(crate) fn drain(owner: &Arc<Owner>) -> Result<(), Doubt> {
    let mut tries = 0;
    loop {
        match check_msm::<G1Affine>(owner) {
            Err(Doubt::Call(error)) if error.is_out_of_memory() && tries < DRAIN_MAX => tries += 1,
            other => return other,
        }
    }
}

/// Scalars without structure.
fn scalars(count: usize, seed: u64) -> Vec<Scalar> {
    std::iter::successors(Some(Scalar::from(seed).square() - Scalar::from(seed)), |x| {
        Some((*x + Scalar::from(11)).square() * Scalar::from(0xffff_ffff_ffff))
    })
    .skip(7)
    .take(count)
    .collect()
}

/// A scalar as the device takes it where nothing says that it is in Montgomery form.
fn standard(values: &[Scalar]) -> Vec<u8> {
    values.iter().flat_map(Scalar::to_bytes_le).collect()
}

fn wrong(what: &str) -> Doubt {
    Doubt::Wrong(format!("{what} is not what it should be"))
}

/// Two vectors of three in one batch: where batches are not known, half of the result stays as it was. That is v3.0, whose
/// layout is another one.
fn check_layout(owner: &Arc<Owner>) -> Result<(), Doubt> {
    let (a, b) = (scalars(6, 3), scalars(6, 5));
    let (a_bytes, b_bytes) = (standard(&a), standard(&b));
    let expected: Vec<Scalar> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
    let memory = owner.allocate(3 * 6 * SCALAR_BYTES)?;
    let [a, b, out] = [0, 1, 2].map(|index| memory.part(index * 6 * SCALAR_BYTES, 6 * SCALAR_BYTES));
    let untouched = vec![0_u8; 6 * 32];
    let mut product = vec![0_u8; 6 * 32];
    ask(owner, "check the layout", |scope| {
        scope.copy_in(&a_bytes, a)?;
        scope.copy_in(&b_bytes, b)?;
        scope.copy_in(&untouched, out)
    })?;
    ask(owner, "check the layout", |scope| {
        scope.multiply_batch(a, b, out, 2)?;
        scope.copy_out(out, &mut product)
    })?;
    match product == standard(&expected) {
        true => Ok(()),
        false => {
            Err(Doubt::Wrong("a product of vectors in a batch is wrong, as with the layouts of before v3.1".to_owned()))
        }
    }
}

/// Vectors in Montgomery form as the quotient has them.
fn check_vectors(owner: &Arc<Owner>) -> Result<Scaling, Doubt> {
    let (a, b) = (scalars(4, 7), scalars(4, 9));
    let factor = scalars(1, 13);
    let factor_bytes = standard(&factor);
    let memory = owner.allocate(9 * SCALAR_BYTES)?;
    let [a_part, b_part] = [0, 4].map(|at| memory.part(at * SCALAR_BYTES, 4 * SCALAR_BYTES));
    let factor_part = memory.part(8 * SCALAR_BYTES, SCALAR_BYTES);
    let mut result = vec![Scalar::ZERO; 4];
    ask(owner, "check vectors", |scope| {
        scope.copy_in(&a, a_part)?;
        scope.copy_in(&b, b_part)?;
        scope.copy_in(&factor_bytes, factor_part)
    })?;
    ask(owner, "check vectors", |scope| {
        scope.subtract(a_part, b_part, a_part)?;
        scope.copy_out(a_part, &mut result)
    })?;
    let difference: Vec<Scalar> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
    if result != difference {
        return Err(wrong("a difference of vectors"));
    }
    let scaled = ask(owner, "check vectors", |scope| match scope.can_scale() {
        false => Ok(false),
        true => {
            scope.scale(factor_part, a_part)?;
            scope.copy_out(a_part, &mut result)?;
            Ok(true)
        }
    });
    let expected: Vec<Scalar> = difference.iter().map(|value| value * factor[0]).collect();
    Ok(match scaled {
        Ok(true) if result == expected => Scaling::Function,
        _ => Scaling::Vector,
    })
}

/// Points that lie raw on the device and are converted there, infinity among them; scalars in Montgomery form.
fn check_msm<C: IcicleCurve + Plain>(owner: &Arc<Owner>) -> Result<(), Doubt> {
    let group = C::GROUP;
    let mut scalars = scalars(TERMS, 17);
    (scalars[1], scalars[2]) = (Scalar::ONE, -Scalar::ONE);
    let points: Vec<C> = (0..TERMS as u64).map(|n| (C::generator() * Scalar::from(n * n)).to_affine()).collect();
    let expected: C::Curve =
        points.iter().zip(&scalars).fold(C::Curve::identity(), |sum, (point, scalar)| sum + *point * scalar);
    let scalar_memory = owner.allocate(TERMS as u64 * SCALAR_BYTES)?;
    let point_memory = owner.allocate(TERMS as u64 * affine_bytes(group))?;
    let mut sum = Sum::new();
    ask(owner, "check a multiplication", |scope| {
        scope.copy_in(&scalars, scalar_memory.all())?;
        scope.copy_in(&points, point_memory.all())?;
        scope.points_to_standard(group, point_memory.all())
    })?;
    ask(owner, "check a multiplication", |scope| {
        scope.msm(MsmCall {
            group,
            scalars: scalar_memory.all(),
            points: point_memory.all(),
            window: WINDOW,
            threads: 1,
            scratch_bytes: 0,
            sum: &mut sum,
        })
    })?;
    match C::sum(sum.bytes(group)) == Some(expected) {
        true => Ok(()),
        false => Err(wrong(&format!("a multiplication in {group:?}"))),
    }
}

/// Forward on a coset, and back; in whatever domain the device has, or in a small one of its own.
fn check_transforms(owner: &Arc<Owner>) -> Result<(), Doubt> {
    let own = owner.domain().is_none();
    if own {
        owner.make_domain(4)?;
    }
    let outcome = check_transforms_in(owner, owner.domain().unwrap_or(0));
    if own {
        owner.release_domain()?;
    }
    outcome
}

fn check_transforms_in(owner: &Arc<Owner>, domain: u32) -> Result<(), Doubt> {
    let Some(log_size) = domain.min(4).checked_sub(1) else { return Ok(()) };
    let root = |log_size: u32| (log_size..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| root.square());
    let (omega, shift) = (root(log_size), root(log_size + 1));
    let coefficients = scalars(1 << log_size, 23);
    let memory = owner.allocate(SCALAR_BYTES << log_size)?;
    for coset in [None, Some(&shift)] {
        let mut evaluations = vec![Scalar::ZERO; coefficients.len()];
        let mut back = evaluations.clone();
        ask(owner, "check transforms", |scope| scope.copy_in(&coefficients, memory.all()))?;
        ask(owner, "check transforms", |scope| {
            scope.ntt(memory.all(), false, coset)?;
            scope.copy_out(memory.all(), &mut evaluations)?;
            scope.ntt(memory.all(), true, coset)?;
            scope.copy_out(memory.all(), &mut back)
        })?;
        let mut x = *coset.unwrap_or(&Scalar::ONE);
        for evaluation in &evaluations {
            let expected = coefficients.iter().rev().fold(Scalar::ZERO, |sum, c| sum * x + c);
            if *evaluation != expected {
                return Err(wrong("a transform"));
            }
            x *= omega;
        }
        if back != coefficients {
            return Err(wrong("an inverse transform"));
        }
    }
    Ok(())
}
