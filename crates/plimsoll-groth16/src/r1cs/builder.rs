//! Shapes from single entries: for constraint systems that are read from files instead of synthesised.
//!
//! Entries come in any order, as files have them. In the usual one, row by row, nothing is moved; otherwise each matrix is put in
//! order by counting. Repeated entries of a place add up, as they would in a sum.
//!
//! What a builder holds is 12 bytes an entry and, while it finishes, some more beside that:
//! [`R1csBuilder::bytes_for`] says so beforehand.

use blstrs::Scalar;
use ff::Field;

use super::dictionary::Dictionary;
use super::matrix::{Column, Matrix, Term};
use super::{Density, R1cs, ShapeError};
use crate::domain::Domain;

/// One of the three matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The left factors.
    A,
    /// The right factors.
    B,
    /// The products.
    C,
}

/// Where the constraints x · 0 = 0 are, which keep the inputs' polynomials independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRows {
    /// One for each input is to be added behind the given rows: circom's `.r1cs`, matrices of arkworks.
    Append,
    /// They are among the entries: snarkjs's `.zkey`. Rows after the last entry are left out.
    Given,
}

/// What is known of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// The entries of C were given.
    Matrix,
    /// There is no C: every product is that of its factors (snarkjs's `.zkey`). Nobody can tell then whether a witness satisfies
    /// the constraints, until its proof is verified.
    Implied,
}

/// Collects the entries of a shape whose sizes are known.
#[derive(Debug)]
pub struct R1csBuilder {
    inputs: usize,
    aux: usize,
    rows: usize,
    dictionary: Dictionary,
    sides: [Entries; 3],
}

#[derive(Debug, Default)]
struct Entries {
    rows: Vec<u32>,
    columns: Vec<u32>,
    coefficients: Vec<u32>,
    /// One more than the largest row, and whether rows came in order.
    row_end: usize,
    disordered: bool,
}

impl R1csBuilder {
    /// A builder for `inputs` public inputs (the constant one included, so at least 1), `aux` private variables and at most
    /// `rows` constraints.
    ///
    /// # Errors
    /// More variables than a 32-bit index can name; more constraints than the field has a domain for. Nothing is allocated yet.
    pub fn new(inputs: usize, aux: usize, rows: usize) -> Result<Self, ShapeError> {
        if inputs.checked_add(aux).is_none_or(|variables| variables > u32::MAX as usize) || inputs == 0 {
            return Err(ShapeError::TooLarge { what: "variables" });
        }
        Domain::new(rows.saturating_add(inputs))?;
        Ok(Self { inputs, aux, rows, dictionary: Dictionary::new(), sides: Default::default() })
    }

    /// What building takes at most, the result included, for `entries` entries in all that room was made for
    /// ([`R1csBuilder::reserve`]), with at most `coefficients` different ones (the number of entries, if nothing is known).
    pub fn bytes_for(inputs: usize, aux: usize, rows: usize, entries: usize, coefficients: usize) -> u64 {
        let (entries, rows) = ((entries + inputs) as u64, (rows + inputs) as u64);
        // Collected, and beside that the entries of one matrix in order; what they become takes less than they do.
        let words = (12 + 8) * entries + 2 * 4 * rows + Matrix::bytes_for(0, 3 * rows);
        words + Density::bytes_for(inputs + aux) * 2 + Dictionary::BYTES_PER_VALUE * (coefficients as u64 + 8)
    }

    /// What allowing so many different coefficients takes more than `fewer` of them.
    pub fn bytes_for_coefficients(fewer: usize, coefficients: usize) -> u64 {
        Dictionary::BYTES_PER_VALUE * (coefficients - fewer) as u64
    }

    /// Lets it have so many different coefficients, 1 and −1 not counted; without it any number.
    pub fn allow_coefficients(&mut self, most: usize) {
        self.dictionary.allow(most);
    }

    /// Makes room for so many entries of a matrix, so that none is moved.
    pub fn reserve(&mut self, side: Side, entries: usize) {
        let entries = if side == Side::A { entries + self.inputs } else { entries };
        let side = &mut self.sides[side as usize];
        for words in [&mut side.rows, &mut side.columns, &mut side.coefficients] {
            words.reserve_exact(entries);
        }
    }

