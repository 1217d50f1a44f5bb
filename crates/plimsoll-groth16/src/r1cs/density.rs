//! Which variables a key's query has points for.
//!
//! A variable that occurs in no constraint of a matrix has the zero polynomial there, and its point would be the identity;
//! keys leave those out. The prover must leave out the same variables' values: it gathers the others.

use plimsoll::pool;

/// Bits per block of the rank directory.
const BLOCK_BITS: usize = 512;
const BLOCK_WORDS: usize = BLOCK_BITS / 64;

/// How many values a task of a gather copies.
const VALUES_PER_TASK: usize = 1 << 14;

/// A set of variables with fast rank, so that parts of a gather can start anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Density {
    len: usize,
    words: Vec<u64>,
    /// The members before each block of `BLOCK_BITS` variables, and the total at the end.
    ranks: Vec<u32>,
}

impl Density {
    /// The set of those of `len` variables that `members` yields (in any order, repeatedly).
    ///
    /// # Panics
    /// When a member is not below `len`.
    pub(crate) fn new(len: usize, members: impl Iterator<Item = usize>) -> Self {
        let mut words = vec![0_u64; len.div_ceil(64)];
        for member in members {
            assert!(member < len, "a member of a density is one of its variables");
            words[member / 64] |= 1 << (member % 64);
        }
        let mut ranks = Vec::with_capacity(words.len().div_ceil(BLOCK_WORDS) + 1);
        let mut total = 0;
        for block in words.chunks(BLOCK_WORDS) {
            ranks.push(total);
            total += block.iter().map(|word| word.count_ones()).sum::<u32>();
        }
        ranks.push(total);
        Self { len, words, ranks }
    }

    /// The number of members: the points that the query has.
    pub fn total(&self) -> usize {
        self.ranks.last().copied().unwrap_or(0) as usize
    }

    /// Whether a variable is a member.
    pub fn contains(&self, variable: usize) -> bool {
        variable < self.len && self.words[variable / 64] >> (variable % 64) & 1 == 1
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.members_from_block(0)
    }

    /// Copies the values of as many members as fit in `out`, from the member of rank `rank` on.
    ///
    /// # Panics
    /// When `values` has not one value for each variable, or fewer members are left than fit in `out`.
    pub fn gather_from<T: Copy + Send + Sync>(&self, rank: usize, values: &[T], out: &mut [T]) {
        assert_eq!(values.len(), self.len, "one value for each variable");
        assert!(rank + out.len() <= self.total(), "a member for each place");
        pool::for_each_chunk(out, VALUES_PER_TASK, |offset, out| {
            let first = rank + offset;
            let block = self.ranks.partition_point(|&rank| rank as usize <= first) - 1;
            let skip = first - self.ranks[block] as usize;
            for (out, member) in out.iter_mut().zip(self.members_from_block(block).skip(skip)) {
                *out = values[member];
            }
        });
    }

    /// Moves the members' values to the first places, in order, and says how many they are.
    ///
    /// # Panics
    /// When `values` has not one value for each variable.
    pub fn compact<T: Copy>(&self, values: &mut [T]) -> usize {
        assert_eq!(values.len(), self.len, "one value for each variable");
        for (place, member) in self.iter().enumerate() {
            values[place] = values[member];
        }
        self.total()
    }

    /// What a set of `len` variables occupies.
    pub(crate) fn bytes_for(len: usize) -> u64 {
        let words = len.div_ceil(64);
        (words * size_of::<u64>() + (words.div_ceil(BLOCK_WORDS) + 1) * size_of::<u32>()) as u64
    }

    /// What the set occupies.
    pub fn resident_bytes(&self) -> u64 {
        (self.words.capacity() * size_of::<u64>() + self.ranks.capacity() * size_of::<u32>()) as u64
    }

    fn members_from_block(&self, block: usize) -> impl Iterator<Item = usize> + '_ {
        let start = (block * BLOCK_WORDS).min(self.words.len());
        self.words[start..].iter().zip(start..).flat_map(|(&word, index)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                if bit == 64 {
                    return None;
                }
                rest &= rest - 1;
                Some(index * 64 + bit as usize)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_gathered_in_order() {
        type Pattern = fn(usize) -> bool;
        let patterns: [(&str, Pattern); 5] = [
            ("none", |_| false),
            ("all", |_| true),
            ("every third", |i| i % 3 == 0),
            ("runs", |i| (i / 700) % 2 == 1),
            ("the last block only", |i| i >= 99_900),
        ];
        for len in [0, 1, 63, 64, 65, 511, 512, 513, 100_000] {
            for (name, member) in patterns {
                let expected: Vec<usize> = (0..len).filter(|&i| member(i)).collect();
                let density = Density::new(len, expected.iter().copied().rev());
                let values: Vec<usize> = (0..len).collect();
                let mut out = vec![usize::MAX; density.total()];
                density.gather_from(0, &values, &mut out);
                assert_eq!(out, expected, "{name} of {len}");
                let from = out.len() / 3;
                let mut part = vec![usize::MAX; out.len() / 2];
                density.gather_from(from, &values, &mut part);
                assert_eq!(part, expected[from..from + part.len()], "{name} of {len}");
                let mut compacted = values.clone();
                assert_eq!(density.compact(&mut compacted), expected.len(), "{name} of {len}");
                assert_eq!(compacted[..expected.len()], expected, "{name} of {len}");
                assert_eq!(density.iter().collect::<Vec<_>>(), expected, "{name} of {len}");
                assert!((0..len + 70).all(|i| density.contains(i) == (i < len && member(i))), "{name} of {len}");
            }
        }
    }
}
