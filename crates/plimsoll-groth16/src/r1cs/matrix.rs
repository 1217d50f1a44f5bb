//! A sparse matrix, compressed by rows, with dictionary-coded coefficients.

use std::hash::{BuildHasher, RandomState};

use blstrs::Scalar;
use ff::Field;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use sha2::{Digest, Sha256};

/// How many numbers are hashed in one call.
const WORDS_TOGETHER: usize = 256;

/// The entries of one of the three matrices. A row's entries are `columns[start..end]` and the coefficient indices beside them.
#[derive(Debug, Default)]
pub struct Matrix {
    row_ends: Vec<u32>,
    columns: Vec<u32>,
    coefficients: Vec<u32>,
}

impl Matrix {
    pub(super) fn new(row_ends: Vec<u32>, columns: Vec<u32>, coefficients: Vec<u32>) -> Self {
        Self { row_ends, columns, coefficients }
    }

    /// Appends a row of columns with the indices of their coefficients.
    pub(super) fn push_row(&mut self, entries: &[(u32, u32)]) {
        for &(column, coefficient) in entries {
            self.columns.push(column);
            self.coefficients.push(coefficient);
        }
        self.row_ends.push(self.columns.len() as u32);
    }

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
            // Many at a time: so short a piece costs more to hand over than to hash.
            let mut bytes = [0; 4 * WORDS_TOGETHER];
            for words in words.chunks(WORDS_TOGETHER) {
                let bytes = &mut bytes[..4 * words.len()];
                bytes
                    .chunks_exact_mut(4)
                    .zip(words)
                    .for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
                hasher.update(bytes);
            }
        }
    }
}

/// The coefficients that occur, each once, under the index that entries refer to. The table holds indices alone, so that a file
/// whose coefficients all differ costs little more than their values.
#[derive(Debug)]
pub(crate) struct Dictionary {
    values: Vec<Scalar>,
    indices: HashTable<u32>,
    /// Of a key of its own, so that a hostile file cannot make all values collide.
    hasher: RandomState,
    /// As many values may be in it, the first two apart.
    most: usize,
}

impl Dictionary {
    /// The index of 1, whose product is an addition.
    pub(crate) const ONE: u32 = 0;
    /// The index of −1, whose product is a subtraction.
    pub(crate) const MINUS_ONE: u32 = 1;
    /// What a value takes at most: its place and the table's, when both have just grown to twice their size.
    pub(super) const BYTES_PER_VALUE: u64 = 3 * 32 + 2 * 2 * 5;

    pub(crate) fn new() -> Self {
        let (values, indices, hasher) = (Vec::new(), HashTable::new(), RandomState::new());
        let mut dictionary = Self { values, indices, hasher, most: usize::MAX };
        dictionary.index_of(&Scalar::ONE);
        dictionary.index_of(&-Scalar::ONE);
        dictionary
    }

    /// Lets it have so many values beside 1 and −1.
    pub(super) fn allow(&mut self, most: usize) {
        self.most = most;
    }

    /// How many it may have.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Where a coefficient is, or is put. There are fewer than entries, whose number fits.
    pub(crate) fn index_of(&mut self, coefficient: &Scalar) -> u32 {
        // Where it is allowed to grow, it does.
        self.try_index_of(coefficient).unwrap_or(Self::ONE)
    }

    /// The same; `None` for one that would be more than is [allowed](Dictionary::allow).
    pub(super) fn try_index_of(&mut self, coefficient: &Scalar) -> Option<u32> {
        if self.values.first() == Some(coefficient) {
            return Some(Self::ONE);
        }
        let is_full = self.values.len() >= self.most.saturating_add(2);
        let (values, hasher) = (&mut self.values, &self.hasher);
        let hash = |value: &Scalar| hasher.hash_one(value.to_bytes_le());
        let same = |index: &u32| values[*index as usize] == *coefficient;
        match self.indices.entry(hash(coefficient), same, |index| hash(&values[*index as usize])) {
            Entry::Occupied(entry) => Some(*entry.get()),
            Entry::Vacant(_) if is_full => None,
            Entry::Vacant(entry) => {
                let index = values.len() as u32;
                entry.insert(index);
                values.push(*coefficient);
                Some(index)
            }
        }
    }

    pub(crate) fn finish(self) -> Vec<Scalar> {
        let mut values = self.values;
        values.shrink_to_fit();
        values
    }
}

/// The three matrices while the circuit is being synthesised. How many inputs there will be is known only at the end, so
/// private variables are marked by the highest bit until then.
pub(crate) struct MatrixBuilder {
    matrices: [Matrix; 3],
    dictionary: Dictionary,
}

impl MatrixBuilder {
    /// Marks a private variable's index.
    pub(crate) const AUX: u32 = 1 << 31;

    pub(crate) fn new() -> Self {
        Self { matrices: Default::default(), dictionary: Dictionary::new() }
    }

    /// Appends an entry to the unfinished row of a matrix (0 for A, 1 for B, 2 for C). Zeros are left out.
    pub(crate) fn push(&mut self, matrix: usize, column: u32, coefficient: &Scalar) {
        if coefficient.is_zero_vartime() {
            return;
        }
        let index = self.dictionary.index_of(coefficient);
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
        (matrices, self.dictionary.finish())
    }
}
