//! A sparse matrix in few bytes: rows of byte codes, with the coefficients in a dictionary.
//!
//! A proof goes through the matrices once or twice, in order, and they are there all the time; so they are kept small rather than
//! plain. An entry is a byte nearly always, where two 32-bit numbers would take eight:
//!
//! ```text
//! row    := length entry*                 its bytes: one, or 255 and four more
//! entry  := token column? coefficient?
//! token  := coefficient's code · 32 + column's code
//! ```
//!
//! - **Columns.** Circuits use variables near those that they used last. The private ones are told by how far they are from the one
//!   before in the row; the row's first by how far it is from the last one in front of its block of [`BLOCK`] rows. So a row can be read
//!   by itself, and a block is all that has to be walked to find it.
//! - **Coefficients.** The first few of the dictionary, the one after the last, and the same again have codes of their own.

use sha2::{Digest, Sha256};

/// How many bytes are hashed in one call.
const BYTES_TOGETHER: usize = 1024;

/// How many rows begin at a known place together.
pub(super) const BLOCK: usize = 16;

/// Codes of columns: the constant one; a private variable at a distance from the one before, which is the code less [`NEAR_ZERO`].
const COLUMN_ONE: u8 = 0;
const NEAR_ZERO: i64 = 15;
const NEAR_LAST: u8 = 28;
/// At a distance of 16 bits, or of 32 modulo 2^32, or an input by its number; it follows.
const COLUMN_16: u8 = 29;
const COLUMN_32: u8 = 30;
const COLUMN_INPUT: u8 = 31;

/// Codes of coefficients: below it the index itself.
const COEFFICIENT_NEXT: u8 = 4;
const COEFFICIENT_SAME: u8 = 5;
/// The index follows, in 8 or in 32 bits.
const COEFFICIENT_8: u8 = 6;
const COEFFICIENT_32: u8 = 7;

/// What says that a row's length has four more bytes.
const LONG_ROW: u8 = 255;

/// The most bytes that an entry takes.
const ENTRY_BYTES: u64 = 1 + 4 + 4;

/// A variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// A public input; 0 is the constant one.
    Input(u32),
    /// A private one.
    Aux(u32),
}

/// An entry of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) column: Column,
    /// Where the coefficient is in the dictionary.
    pub(crate) coefficient: u32,
}

/// The entries of one of the three matrices.
#[derive(Debug, Default)]
pub struct Matrix {
    inputs: u32,
    entries: usize,
    blocks: Vec<Block>,
    codes: Vec<u8>,
    /// Of the rows so far.
    bases: Bases,
}

/// Where rows begin, and the private variable from which their first ones are told.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: usize,
    base: u32,
}

/// From which private variables rows are told, one after the other.
#[derive(Debug, Default)]
struct Bases {
    rows: usize,
    /// Of the block.
    base: u32,
    /// The private variable that was named last.
    last: u32,
}

impl Bases {
    /// The base of the next row, which is this.
    fn next(&mut self, row: impl Iterator<Item = Term>) -> u32 {
        if self.rows.is_multiple_of(BLOCK) {
            self.base = self.last;
        }
        self.rows += 1;
        let private = |term: Term| if let Column::Aux(index) = term.column { Some(index) } else { None };
        self.last = row.filter_map(private).last().unwrap_or(self.last);
        self.base
    }
}

impl Matrix {
    /// The matrix of these rows, each of which is given twice: once to be measured.
    pub(super) fn of_rows<R, T>(inputs: usize, rows: impl Fn() -> R) -> Self
    where
        R: Iterator<Item = T>,
        T: Iterator<Item = Term> + Clone,
    {
        let (mut bases, mut bytes) = (Bases::default(), 0);
        for row in rows() {
            let len = len_of_row(bases.next(row.clone()), row);
            bytes += len_of_length(len) + len;
        }
        let mut matrix = Self {
            blocks: Vec::with_capacity(bases.rows.div_ceil(BLOCK)),
            codes: Vec::with_capacity(bytes),
            ..Self::default()
        };
        rows().for_each(|row| matrix.push_row(row));
        matrix.finish(inputs)
    }

    /// What so many entries in so many rows take at most.
    pub(super) fn bytes_for(entries: u64, rows: u64) -> u64 {
        // A length is a byte; those of five are of rows with 29 entries or more.
        entries * ENTRY_BYTES + entries / 7 + rows + rows.div_ceil(BLOCK as u64) * size_of::<Block>() as u64
    }

