//! The circuit's shape, from the coefficients of a key.

use std::ops::Range;

use blstrs::Scalar;
use ff::Field;
use plimsoll_groth16::r1cs::{InputRows, Matrix, Products, R1cs, R1csBuilder, ShapeError, Side};

use super::{COEFFICIENT_BYTES, RootRatio, ZkeyFile};
use crate::curve::SCALAR_BYTES;
use crate::error::{Part, ReadError};
use crate::map::Pages;
use crate::r1cs::{self, R1csFile};
use crate::scalars::coefficient;

/// What is looked at before its pages are released: whole coefficients.
const WINDOW_COEFFICIENTS: usize = (1 << 20) / COEFFICIENT_BYTES;

/// The copy of a window.
const WINDOW_BYTES: u64 = (WINDOW_COEFFICIENTS * COEFFICIENT_BYTES) as u64;

/// What a term takes that was collected to be compared, while its vector grows.
const TERM_COPY_BYTES: u64 = 2 * (4 + SCALAR_BYTES) as u64;

/// Why a shape was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeReadError {
    /// The key's file is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The constraints' file is damaged.
    #[error("the r1cs file: {0}")]
    R1cs(#[source] ReadError),
    /// The matrices cannot be put together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The constraints are another circuit's.
    #[error("the r1cs file is of another circuit than the key: {what} is {r1cs} there and {zkey} in the key")]
    OtherCircuit {
        /// What differs.
        what: &'static str,
        /// In the r1cs file.
        r1cs: u64,
        /// In the key.
        zkey: u64,
    },
    /// The constraints are another circuit's, of the same size.
    #[error("the r1cs file is of another circuit than the key: constraint {constraint} differs")]
    OtherConstraint {
        /// The first that differs, from 0.
        constraint: usize,
    },
}

/// Asked before a shape takes so many bytes more than was said beforehand, and now and then with none: whatever it answers is what
/// becomes of the shape, [`ReadError::NoRoom`] or [`ReadError::Stopped`] say.
pub type Pay<'a> = &'a mut dyn FnMut(u64) -> Result<(), ReadError>;

/// Different coefficients that [`ZkeyFile::shape_bytes`] counts with; circuits have a few hundred, a hostile file as many as coefficients.
const COEFFICIENTS_USUAL: usize = 1 << 10;

