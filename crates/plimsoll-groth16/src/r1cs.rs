//! A circuit's shape: the three matrices of ⟨A_i, z⟩ · ⟨B_i, z⟩ = ⟨C_i, z⟩, built once and shared by every proof of the circuit.
//!
//! The vector z is the assignment: the constant one, the public inputs, then the private ("aux") values. The matrices are
//! compressed by rows, a byte or two an entry ([`Matrix`]); a coefficient is an index into a dictionary, because circuits use few
//! different ones (that of one SHA-256 block: 135,849 entries, 524 coefficients). In a linear combination of the synthesiser an entry
//! takes 40 bytes and an allocation.
//!
//! Like bellperson's, a shape ends with one constraint xᵢ · 0 = 0 for each input, which keeps the inputs' polynomials
//! independent; keys depend on it.

use std::fmt;

use bellpepper_core::{Circuit, SynthesisError};
use blstrs::Scalar;
use ff::Field;
use plimsoll::pool;
use sha2::{Digest, Sha256};

use crate::circuit::ShapeBuilder;
use crate::domain::{Domain, DomainError};

mod builder;
mod density;
mod dictionary;
mod matrix;
mod places;

pub use builder::{InputRows, Products, R1csBuilder, Side};
pub use density::Density;
pub(crate) use dictionary::{Dictionary, MatrixBuilder};
pub(crate) use matrix::Column;
pub use matrix::{Matrix, Row};
use places::Places;

/// How many rows a task of a sparse product takes: about a millisecond of work, so that stealing costs nothing.
const ROWS_PER_TASK: usize = 2048;

/// The constraint system of a circuit, without any values.
pub struct R1cs {
    pub(crate) inputs: usize,
    pub(crate) aux: usize,
    pub(crate) constraints: usize,
    pub(crate) domain: Domain,
    pub(crate) coefficients: Vec<Scalar>,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) c: Matrix,
    /// Whether there is no C, each product being that of its factors.
    pub(crate) products_implied: bool,
    pub(crate) a_density: Density,
    pub(crate) b_density: Density,
    /// At which point of the domain each constraint is.
    pub(crate) places: Places,
    pub(crate) digest: [u8; 32],
}

/// What is computed of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Those of B.
    Right,
    /// Those of C; of A and B, where the products are implied.
    Product,
}

/// Why a circuit's shape could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The circuit refused to be synthesised without values.
    #[error("the circuit cannot be synthesised without a witness: {source}")]
    Synthesis {
        /// What the circuit reported.
        #[source]
        source: SynthesisError,
    },
    /// The circuit has more constraints than the field has a domain for.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// A matrix has more entries, or the circuit more variables, than a 32-bit index can name.
    #[error("the circuit has more than 2^32 {what}; split it")]
    TooLarge {
        /// What there are too many of.
        what: &'static str,
    },
    /// The circuit named a variable that it had not allocated.
    #[error("constraint {constraint} uses a variable that was never allocated")]
    UnknownVariable {
        /// The constraint, counted from 0.
        constraint: usize,
    },
    /// The circuit has more variables than the key that it is proved with ([`crate::bellperson`] only).
    #[error("the circuit has more than {inputs} inputs or {aux} private variables; the key is for another circuit")]
    TooManyVariables {
        /// The key's inputs, the constant one included.
        inputs: usize,
        /// The key's private variables.
        aux: usize,
    },
    /// An entry is for a constraint beyond those announced ([`R1csBuilder`] only).
    #[error("an entry is for constraint {row}, and there are {rows}")]
    UnknownRow {
        /// The constraint, counted from 0.
        row: usize,
        /// How many there are.
        rows: usize,
    },
    /// More different coefficients than were allowed ([`R1csBuilder::allow_coefficients`] only).
    #[error("there are more than {most} different coefficients")]
    TooManyCoefficients {
        /// How many were allowed.
        most: usize,
    },
}