    /// Appends a row.
    pub(super) fn push_row(&mut self, row: impl Iterator<Item = Term> + Clone) {
        let is_first = self.bases.rows.is_multiple_of(BLOCK);
        let base = self.bases.next(row.clone());
        if is_first {
            self.blocks.push(Block { start: self.codes.len(), base });
        }
        let len = len_of_row(base, row.clone());
        match u8::try_from(len) {
            Ok(len) if len != LONG_ROW => self.codes.push(len),
            // Nobody has a row of 4 GiB: more than 2^32 entries are refused.
            _ => {
                self.codes.push(LONG_ROW);
                self.codes.extend((len as u32).to_le_bytes());
            }
        }
        for code in encode(base, row) {
            self.codes.extend(&code.bytes[..code.len]);
            self.entries += 1;
        }
    }

    /// The matrix, once it is known how many inputs there are.
    pub(super) fn finish(mut self, inputs: usize) -> Self {
        self.inputs = inputs as u32;
        self.blocks.shrink_to_fit();
        self.codes.shrink_to_fit();
        self
    }

    /// A row's entries: each one's column and, in the dictionary, its coefficient.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> Row<'_> {
        assert!(row < self.rows(), "row {row} of {}", self.rows());
        self.walk().row(row)
    }

    /// The rows, one after the other from the first, or from whichever is asked for.
    pub(crate) fn walk(&self) -> Rows<'_> {
        Rows { matrix: self, codes: &self.codes, row: 0 }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.bases.rows
    }

    /// The number of non-zero entries.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// All entries, row by row.
    pub(crate) fn all_entries(&self) -> impl Iterator<Item = (usize, u32)> {
        let mut rows = self.walk();
        (0..self.rows()).flat_map(move |_| rows.next_row())
    }

    /// What the matrix occupies, the shared dictionary apart.
    pub fn resident_bytes(&self) -> u64 {
        (self.blocks.capacity() * size_of::<Block>() + self.codes.capacity()) as u64
    }

    /// Hashes what the matrix says, not how it is coded: where each row ends, then the columns, then the coefficients.
    pub(super) fn hash_into(&self, hasher: &mut Sha256) {
        let mut rows = self.walk();
        let mut end = 0;
        let ends = (0..self.rows()).map(|_| {
            end += rows.next_row().count() as u32;
            end
        });
        hash_words(hasher, self.rows(), ends);
        hash_words(hasher, self.entries, self.all_entries().map(|(column, _)| column as u32));
        hash_words(hasher, self.entries, self.all_entries().map(|(_, coefficient)| coefficient));
    }
}

/// Hashes how many there are, and the numbers: many at a time, for so short a piece costs more to hand over than to hash.
fn hash_words(hasher: &mut Sha256, count: usize, words: impl Iterator<Item = u32>) {
    hasher.update((count as u64).to_le_bytes());
    let mut bytes = Vec::with_capacity(BYTES_TOGETHER);
    for word in words {
        bytes.extend(word.to_le_bytes());
        if bytes.len() == BYTES_TOGETHER {
            hasher.update(&bytes);
            bytes.clear();
        }
    }
    hasher.update(&bytes);
}

/// A walk through the rows.
#[derive(Clone, Debug)]
pub(crate) struct Rows<'a> {
    matrix: &'a Matrix,
    codes: &'a [u8],
    row: usize,
}

impl<'a> Rows<'a> {
    /// A row. Nothing is sought where it is the next one, or one of the next.
    #[inline]
    pub(crate) fn row(&mut self, row: usize) -> Row<'a> {
        if row < self.row || row - self.row >= BLOCK {
            self.seek(row / BLOCK);
        }
        while self.row < row {
            self.next_row();
        }
        self.next_row()
    }

    fn seek(&mut self, block: usize) {
        let start = self.matrix.blocks.get(block).map_or(self.matrix.codes.len(), |block| block.start);
        (self.codes, self.row) = (&self.matrix.codes[start..], block * BLOCK);
    }

    /// The next row; empty after the last.
    #[inline]
    pub(crate) fn next_row(&mut self) -> Row<'a> {
        let base = self.matrix.blocks.get(self.row / BLOCK).map_or(0, |block| block.base);
        self.row += 1;
        let (len, codes) = match self.codes {
            [] => (0, self.codes),
            [LONG_ROW, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
            [len, rest @ ..] => (usize::from(*len), rest),
        };
        let (codes, rest) = codes.split_at(len);
        self.codes = rest;
        Row { codes, aux: base, coefficient: 0, inputs: self.matrix.inputs }
    }
}