impl ZkeyFile<'_> {
    /// What building the shape takes, the result included, with so many terms of C from an r1cs file ([`R1csFile::term_counts`]). What a
    /// file takes beyond that, because its coefficients are nearly all different or are nearly all in one constraint,
    /// [`ZkeyFile::shape_paying`] asks for.
    pub fn shape_bytes(&self, in_c: Option<usize>) -> u64 {
        let header = self.header();
        let (inputs, rows) = (header.public as usize + 1, header.domain as usize);
        let entries = header.coefficients as usize + in_c.unwrap_or(0);
        let coefficients = entries.min(COEFFICIENTS_USUAL);
        let building = R1csBuilder::bytes_for(inputs, header.signals as usize - inputs, rows, entries, coefficients);
        let window = WINDOW_BYTES.min(self.coefficients.len() as u64);
        building + if in_c.is_some() { window.max(r1cs::WINDOW_BYTES as u64) } else { window }
    }

    /// The circuit's matrices A and B, and C from the circuit's constraints where they are given: without C nobody can tell whether
    /// a witness satisfies the circuit before its proof is verified.
    ///
    /// # Errors
    /// A coefficient that is none; constraints of another circuit.
    pub fn shape(&self, r1cs: Option<&R1csFile<'_>>, pages: &dyn Pages) -> Result<R1cs, ShapeReadError> {
        let in_c = r1cs.map(R1csFile::term_counts).transpose().map_err(ShapeReadError::R1cs)?.map(|counts| counts[2]);
        self.shape_paying(r1cs, in_c, pages, &mut |_| Ok(()))
    }

    /// The same where [`ZkeyFile::shape_bytes`], for `in_c` terms of C, are there, and more is paid for when it is needed.
    ///
    /// # Errors
    /// The same, and what `pay` says.
    pub fn shape_paying(
        &self,
        r1cs: Option<&R1csFile<'_>>,
        in_c: Option<usize>,
        pages: &dyn Pages,
        pay: Pay<'_>,
    ) -> Result<R1cs, ShapeReadError> {
        let header = self.header();
        if let Some(r1cs) = r1cs {
            self.compare_counts(r1cs)?;
        }
        let inputs = header.public as usize + 1;
        let (signals, rows) = (header.signals as usize, header.domain as usize);
        let mut builder = R1csBuilder::new(inputs, signals - inputs, rows)?;
        let entries = header.coefficients as usize + in_c.unwrap_or(0);
        let mut paid = self.shape_bytes(in_c);
        let mut allowed = entries.min(COEFFICIENTS_USUAL);
        builder.allow_coefficients(allowed);
        let mut pushed = 0_u64;
        let mut push = |builder: &mut R1csBuilder, side, row, column, value: &Scalar| -> Result<(), ShapeReadError> {
            pushed += 1;
            if pushed.is_multiple_of(WINDOW_COEFFICIENTS as u64) {
                pay(0)?;
            }
            match builder.push(side, row, column, value) {
                Err(ShapeError::TooManyCoefficients { .. }) => {
                    let more = allowed.saturating_mul(2).min(entries);
                    let bytes = R1csBuilder::bytes_for_coefficients(allowed, more);
                    pay(bytes)?;
                    (paid, allowed) = (paid + bytes, more);
                    builder.allow_coefficients(allowed);
                    Ok(builder.push(side, row, column, value)?)
                }
                pushed => Ok(pushed?),
            }
        };
        let [in_a, in_b] = self.count_coefficients(pages)?;
        builder.reserve(Side::A, in_a);
        builder.reserve(Side::B, in_b);
        self.for_each_coefficient(pages, |side, row, column, bytes, index| {
            let section = Part::Coefficients;
            let value = coefficient(bytes).ok_or(ReadError::Value { section, index })?;
            push(&mut builder, side, row, column, &value)
        })?;
        let mut products = Products::Implied;
        if let Some(r1cs) = r1cs {
            products = Products::Matrix;
            builder.reserve(Side::C, in_c.unwrap_or(0));
            each_term(r1cs, &mut |matrix, row, column, value| match matrix {
                2 => push(&mut builder, Side::C, row as usize, column as usize, value).map_err(Wrapped),
                _ => Ok(()),
            })?;
        }
        let shape = builder.finish(InputRows::Given, products)?;
        if shape.domain().size() != rows {
            let (found, needed) = (rows as u64, shape.constraints() as u64);
            return Err(ReadError::Domain { found, needed }.into());
        }
        if let Some(r1cs) = r1cs {
            // Comparing takes the longest row of the key, from both files, beside the shape.
            let longest = |matrix: &Matrix| (0..matrix.rows()).map(|row| matrix.row(row).count()).max().unwrap_or(0);
            let terms = (longest(shape.a()) + longest(shape.b())) as u64;
            let comparing = shape.resident_bytes() + 2 * TERM_COPY_BYTES * terms + r1cs::WINDOW_BYTES as u64;
            if comparing > paid {
                pay(comparing - paid)?;
            }
            compare_constraints(&shape, r1cs)?;
        }
        Ok(shape.with_stride(RootRatio::snarkjs().stride()))
    }

    fn compare_counts(&self, r1cs: &R1csFile<'_>) -> Result<(), ShapeReadError> {
        let (zkey, r1cs) = (self.header(), r1cs.header());
        let counts = [
            ("the number of signals", r1cs.wires, zkey.signals),
            ("the number of public signals", r1cs.public(), zkey.public),
        ];
        match counts.into_iter().find(|(_, r1cs, zkey)| r1cs != zkey) {
            Some((what, r1cs, zkey)) => {
                Err(ShapeReadError::OtherCircuit { what, r1cs: r1cs.into(), zkey: zkey.into() })
            }
            None if u64::from(r1cs.constraints) + u64::from(zkey.public) + 1 > u64::from(zkey.domain) => {
                let needed = u64::from(r1cs.constraints) + u64::from(zkey.public) + 1;
                Err(ShapeReadError::OtherCircuit { what: "the domain", r1cs: needed, zkey: zkey.domain.into() })
            }
            None => Ok(()),
        }
    }

    /// How many coefficients each of A and B has, found by going through all of them.
    ///
    /// # Errors
    /// One is of another matrix, or of a constraint or signal that does not exist.
    pub fn coefficient_counts(&self, pages: &dyn Pages) -> Result<[usize; 2], ReadError> {
        self.count_coefficients(pages).map_err(|error| match error {
            ShapeReadError::Read(error) => error,
            // Nothing is built.
            _ => unreachable!("counting reads and does no more"),
        })
    }

    fn count_coefficients(&self, pages: &dyn Pages) -> Result<[usize; 2], ShapeReadError> {
        let mut counts = [0; 2];
        self.for_each_coefficient(pages, |side, _, _, _, _| {
            counts[side as usize] += 1;
            Ok(())
        })?;
        Ok(counts)
    }

    /// Gives each coefficient's matrix, constraint, signal, value and index to `sink`.
    fn for_each_coefficient(
        &self,
        pages: &dyn Pages,
        mut sink: impl FnMut(Side, usize, usize, &[u8], u64) -> Result<(), ShapeReadError>,
    ) -> Result<(), ShapeReadError> {
        let header = self.header();
        let all = self.coefficients.start + 4..self.coefficients.end;
        let range = |what, found: u32, max: u32| ReadError::Range { what, found: found.into(), max: max.into() };
        let mut index = 0;
        let mut copy = vec![0; all.len().min(WINDOW_COEFFICIENTS * COEFFICIENT_BYTES)];
        for start in all.clone().step_by(WINDOW_COEFFICIENTS * COEFFICIENT_BYTES) {
            let window: Range<usize> = start..(start + WINDOW_COEFFICIENTS * COEFFICIENT_BYTES).min(all.end);
            let copy = &mut copy[..window.len()];
            pages.copy(self.bytes(), window.start, copy).map_err(ReadError::from)?;
            for bytes in copy.chunks_exact(COEFFICIENT_BYTES) {
                let (numbers, value) = bytes.split_at(12);
                let number = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| numbers[4 * i + byte]));
                let (matrix, row, signal) = (number(0), number(1), number(2));
                let side = match matrix {
                    0 => Side::A,
                    1 => Side::B,
                    _ => return Err(range("a coefficient's matrix", matrix, 1).into()),
                };
                if row >= header.domain {
                    return Err(range("a coefficient's constraint", row, header.domain - 1).into());
                }
                if signal >= header.signals {
                    return Err(range("a coefficient's signal", signal, header.signals - 1).into());
                }
                sink(side, row as usize, signal as usize, value, index)?;
                index += 1;
            }
        }
        Ok(())
    }
}

