//! Circuits with the corners that keys and provers trip over, shared by the unit tests and by the tests against peers.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each user takes what it needs")]

use bellpepper::gadgets::multipack;
use bellpepper::gadgets::sha256::sha256;
use bellpepper_core::boolean::{AllocatedBit, Boolean};
use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use ff::Field;
use rand_core::{RngCore, SeedableRng};
use rand_xorshift::XorShiftRng;

/// What every test circuit can do: be synthesised without and with a witness, and say its public inputs.
pub trait TestCircuit: Circuit<Scalar> + Clone + Send {
    /// The public inputs of the witness, the constant one left out.
    fn public_inputs(&self) -> Vec<Scalar>;
}

pub fn rng(seed: u64) -> XorShiftRng {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    XorShiftRng::from_seed(bytes)
}

fn value(known: Option<Scalar>) -> impl FnOnce() -> Result<Scalar, SynthesisError> {
    move || known.ok_or(SynthesisError::AssignmentMissing)
}

/// "I know x with x³ + x + 5 = y."
#[derive(Clone, Debug)]
pub struct Cubic(pub Option<Scalar>);

impl Circuit<Scalar> for Cubic {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let square = self.0.map(|x| x.square());
        let cube = self.0.map(|x| x.square() * x);
        let x = cs.alloc(|| "x", value(self.0))?;
        let x2 = cs.alloc(|| "x2", value(square))?;
        let x3 = cs.alloc(|| "x3", value(cube))?;
        let y = cs.alloc_input(|| "y", value(self.0.map(|_| self.public_inputs()[0])))?;
        cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + x2);
        cs.enforce(|| "cube", |lc| lc + x2, |lc| lc + x, |lc| lc + x3);
        cs.enforce(|| "sum", |lc| lc + x3 + x + (Scalar::from(5), CS::one()), |lc| lc + CS::one(), |lc| lc + y);
        Ok(())
    }
}

impl TestCircuit for Cubic {
    fn public_inputs(&self) -> Vec<Scalar> {
        self.0.map(|x| vec![x.square() * x + x + Scalar::from(5)]).unwrap_or_default()
    }
}

/// Nothing but public inputs: no private variable, and every B column but the constant's empty.
#[derive(Clone, Debug)]
pub struct InputsOnly;

impl Circuit<Scalar> for InputsOnly {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let four = cs.alloc_input(|| "4", || Ok(Scalar::from(4)))?;
        cs.enforce(
            || "2 · 2 = 4",
            |lc| lc + (Scalar::from(2), CS::one()),
            |lc| lc + (Scalar::from(2), CS::one()),
            |lc| lc + four,
        );
        Ok(())
    }
}

impl TestCircuit for InputsOnly {
    fn public_inputs(&self) -> Vec<Scalar> {
        vec![Scalar::from(4)]
    }
}

/// Constant-only and empty linear combinations, duplicates, terms that cancel, zero coefficients, variables that occur only in
/// B or only in C, inputs allocated among private variables.
#[derive(Clone, Debug)]
pub struct Quirks(pub Option<(Scalar, Scalar)>);

impl Circuit<Scalar> for Quirks {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let (x_value, y_value) = (self.0.map(|w| w.0), self.0.map(|w| w.1));
        let product_value = self.0.map(|(x, y)| x * y);
        let x = cs.alloc(|| "x", value(x_value))?;
        let sum = cs.alloc_input(|| "x + y", value(self.0.map(|(x, y)| x + y)))?;
        let y = cs.alloc(|| "y", value(y_value))?;
        let product = cs.alloc(|| "xy", value(product_value))?;
        let only_in_c = cs.alloc(|| "12", || Ok(Scalar::from(12)))?;
        let twice = cs.alloc_input(|| "2xy", value(product_value.map(|p| p.double())))?;
        cs.enforce(
            || "constants",
            |lc| lc + (Scalar::from(3), CS::one()),
            |lc| lc + (Scalar::from(4), CS::one()),
            |lc| lc + only_in_c,
        );
        cs.enforce(|| "empty", |lc| lc, |lc| lc, |lc| lc);
        // y occurs in no A: its A point would be the identity. The zero coefficient must not count either.
        cs.enforce(|| "product", |lc| lc + x + (Scalar::ZERO, y), |lc| lc + y, |lc| lc + product);
        cs.enforce(|| "duplicates", |lc| lc + product + product + x - x, |lc| lc + CS::one(), |lc| lc + twice);
        cs.enforce(
            || "sum",
            |lc| lc + sum - x + (Scalar::ZERO, only_in_c),
            |lc| lc + CS::one() + (Scalar::ZERO, x),
            |lc| lc + (-Scalar::ONE, y) + (Scalar::from(2), y),
        );
        Ok(())
    }
}

impl TestCircuit for Quirks {
    fn public_inputs(&self) -> Vec<Scalar> {
        self.0.map(|(x, y)| vec![x + y, (x * y).double()]).unwrap_or_default()
    }
}

/// A chain of squarings with long dense combinations, `steps` constraints.
#[derive(Clone, Debug)]
pub struct Squarings {
    pub start: Option<Scalar>,
    pub steps: usize,
}

impl Squarings {
    fn values(&self) -> impl Iterator<Item = Option<Scalar>> {
        let mut current = self.start;
        let mut last = self.start;
        (0..self.steps).map(move |_| {
            let next = current.zip(last).map(|(current, last)| (current + last + Scalar::from(3)).square());
            last = current;
            current = next;
            next
        })
    }
}