/// The entries of a row: each one's column and, in the dictionary, its coefficient.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    codes: &'a [u8],
    /// The private variable and the coefficient of the entry before.
    aux: u32,
    coefficient: u32,
    inputs: u32,
}

impl Row<'_> {
    #[inline]
    fn byte(&mut self) -> u8 {
        match self.codes {
            [byte, rest @ ..] => {
                self.codes = rest;
                *byte
            }
            [] => 0,
        }
    }

    #[inline]
    fn word(&mut self) -> u32 {
        u32::from_le_bytes([(); 4].map(|()| self.byte()))
    }
}

impl Iterator for Row<'_> {
    type Item = (usize, u32);

    #[inline]
    fn next(&mut self) -> Option<(usize, u32)> {
        if self.codes.is_empty() {
            return None;
        }
        let token = self.byte();
        let column = match token % 32 {
            COLUMN_ONE => 0,
            COLUMN_INPUT => self.word() as usize,
            code => {
                let distance = match code {
                    COLUMN_16 => i32::from(i16::from_le_bytes([self.byte(), self.byte()])),
                    COLUMN_32 => self.word() as i32,
                    near => i32::from(near) - NEAR_ZERO as i32,
                };
                self.aux = self.aux.wrapping_add_signed(distance);
                self.aux as usize + self.inputs as usize
            }
        };
        self.coefficient = match token / 32 {
            COEFFICIENT_NEXT => self.coefficient.wrapping_add(1),
            COEFFICIENT_SAME => self.coefficient,
            COEFFICIENT_8 => u32::from(self.byte()),
            COEFFICIENT_32 => self.word(),
            index => u32::from(index),
        };
        Some((column, self.coefficient))
    }
}

/// How many bytes the entries of a row take.
fn len_of_row(base: u32, row: impl Iterator<Item = Term>) -> usize {
    encode(base, row).map(|code| code.len).sum()
}

/// How many bytes say so.
fn len_of_length(len: usize) -> usize {
    if len < usize::from(LONG_ROW) { 1 } else { 5 }
}

/// An entry's code.
struct Code {
    bytes: [u8; ENTRY_BYTES as usize],
    len: usize,
}

/// The codes of a row's entries, where the first private variable is told from `base`.
fn encode(base: u32, row: impl Iterator<Item = Term>) -> impl Iterator<Item = Code> {
    let (mut aux, mut last) = (base, 0);
    row.map(move |Term { column, coefficient }| {
        let mut code = Code { bytes: [0; ENTRY_BYTES as usize], len: 1 };
        let column = match column {
            Column::Input(0) => COLUMN_ONE,
            Column::Input(index) => {
                code.push(&index.to_le_bytes());
                COLUMN_INPUT
            }
            Column::Aux(index) => {
                let distance = i64::from(index) - i64::from(aux);
                let from = std::mem::replace(&mut aux, index);
                match (u8::try_from(distance + NEAR_ZERO), i16::try_from(distance)) {
                    (Ok(near), _) if (COLUMN_ONE + 1..=NEAR_LAST).contains(&near) => near,
                    (_, Ok(distance)) => {
                        code.push(&distance.to_le_bytes());
                        COLUMN_16
                    }
                    _ => {
                        code.push(&index.wrapping_sub(from).to_le_bytes());
                        COLUMN_32
                    }
                }
            }
        };
        let before = std::mem::replace(&mut last, coefficient);
        let coefficient = match u8::try_from(coefficient) {
            Ok(index) if index < COEFFICIENT_NEXT => index,
            _ if coefficient == before => COEFFICIENT_SAME,
            _ if coefficient == before.wrapping_add(1) => COEFFICIENT_NEXT,
            Ok(index) => {
                code.push(&[index]);
                COEFFICIENT_8
            }
            Err(_) => {
                code.push(&coefficient.to_le_bytes());
                COEFFICIENT_32
            }
        };
        code.bytes[0] = coefficient * 32 + column;
        code
    })
}

impl Code {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

#[cfg(test)]
mod tests;