type OnTerm<'a> = &'a mut dyn FnMut(usize, u32, u32, &Scalar) -> Result<(), Wrapped>;

/// Goes through an r1cs file, telling its faults from those of what is done with it.
fn each_term(r1cs: &R1csFile<'_>, term: OnTerm<'_>) -> Result<(), ShapeReadError> {
    r1cs.for_each_term(term).map_err(|error: Wrapped| error.0)
}

struct Wrapped(ShapeReadError);

impl From<ReadError> for Wrapped {
    fn from(error: ReadError) -> Self {
        Self(ShapeReadError::R1cs(error))
    }
}

/// Compares A and B with the constraints, and what is behind them with the rows that snarkjs adds for the public signals.
fn compare_constraints(shape: &R1cs, r1cs: &R1csFile<'_>) -> Result<(), ShapeReadError> {
    let constraints = r1cs.header().constraints as usize;
    let mut rows = Rows { shape, at: 0, terms: [Vec::new(), Vec::new()], in_key: [0; 2] };
    rows.count();
    each_term(r1cs, &mut |matrix, row, column, value| {
        rows.advance_to(row as usize).map_err(Wrapped)?;
        if let Some(terms) = rows.terms.get_mut(matrix)
            && !value.is_zero_vartime()
        {
            // Where there are more than in the key it is another circuit: so what is collected is no longer than a row of the key's.
            if terms.len() >= rows.in_key[matrix] {
                return Err(Wrapped(ShapeReadError::OtherConstraint { constraint: row as usize }));
            }
            terms.push((column, value.to_bytes_le()));
        }
        Ok(())
    })?;
    rows.advance_to(constraints)?;
    let one = Scalar::ONE.to_bytes_le();
    for input in 0..shape.inputs() {
        rows.terms[0].push((input as u32, one));
        rows.advance_to(constraints + input + 1)?;
    }
    if shape.constraints() > rows.at {
        return Err(ShapeReadError::OtherConstraint { constraint: rows.at });
    }
    Ok(())
}

/// The terms of A and B of the row that is being collected, to be compared with the shape's.
struct Rows<'a> {
    shape: &'a R1cs,
    at: usize,
    terms: [Vec<(u32, [u8; SCALAR_BYTES])>; 2],
    /// How many the shape's row has.
    in_key: [usize; 2],
}

impl Rows<'_> {
    fn count(&mut self) {
        let entries = |matrix: &Matrix| if self.at < matrix.rows() { matrix.row(self.at).count() } else { 0 };
        self.in_key = [self.shape.a(), self.shape.b()].map(entries);
    }

    /// Compares the row that was collected, and all empty ones up to `row`.
    fn advance_to(&mut self, row: usize) -> Result<(), ShapeReadError> {
        while self.at < row {
            for (matrix, terms) in [self.shape.a(), self.shape.b()].into_iter().zip(&mut self.terms) {
                let mut of_shape: Vec<_> = Vec::new();
                if self.at < matrix.rows() {
                    let value = |index: u32| self.shape.coefficients()[index as usize].to_bytes_le();
                    of_shape.extend(matrix.row(self.at).map(|(column, index)| (column as u32, value(index))));
                }
                // The order within a sum says nothing.
                terms.sort_unstable();
                of_shape.sort_unstable();
                if *terms != of_shape {
                    return Err(ShapeReadError::OtherConstraint { constraint: self.at });
                }
                terms.clear();
            }
            self.at += 1;
            self.count();
        }
        Ok(())
    }
}