impl Circuit<Scalar> for Squarings {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut current = cs.alloc(|| "start", value(self.start))?;
        let mut last = current;
        for (step, next_value) in self.values().enumerate() {
            let next = if step + 1 == self.steps {
                cs.alloc_input(|| "end", value(next_value))?
            } else {
                cs.alloc(|| "step", value(next_value))?
            };
            let combination = LinearCombination::zero() + current + last + (Scalar::from(3), CS::one());
            cs.enforce(|| "square", |_| combination.clone(), |_| combination.clone(), |lc| lc + next);
            last = current;
            current = next;
        }
        Ok(())
    }
}

impl TestCircuit for Squarings {
    fn public_inputs(&self) -> Vec<Scalar> {
        self.values().last().flatten().into_iter().collect()
    }
}

/// "I know `len` bytes with this SHA-256 digest."
#[derive(Clone, Debug)]
pub struct Sha256Preimage {
    pub bytes: Option<Vec<u8>>,
    pub len: usize,
}

impl Circuit<Scalar> for Sha256Preimage {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let bits: Vec<Option<bool>> = match &self.bytes {
            Some(bytes) => multipack::bytes_to_bits(bytes).into_iter().map(Some).collect(),
            None => vec![None; self.len * 8],
        };
        let bits = bits
            .into_iter()
            .enumerate()
            .map(|(i, bit)| AllocatedBit::alloc(cs.namespace(|| format!("bit {i}")), bit).map(Boolean::from))
            .collect::<Result<Vec<_>, _>>()?;
        let digest = sha256(cs.namespace(|| "digest"), &bits)?;
        multipack::pack_into_inputs(cs.namespace(|| "inputs"), &digest)
    }
}

impl TestCircuit for Sha256Preimage {
    fn public_inputs(&self) -> Vec<Scalar> {
        use sha2::Digest;
        let digest = sha2::Sha256::digest(self.bytes.as_deref().unwrap_or_default());
        multipack::compute_multipacking(&multipack::bytes_to_bits(&digest))
    }
}

/// Variables with their coefficients.
type Terms = Vec<(usize, Scalar)>;

/// A satisfied random circuit: products of random sparse combinations.
#[derive(Clone, Debug)]
pub struct Random {
    pub seed: u64,
    pub inputs: usize,
    pub free: usize,
    pub products: usize,
    pub with_witness: bool,
}

impl Random {
    /// A shape of at most about 60 variables, all from the seed.
    pub fn small(seed: u64) -> Self {
        let mut rng = rng(seed ^ 0x5eed);
        let mut below = |n: u64| (rng.next_u64() % n) as usize;
        Self { seed, inputs: below(4), free: 1 + below(8), products: below(48), with_witness: true }
    }

    /// Values of the variables and constraints as `(variable, coefficient)` rows, from the seed alone.
    fn build(&self) -> (Vec<Scalar>, Vec<[Terms; 2]>) {
        let mut rng = rng(self.seed);
        let mut values = vec![Scalar::ONE];
        values.extend((0..self.inputs + self.free).map(|_| match rng.next_u32() % 4 {
            0 => Scalar::ZERO,
            1 => Scalar::ONE,
            _ => Scalar::random(&mut rng),
        }));
        let mut rows = Vec::new();
        for _ in 0..self.products {
            let mut side = || -> Terms {
                (0..rng.next_u32() % 5)
                    .map(|_| {
                        let variable = (rng.next_u64() % values.len() as u64) as usize;
                        let coefficient = match rng.next_u32() % 5 {
                            0 => Scalar::ZERO,
                            1 => Scalar::ONE,
                            2 => -Scalar::ONE,
                            3 => Scalar::from(rng.next_u64() % 16),
                            _ => Scalar::random(&mut rng),
                        };
                        (variable, coefficient)
                    })
                    .collect()
            };
            let row = [side(), side()];
            let evaluate = |side: &[(usize, Scalar)]| side.iter().map(|(v, c)| values[*v] * c).sum::<Scalar>();
            values.push(evaluate(&row[0]) * evaluate(&row[1]));
            rows.push(row);
        }
        (values, rows)
    }
}

impl Circuit<Scalar> for Random {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let (values, rows) = self.build();
        let known = |index: usize| value(self.with_witness.then(|| values[index]));
        let mut variables: Vec<Variable> = vec![CS::one()];
        for index in 1..=self.inputs {
            variables.push(cs.alloc_input(|| "input", known(index))?);
        }
        for index in self.inputs + 1..=self.inputs + self.free {
            variables.push(cs.alloc(|| "free", known(index))?);
        }
        for row in &rows {
            let product = cs.alloc(|| "product", known(variables.len()))?;
            let combine = |side: &[(usize, Scalar)]| {
                side.iter().fold(LinearCombination::zero(), |lc, (variable, c)| lc + (*c, variables[*variable]))
            };
            cs.enforce(|| "product", |_| combine(&row[0]), |_| combine(&row[1]), |lc| lc + product);
            variables.push(product);
        }
        // Keys do not exist for circuits with an unconstrained variable.
        for free in &variables[self.inputs + 1..=self.inputs + self.free] {
            cs.enforce(|| "used", |lc| lc + CS::one(), |lc| lc + *free, |lc| lc + *free);
        }
        Ok(())
    }
}

impl TestCircuit for Random {
    fn public_inputs(&self) -> Vec<Scalar> {
        self.build().0[1..=self.inputs].to_vec()
    }
}