impl R1cs {
    /// Synthesises `circuit` for its shape. No value closure of the circuit is called, so it needs no witness.
    pub fn from_circuit<C: Circuit<Scalar>>(circuit: C) -> Result<Self, ShapeError> {
        let mut builder = ShapeBuilder::with_one();
        circuit.synthesize(&mut builder).map_err(|source| ShapeError::Synthesis { source })?;
        builder.finish()
    }

    /// Public inputs, the constant one included.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Private variables.
    pub fn aux(&self) -> usize {
        self.aux
    }

    /// All variables: the length of an assignment.
    pub fn variables(&self) -> usize {
        self.inputs + self.aux
    }

    /// Constraints, those that bellperson adds for the inputs included.
    pub fn constraints(&self) -> usize {
        self.constraints
    }

    /// The smallest domain that holds a point for each constraint.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The left factors.
    pub fn a(&self) -> &Matrix {
        &self.a
    }

    /// The right factors.
    pub fn b(&self) -> &Matrix {
        &self.b
    }

    /// The products; without rows if [`R1cs::products_implied`].
    pub fn c(&self) -> &Matrix {
        &self.c
    }

    /// Whether C is unknown and each product is that of its factors, whatever they are ([`Products::Implied`]).
    pub fn products_implied(&self) -> bool {
        self.products_implied
    }

    /// The coefficients that the matrices' entries point to.
    pub fn coefficients(&self) -> &[Scalar] {
        &self.coefficients
    }

    /// Which variables the key's A query has points for: all inputs, and the private variables that occur in A.
    pub fn a_density(&self) -> &Density {
        &self.a_density
    }

    /// Which variables the key's B queries have points for: those that occur in B.
    pub fn b_density(&self) -> &Density {
        &self.b_density
    }

    /// SHA-256 of the shape: equal for equal circuits, and what a cached key is filed under.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// What the matrices and densities occupy, to be charged to the class `matrices`.
    pub fn resident_bytes(&self) -> u64 {
        let matrices = self.a.resident_bytes() + self.b.resident_bytes() + self.c.resident_bytes();
        let densities = self.a_density.resident_bytes() + self.b_density.resident_bytes();
        matrices + densities + (self.coefficients.capacity() * size_of::<Scalar>()) as u64
    }

    /// ⟨row, z⟩ of one matrix.
    pub fn evaluate_row(&self, matrix: &Matrix, row: usize, assignment: &[Scalar]) -> Scalar {
        self.evaluate_entries(matrix.row(row), assignment)
    }

    fn evaluate_entries(&self, row: Row<'_>, assignment: &[Scalar]) -> Scalar {
        let mut sum = Scalar::ZERO;
        for (column, coefficient) in row {
            let value = &assignment[column];
            match coefficient {
                Dictionary::ONE => sum += value,
                Dictionary::MINUS_ONE => sum -= value,
                // Most values of a typical circuit are bits. As in the multiplications that follow, time depends on them.
                _ if value.is_zero_vartime() => {}
                _ if *value == Scalar::ONE => sum += self.coefficients[coefficient as usize],
                _ => sum += self.coefficients[coefficient as usize] * value,
            }
        }
        sum
    }

    /// Writes the product of a matrix and the assignment to the first [`R1cs::constraints`] places of `out`; with another
    /// [stride](R1cs::with_stride) than 1, to all places of the domain.
    ///
    /// # Panics
    /// When `assignment` is not [`R1cs::variables`] long, or `out` is shorter than that, or the matrix has no rows.
    pub fn evaluate(&self, matrix: &Matrix, assignment: &[Scalar], out: &mut [Scalar]) {
        assert_eq!(assignment.len(), self.variables(), "an assignment has a value for each variable");
        let n = self.domain.size();
        let places = self.occupied_places();
        pool::for_each_chunk(&mut out[..places], ROWS_PER_TASK, |first, places| {
            let mut rows = matrix.walk();
            for (i, out) in places.iter_mut().enumerate() {
                let row = self.places.constraint_at(first + i, n);
                let is_there = row < self.constraints;
                *out = if is_there { self.evaluate_entries(rows.row(row), assignment) } else { Scalar::ZERO };
            }
        });
    }

