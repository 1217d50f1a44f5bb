//! How matrices come about: the dictionary of coefficients, and the three matrices of a circuit that is being synthesised.

use std::hash::{BuildHasher, RandomState};

use blstrs::Scalar;
use ff::Field;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::matrix::{Column, Matrix, Term};

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

/// The three matrices while the circuit is being synthesised. How many inputs there will be is known only at the end, which is why
/// matrices keep inputs and private variables apart.
pub(crate) struct MatrixBuilder {
    matrices: [Matrix; 3],
    /// The rows that are not ended yet.
    rows: [Vec<Term>; 3],
    dictionary: Dictionary,
}

impl MatrixBuilder {
    pub(crate) fn new() -> Self {
        Self { matrices: Default::default(), rows: Default::default(), dictionary: Dictionary::new() }
    }

    /// Appends an entry to the unfinished row of a matrix (0 for A, 1 for B, 2 for C). Zeros are left out.
    pub(crate) fn push(&mut self, matrix: usize, column: Column, coefficient: &Scalar) {
        if !coefficient.is_zero_vartime() {
            self.rows[matrix].push(Term { column, coefficient: self.dictionary.index_of(coefficient) });
        }
    }

    /// Ends the row in all three matrices; false when a matrix has more entries than 32 bits can count.
    pub(crate) fn end_row(&mut self) -> bool {
        self.matrices.iter_mut().zip(&mut self.rows).all(|(matrix, row)| {
            matrix.push_row(row.iter().copied());
            row.clear();
            u32::try_from(matrix.entries()).is_ok()
        })
    }

    /// The finished matrices, with private variables counted after the inputs, and the dictionary.
    pub(crate) fn finish(self, inputs: usize) -> ([Matrix; 3], Vec<Scalar>) {
        (self.matrices.map(|matrix| matrix.finish(inputs)), self.dictionary.finish())
    }
}
