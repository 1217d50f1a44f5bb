//! From a, b, c to the quotient of a·b − c by the vanishing polynomial.

use blstrs::Scalar;
use ff::Field;
use plimsoll::Grant;

use super::evaluate::Evaluated;
use super::synthesise::Witness;
use super::{ProveError, Prover, pieces};
use crate::backend::Transform;
use crate::footprint::SCRATCH;
use crate::keys::HBasis;
use crate::r1cs::Values;
use crate::secret::SecretVec;

/// The witness with the quotient, in the basis of the key's h points.
#[derive(Debug)]
pub struct Quotient {
    pub(super) witness: Witness,
    pub(super) h: SecretVec,
}

impl Prover {
    /// Computes the quotient in the place of a. The bytes of b and c are given back before its last transform.
    ///
    /// Where c is not there yet, it is made where b was, once b has become part of the product; where b is not there, both are made in
    /// pieces of their own.
    ///
    /// Holds `scratch` from the grant, and takes `provers` for the pieces.
    ///
    /// # Errors
    /// [`ProveError::Backend`].
    pub fn quotient(&self, grant: &mut Grant, evaluated: Evaluated) -> Result<Quotient, ProveError> {
        let Evaluated { witness, mut a, b, c } = evaluated;
        let footprint = self.footprint(plimsoll::pool::current_threads());
        let mut scratch = grant.take(SCRATCH, footprint.quotient_scratch())?;
        let Some(mut b) = b else {
            pieces::quotient(self, grant, &witness.assignment, &mut a, &mut scratch)?;
            return Ok(Quotient { witness, h: a });
        };
        let factor = match self.key.h.basis {
            HBasis::PowersOfTau => self.domain.vanishing_on_coset_inverse(),
            // The points carry it.
            HBasis::OddCosetLagrange => Scalar::ONE,
        };
        let (backend, domain, error) = (&*self.backend, &self.domain, self.backend_error());
        match c {
            Some(mut c) => {
                let made = backend.quotient_on_coset(domain, &mut a, &mut b, &mut c, &factor, &mut scratch);
                made.map_err(&error)?;
            }
            None => {
                backend.product_on_coset(domain, &mut a, &mut b, &mut scratch).map_err(&error)?;
                self.r1cs.evaluate_every(Values::Product, &witness.assignment, 0, 1, &mut b);
                backend.subtract_on_coset(domain, &mut a, &mut b, &factor, &mut scratch).map_err(&error)?;
            }
        }
        drop(b);
        if self.key.h.basis == HBasis::PowersOfTau {
            backend.ntt(domain, &mut a, Transform::CosetInverse, &mut scratch).map_err(&error)?;
        }
        Ok(Quotient { witness, h: a })
    }
}
