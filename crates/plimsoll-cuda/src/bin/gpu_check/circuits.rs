//! Circuits of a given size: dense ones, and ones whose witness is mostly bits.

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError};
use blstrs::Scalar;
use ff::Field;

/// One in so many steps of a boolean circuit is a squaring; the others make a bit each.
const SQUARING: usize = 16;

/// A chain of `steps` constraints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) start: Scalar,
    pub(crate) steps: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// x ← (x + 1)², so that no variable repeats another's value and all occur everywhere.
    Dense,
    /// Fifteen bits for each such step.
    Boolean,
}

impl Chain {
    /// As many constraints as fit a domain of 2^log with the inputs' own.
    pub(crate) fn new(log: u32, kind: Kind) -> Self {
        Self { start: Scalar::from(3), steps: (1 << log) - 8, kind }
    }
}

impl Circuit<Scalar> for Chain {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut value = self.start;
        let mut last = cs.alloc(|| "start", || Ok(self.start))?;
        let mut taken = 0_u64;
        for step in 0..self.steps - 1 {
            if self.kind == Kind::Boolean && step % SQUARING != 0 {
                taken = taken.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step as u64 | 1);
                let bit = taken >> 63;
                let variable = cs.alloc(|| "bit", || Ok(Scalar::from(bit)))?;
                cs.enforce(|| "bit", |lc| lc + variable, |lc| lc + CS::one() - variable, |lc| lc);
                continue;
            }
            let sum = LinearCombination::zero() + last + CS::one();
            value = (value + Scalar::ONE).square();
            let next = cs.alloc(|| "next", || Ok(value))?;
            cs.enforce(|| "square", |_| sum.clone(), |_| sum.clone(), |lc| lc + next);
            last = next;
        }
        let output = cs.alloc_input(|| "output", || Ok(value + Scalar::ONE))?;
        cs.enforce(|| "output", |lc| lc + last + CS::one(), |lc| lc + CS::one(), |lc| lc + output);
        Ok(())
    }
}