    /// How many places, from the first, may stand for constraints: in their order they are in front, otherwise anywhere.
    fn occupied_places(&self) -> usize {
        if self.places.are_in_order() { self.constraints } else { self.domain.size() }
    }

    /// The products of A and B and the assignment, each as [`R1cs::evaluate`] makes it, for vectors of the domain's size that are zero;
    /// and the first place where a·b is not c. Where `b` or `c` are not given, they are made later ([`R1cs::evaluate_every`]), and are
    /// looked at all the same.
    ///
    /// One walk instead of four: the values that a constraint's three rows share are still in the cache, and so are its results when
    /// they are compared.
    ///
    /// # Panics
    /// When `assignment` is not [`R1cs::variables`] long, or a vector not as long as the domain.
    pub(crate) fn evaluate_all(
        &self,
        assignment: &[Scalar],
        a: &mut [Scalar],
        b: Option<&mut [Scalar]>,
        c: Option<&mut [Scalar]>,
    ) -> Option<usize> {
        assert_eq!(assignment.len(), self.variables(), "an assignment has a value for each variable");
        let n = self.domain.size();
        let len = |vector: &Option<&mut [Scalar]>| vector.as_ref().map_or(n, |vector| vector.len());
        assert!([a.len(), len(&b), len(&c)].iter().all(|len| *len == n), "a value for each point of the domain");
        let places = self.occupied_places();
        let [mut b, mut c] = [b, c].map(|vector| vector.map(|vector| vector[..places].chunks_mut(ROWS_PER_TASK)));
        let mut tasks: Vec<_> = a[..places]
            .chunks_mut(ROWS_PER_TASK)
            .map(|a| {
                let [b, c] = [&mut b, &mut c].map(|vector| vector.as_mut().and_then(Iterator::next));
                (a, b, c, None)
            })
            .collect();
        pool::for_each_chunk(&mut tasks, 1, |task, chunk| {
            let (a, b, c, unsatisfied) = &mut chunk[0];
            let mut walks = [&self.a, &self.b, &self.c].map(Matrix::walk);
            let mut value = |matrix: usize, row| self.evaluate_entries(walks[matrix].row(row), assignment);
            for i in 0..a.len() {
                let place = task * ROWS_PER_TASK + i;
                let row = self.places.constraint_at(place, n);
                if row >= self.constraints {
                    continue;
                }
                a[i] = value(0, row);
                if self.products_implied && b.is_none() && c.is_none() {
                    continue;
                }
                let right = value(1, row);
                if let Some(b) = b {
                    b[i] = right;
                }
                if self.products_implied && c.is_none() {
                    continue;
                }
                let product = a[i] * right;
                let expected = if self.products_implied { product } else { value(2, row) };
                if expected != product {
                    unsatisfied.get_or_insert(place);
                }
                if let Some(c) = c {
                    c[i] = expected;
                }
            }
        });
        tasks.into_iter().find_map(|(.., unsatisfied)| unsatisfied)
    }

    /// What [`R1cs::evaluate_all`] has as b or c at places `first`, `first` + `step` and so on, as many as `out` has places, with whatever
    /// in them. Where the products are implied, both factors are computed again for one.
    ///
    /// # Panics
    /// When `assignment` is not [`R1cs::variables`] long.
    pub(crate) fn evaluate_every(
        &self,
        values: Values,
        assignment: &[Scalar],
        first: usize,
        step: usize,
        out: &mut [Scalar],
    ) {
        assert_eq!(assignment.len(), self.variables(), "an assignment has a value for each variable");
        let n = self.domain.size();
        pool::for_each_chunk(out, ROWS_PER_TASK, |offset, places| {
            let mut walks = [&self.a, &self.b, &self.c].map(Matrix::walk);
            let mut value = |matrix: usize, row| self.evaluate_entries(walks[matrix].row(row), assignment);
            for (i, out) in places.iter_mut().enumerate() {
                let row = self.places.constraint_at(first + step * (offset + i), n);
                *out = match values {
                    _ if row >= self.constraints => Scalar::ZERO,
                    Values::Right => value(1, row),
                    Values::Product if self.products_implied => value(0, row) * value(1, row),
                    Values::Product => value(2, row),
                };
            }
        });
    }

