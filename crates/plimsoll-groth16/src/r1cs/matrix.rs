//! A sparse matrix, compressed by rows, with dictionary-coded coefficients.

use std::collections::HashMap;

use blstrs::Scalar;
use ff::Field;
use sha2::{Digest, Sha256};

/// The entries of one of the three matrices. A row's entries are `columns[start..end]` and the coefficient indices beside them.
#[derive(Debug)]
pub struct Matrix {
    row_ends: Vec<u32>,
    columns: Vec<u32>,
    coefficients: Vec<u32>,
}

impl Matrix {
    /// The columns of a row and, beside them, the indices of their coefficients in the dictionary.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> (&[u32], &[u32]) {
        let start = if row == 0 { 0 } else { self.row_ends[row - 1] as usize };
        let end = self.row_ends[row] as usize;
        (&self.columns[start..end], &self.coefficients[start..end])
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.row_ends.len()
    }

    /// The number of non-zero entries.
    pub fn entries(&self) -> usize {
        self.columns.len()
    }

    /// The columns of all entries, row by row.
    pub(crate) fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// What the matrix occupies, the shared dictionary apart.
    pub fn resident_bytes(&self) -> u64 {
        let words = self.row_ends.capacity() + self.columns.capacity() + self.coefficients.capacity();
        (words * size_of::<u32>()) as u64
    }

    pub(super) fn hash_into(&self, hasher: &mut Sha256) {
        for words in [&self.row_ends, &self.columns, &self.coefficients] {
            hasher.update((words.len() as u64).to_le_bytes());
            for word in words {
                hasher.update(word.to_le_bytes());
            }
        }
    }
}

/// The three matrices while the circuit is being synthesised. How many inputs there will be is known only at the end, so
/// private variables are marked by the highest bit until then.
pub(crate) struct MatrixBuilder {
    matrices: [Matrix; 3],
    dictionary: Vec<Scalar>,
    index_of: HashMap<[u8; 32], u32>,
}

impl MatrixBuilder {
    /// The dictionary's index of 1, whose product is an addition.
    pub(crate) const ONE: u32 = 0;
    /// The dictionary's index of −1, whose product is a subtraction.
    pub(crate) const MINUS_ONE: u32 = 1;
    /// Marks a private variable's index.
    pub(crate) const AUX: u32 = 1 << 31;

    pub(crate) fn new() -> Self {
        let empty = || Matrix { row_ends: Vec::new(), columns: Vec::new(), coefficients: Vec::new() };
        let dictionary = vec![Scalar::ONE, -Scalar::ONE];
        let index_of = dictionary.iter().zip(0..).map(|(value, index)| (value.to_bytes_le(), index)).collect();
        Self { matrices: [empty(), empty(), empty()], dictionary, index_of }
    }

    /// Appends an entry to the unfinished row of a matrix (0 for A, 1 for B, 2 for C). Zeros are left out.
    pub(crate) fn push(&mut self, matrix: usize, column: u32, coefficient: &Scalar) {
        if coefficient.is_zero_vartime() {
            return;
        }
        let index = if *coefficient == Scalar::ONE {
            Self::ONE
        } else {
            let dictionary = &mut self.dictionary;
            *self.index_of.entry(coefficient.to_bytes_le()).or_insert_with(|| {
                dictionary.push(*coefficient);
                (dictionary.len() - 1) as u32
            })
        };
        self.matrices[matrix].columns.push(column);
        self.matrices[matrix].coefficients.push(index);
    }

    /// Ends the row in all three matrices; false when a matrix has more entries than a row's end can name.
    pub(crate) fn end_row(&mut self) -> bool {
        self.matrices.iter_mut().all(|matrix| {
            let end = u32::try_from(matrix.columns.len());
            matrix.row_ends.push(end.unwrap_or(u32::MAX));
            end.is_ok()
        })
    }

    /// The finished matrices, with private variables counted after the inputs, and the dictionary.
    pub(crate) fn finish(self, inputs: usize) -> ([Matrix; 3], Vec<Scalar>) {
        let mut matrices = self.matrices;
        for matrix in &mut matrices {
            for column in matrix.columns.iter_mut().filter(|column| **column & Self::AUX != 0) {
                *column = (*column & !Self::AUX) + inputs as u32;
            }
            matrix.row_ends.shrink_to_fit();
            matrix.columns.shrink_to_fit();
            matrix.coefficients.shrink_to_fit();
        }
        let mut dictionary = self.dictionary;
        dictionary.shrink_to_fit();
        (matrices, dictionary)
    }
}