    /// Adds an entry: the coefficient of variable `column` (inputs first, the constant one foremost) in constraint `row`. Zeros
    /// are left out.
    ///
    /// # Errors
    /// [`ShapeError::UnknownVariable`], [`ShapeError::UnknownRow`], [`ShapeError::TooLarge`]; [`ShapeError::TooManyCoefficients`],
    /// after which it can be added again, once more are allowed.
    pub fn push(&mut self, side: Side, row: usize, column: usize, coefficient: &Scalar) -> Result<(), ShapeError> {
        if row >= self.rows {
            return Err(ShapeError::UnknownRow { row, rows: self.rows });
        }
        if column >= self.inputs + self.aux {
            return Err(ShapeError::UnknownVariable { constraint: row });
        }
        if coefficient.is_zero_vartime() {
            return Ok(());
        }
        let most = self.dictionary.most();
        let index = self.dictionary.try_index_of(coefficient).ok_or(ShapeError::TooManyCoefficients { most })?;
        let entries = &mut self.sides[side as usize];
        // A row ends where the next one starts, which 32 bits must hold; the rows for the inputs bring an entry each.
        if entries.rows.len() + self.inputs >= u32::MAX as usize {
            return Err(ShapeError::TooLarge { what: "entries in a matrix" });
        }
        entries.disordered |= row + 1 < entries.row_end;
        entries.row_end = entries.row_end.max(row + 1);
        entries.rows.push(row as u32);
        entries.columns.push(column as u32);
        entries.coefficients.push(index);
        Ok(())
    }

    /// The shape.
    ///
    /// # Errors
    /// [`ShapeError::Domain`] if there are too many constraints.
    pub fn finish(self, input_rows: InputRows, products: Products) -> Result<R1cs, ShapeError> {
        let Self { inputs, aux, rows, dictionary, sides } = self;
        let given = match input_rows {
            InputRows::Append => rows,
            InputRows::Given => sides.iter().map(|side| side.row_end).max().unwrap_or(0),
        };
        let appended = if input_rows == InputRows::Append { inputs } else { 0 };
        let domain = Domain::new(given + appended)?;
        let [a, b, c] = sides;
        let a = a.into_matrix(inputs, given, [appended, 0]);
        let b = b.into_matrix(inputs, given, [0, appended]);
        let implied = products == Products::Implied;
        let c = if implied { Matrix::default() } else { c.into_matrix(inputs, given, [0, appended]) };
        Ok(R1cs::from_parts(inputs, aux, domain, dictionary.finish(), [a, b, c], implied))
    }
}

impl Entries {
    /// The matrix, with a row behind it for each of so many inputs, and then so many empty rows.
    fn into_matrix(self, inputs: usize, rows: usize, [input_rows, empty_rows]: [usize; 2]) -> Matrix {
        let Self { rows: row_of, columns, coefficients, disordered, .. } = self;
        let mut ends = vec![0_u32; rows];
        for &row in &row_of {
            ends[row as usize] += 1;
        }
        let mut end = 0;
        for count in &mut ends {
            end += *count;
            *count = end;
        }
        let (columns, coefficients) =
            if disordered { in_order(&ends, &row_of, &columns, &coefficients) } else { (columns, coefficients) };
        drop(row_of);
        let (ends, len) = (&ends, columns.len());
        let term = &|i: usize| match columns.get(i) {
            Some(&column) if (column as usize) < inputs => {
                Term { column: Column::Input(column), coefficient: coefficients[i] }
            }
            Some(&column) => Term { column: Column::Aux(column - inputs as u32), coefficient: coefficients[i] },
            None => Term { column: Column::Input((i - len) as u32), coefficient: Dictionary::ONE },
        };
        let start = |row: usize| if row == 0 { 0 } else { ends[row - 1] as usize };
        Matrix::of_rows(inputs, || {
            let given = (0..rows).map(move |row| start(row)..ends[row] as usize);
            let for_inputs = (len..len + input_rows).map(|i| i..i + 1);
            given.chain(for_inputs).chain(std::iter::repeat_n(len..len, empty_rows)).map(move |range| range.map(term))
        })
    }
}

/// The entries row by row. From the last to the first, each goes to the last free place of its row: entries of a row stay in order.
fn in_order(ends: &[u32], row_of: &[u32], columns: &[u32], coefficients: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut next = ends.to_vec();
    let mut ordered = (vec![0; columns.len()], vec![0; columns.len()]);
    for i in (0..row_of.len()).rev() {
        let place = &mut next[row_of[i] as usize];
        *place -= 1;
        (ordered.0[*place as usize], ordered.1[*place as usize]) = (columns[i], coefficients[i]);
    }
    ordered
}

#[cfg(test)]
mod tests;