    /// The first constraint that `assignment` does not satisfy, counted from 0, or `None` if it satisfies all (or
    /// [`R1cs::products_implied`], when none can be seen to fail).
    ///
    /// # Panics
    /// When `assignment` is not [`R1cs::variables`] long.
    pub fn first_unsatisfied(&self, assignment: &[Scalar]) -> Option<usize> {
        assert_eq!(assignment.len(), self.variables(), "an assignment has a value for each variable");
        if self.products_implied {
            return None;
        }
        let tasks = self.constraints.div_ceil(ROWS_PER_TASK);
        let found = pool::map_indices(tasks, |task| {
            let rows = task * ROWS_PER_TASK..((task + 1) * ROWS_PER_TASK).min(self.constraints);
            let mut walks = [&self.a, &self.b, &self.c].map(Matrix::walk);
            let mut value = |matrix: usize, row| self.evaluate_entries(walks[matrix].row(row), assignment);
            rows.into_iter().find(|&row| value(0, row) * value(1, row) != value(2, row))
        });
        found.into_iter().flatten().next()
    }

    /// The same circuit for a key made on a domain that another root of unity generates, the k-th power of
    /// [`Domain::omega`]'s, for an odd k: its point i is our point k·i mod n, which is where constraint i is then.
    ///
    /// # Panics
    /// When k is even: its powers would not be all of the domain.
    #[must_use]
    pub fn with_stride(mut self, k: u32) -> Self {
        self.places = Places::new(k);
        if !self.places.are_in_order() {
            let mut hasher = Sha256::new_with_prefix(b"plimsoll r1cs stride\0");
            hasher.update(self.digest);
            hasher.update(k.to_le_bytes());
            self.digest = hasher.finalize().into();
        }
        self
    }

    /// The point of the domain that stands for a constraint.
    pub fn place_of(&self, constraint: usize) -> usize {
        self.places.place_of(constraint, self.domain.size())
    }

    /// The constraint that a point of the domain stands for; not below [`R1cs::constraints`] if there is none.
    pub fn constraint_at(&self, place: usize) -> usize {
        self.places.constraint_at(place, self.domain.size())
    }

    /// The shape with these matrices; a row of A is a constraint.
    pub(crate) fn from_parts(
        inputs: usize,
        aux: usize,
        domain: Domain,
        coefficients: Vec<Scalar>,
        [a, b, c]: [Matrix; 3],
        products_implied: bool,
    ) -> Self {
        let constraints = a.rows();
        let occurring = |matrix: &Matrix| Density::new(inputs + aux, matrix.all_entries().map(|(column, _)| column));
        let (a_density, b_density) = (occurring(&a), occurring(&b));
        let digest = [0; 32];
        let mut r1cs = Self {
            inputs,
            aux,
            constraints,
            domain,
            coefficients,
            a,
            b,
            c,
            products_implied,
            a_density,
            b_density,
            places: Places::new(1),
            digest,
        };
        r1cs.digest = r1cs.compute_digest();
        r1cs
    }

    /// Hashes everything that a key depends on.
    pub(crate) fn compute_digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(b"plimsoll r1cs 1\0");
        for count in [self.inputs, self.aux, self.constraints, self.coefficients.len()] {
            hasher.update((count as u64).to_le_bytes());
        }
        for coefficient in &self.coefficients {
            hasher.update(coefficient.to_bytes_le());
        }
        for matrix in [&self.a, &self.b, &self.c] {
            matrix.hash_into(&mut hasher);
        }
        if self.products_implied {
            hasher.update(b"products implied\0");
        }
        hasher.finalize().into()
    }
}

impl fmt::Debug for R1cs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("R1cs")
            .field("inputs", &self.inputs)
            .field("aux", &self.aux)
            .field("constraints", &self.constraints)
            .field("entries", &(self.a.entries() + self.b.entries() + self.c.entries()))
            .field("coefficients", &self.coefficients.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
