//! Points that are quick to make, and a key that they are in.

use std::ops::ControlFlow;
use std::sync::Arc;

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::Curve;
use group::prime::PrimeCurveAffine;
use plimsoll_groth16::keys::ProvingKey;
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_groth16::setup;
use rand_core::OsRng;

/// A chain of squares: as many constraints.
pub(crate) struct Squares {
    pub(crate) constraints: usize,
    pub(crate) start: Option<Scalar>,
}

impl Circuit<Scalar> for Squares {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let missing = || SynthesisError::AssignmentMissing;
        let mut value = self.start;
        let mut x = cs.alloc(|| "start", || value.ok_or_else(missing))?;
        for round in 0..self.constraints {
            value = value.map(|value| value.square());
            let square = if round + 1 == self.constraints {
                cs.alloc_input(|| "end", || value.ok_or_else(missing))?
            } else {
                cs.alloc(|| "square", || value.ok_or_else(missing))?
            };
            cs.enforce(|| "round", |lc| lc + x, |lc| lc + x, |lc| lc + square);
            x = square;
        }
        Ok(())
    }
}

pub(crate) fn generate(constraints: usize) -> Result<(Arc<R1cs>, ProvingKey), String> {
    let r1cs = R1cs::from_circuit(Squares { constraints, start: None }).map_err(|error| error.to_string())?;
    let key = setup::generate(&r1cs, &mut OsRng, &|_| ControlFlow::Continue(())).map_err(|error| error.to_string())?;
    Ok((Arc::new(r1cs), key))
}

/// P, 2P, 3P, …
fn multiples<C: PrimeCurveAffine>(n: usize) -> Vec<C>
where
    C::Curve: Curve<AffineRepr = C>,
{
    let mut points = vec![C::identity(); n];
    for (block, points) in points.chunks_mut(1 << 12).enumerate() {
        let mut sum = C::generator() * C::Scalar::from((block as u64) << 12);
        let curve: Vec<C::Curve> = points
            .iter()
            .map(|_| {
                sum += C::generator();
                sum
            })
            .collect();
        C::Curve::batch_normalize(&curve, points);
    }
    points
}

/// A key whose l query has so many points in G1, and whose b query has so many in G2; it makes no proofs.
pub(crate) fn key(g1: usize, g2: usize) -> Result<Arc<ProvingKey>, String> {
    let (_, mut key) = generate(1)?;
    key.l = multiples::<G1Affine>(g1);
    key.b_g2 = multiples::<G2Affine>(g2);
    Ok(Arc::new(key))
}

/// Scalars without structure.
pub(crate) fn scalars(n: usize) -> Vec<Scalar> {
    let mut x = Scalar::from(0xfeed_f00d);
    (0..n)
        .map(|_| {
            x = x.square() + Scalar::from(5);
            x
        })
        .collect()
}
