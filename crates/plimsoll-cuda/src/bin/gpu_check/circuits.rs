//! Circuits of a given size: dense ones, ones whose witness is mostly bits, and SHA-256.

use bellpepper::gadgets::{multipack, sha256::sha256};
use bellpepper_core::boolean::{AllocatedBit, Boolean};
use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError};
use blstrs::Scalar;
use ff::Field;

/// One in so many steps of a boolean circuit is a squaring; the others make a bit each.
const SQUARING: usize = 16;

/// No block of SHA-256 takes more constraints, those of its 512 input bits included.
const BLOCK: usize = 27_100;

/// A chain of `steps` constraints, or a hash of about as many.
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
    /// The digest of one long message. Nearly all of its witness are bits, and its constraints are long.
    Sha256,
}

impl Chain {
    /// As many constraints as fit a domain of 2^log with the inputs' own.
    pub(crate) fn new(log: u32, kind: Kind) -> Self {
        Self { start: Scalar::from(3), steps: (1 << log) - 8, kind }
    }
}

impl Circuit<Scalar> for Chain {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        if self.kind == Kind::Sha256 {
            return hash(cs, self.steps / BLOCK);
        }
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

/// The digest of a message that fills so many blocks with its padding.
fn hash<CS: ConstraintSystem<Scalar>>(cs: &mut CS, blocks: usize) -> Result<(), SynthesisError> {
    const PADDING: usize = 9;
    let bits = 8 * (64 * blocks.max(1) - PADDING);
    let message: Vec<Boolean> = (0..bits)
        .map(|i| {
            let bit = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1;
            Ok(Boolean::from(AllocatedBit::alloc(cs.namespace(|| format!("bit {i}")), Some(bit))?))
        })
        .collect::<Result<_, SynthesisError>>()?;
    let digest = sha256(cs.namespace(|| "digest"), &message)?;
    multipack::pack_into_inputs(cs.namespace(|| "output"), &digest)
}
