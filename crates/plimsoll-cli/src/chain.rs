//! SHA-256 as a chain of partitions.
//!
//! A file of `n` bytes is padded as FIPS 180-4 says (0x80, zeros, the length in bits) to whole 64-byte blocks. A partition is a
//! run of [`BLOCKS_PER_PARTITION`] blocks, the last one may be a block short. Each takes the hash state from `start` to `end`; the
//! first starts at the initial value, each next one where the last one ended, and the last `end` is the file's ordinary digest.
//!
//! A chain of states alone would not say where the message ends: a proof of the *unpadded* blocks of a longer file would look the
//! same. So the bytes of the padding are part of each partition's statement ([`Padding`]), computed from the file's length alone
//! by whoever verifies.

use std::fmt;
use std::io::{self, Read};

use sha2::digest::generic_array::GenericArray;
use zeroize::Zeroizing;

/// Bytes of a SHA-256 block.
pub const BLOCK_BYTES: usize = 64;
/// Blocks that one proof covers. Two fill a domain of 2^16 with little left over.
pub const BLOCKS_PER_PARTITION: usize = 2;
/// Bytes of the padded message that one proof covers.
pub const PARTITION_BYTES: usize = BLOCK_BYTES * BLOCKS_PER_PARTITION;
/// The longest message that SHA-256 is defined for, in whole bytes: its length in bits must fit 64 bits.
pub const FILE_BYTES_MAX: u64 = u64::MAX / 8;

/// SHA-256's initial value (FIPS 180-4, 5.3.3).
pub const INITIAL_STATE: State =
    State([0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19]);

/// The eight words between two blocks; after the last block, the digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct State(pub [u32; 8]);

impl State {
    /// The 32 bytes, each word big-endian: the form in which a digest is printed.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (to, word) in bytes.chunks_exact_mut(4).zip(self.0) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// The inverse of [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let mut words = [0; 8];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_be_bytes([from[0], from[1], from[2], from[3]]);
        }
        Self(words)
    }

    /// The state after `block`.
    pub fn compress(mut self, block: &[u8; BLOCK_BYTES]) -> Self {
        sha2::compress256(&mut self.0, &[GenericArray::clone_from_slice(block)]);
        self
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.to_bytes()))
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Blocks of the padded message of a file of `file_bytes` (at most [`FILE_BYTES_MAX`]).
pub fn block_count(file_bytes: u64) -> u64 {
    // One byte for 0x80 and eight for the length must fit behind the message.
    (file_bytes + 8) / BLOCK_BYTES as u64 + 1
}

/// Partitions of a file of `file_bytes`.
pub fn partition_count(file_bytes: u64) -> u64 {
    block_count(file_bytes).div_ceil(BLOCKS_PER_PARTITION as u64)
}

/// Blocks of partition `index` of a file of `file_bytes`: all have [`BLOCKS_PER_PARTITION`] but perhaps the last.
pub fn blocks_in_partition(file_bytes: u64, index: u64) -> u8 {
    let before = index * BLOCKS_PER_PARTITION as u64;
    (block_count(file_bytes) - before).min(BLOCKS_PER_PARTITION as u64) as u8
}

/// Which bytes of a partition are padding, and what they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Padding {
    /// Bit `j` is set where byte `j` of the partition is padding.
    pub mask: u128,
    /// The padding's bytes, zero elsewhere.
    pub bytes: [u8; PARTITION_BYTES],
}

impl Padding {
    /// The padding in partition `index` of a file of `file_bytes`; nothing in most partitions.
    pub fn of_partition(file_bytes: u64, index: u64) -> Self {
        let mut padding = Self { mask: 0, bytes: [0; PARTITION_BYTES] };
        let offset = index * PARTITION_BYTES as u64;
        let used = usize::from(blocks_in_partition(file_bytes, index)) * BLOCK_BYTES;
        let padded_bytes = block_count(file_bytes) * BLOCK_BYTES as u64;
        let length = (file_bytes * 8).to_be_bytes();
        for (j, byte) in padding.bytes[..used].iter_mut().enumerate() {
            let position = offset + j as u64;
            if position < file_bytes {
                continue;
            }
            padding.mask |= 1 << j;
            let from_end = padded_bytes - position;
            if position == file_bytes {
                *byte = 0x80;
            } else if from_end <= 8 {
                *byte = length[8 - from_end as usize];
            }
        }
        padding
    }
}

/// One partition with its witness, the bytes of the file.
#[derive(Clone)]
pub struct Partition {
    /// Position in the chain, from 0.
    pub index: u64,
    /// State before the first block.
    pub start: State,
    /// State after the last block.
    pub end: State,
    /// Blocks in use, 1 or [`BLOCKS_PER_PARTITION`].
    pub blocks: u8,
    /// Which bytes are padding.
    pub padding: Padding,
    /// The blocks themselves (zero behind the last one in use). The witness: never printed, wiped when dropped.
    pub message: Zeroizing<[u8; PARTITION_BYTES]>,
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition")
            .field("index", &self.index)
            .field("start", &self.start)
            .field("end", &self.end)
            .field("blocks", &self.blocks)
            .finish_non_exhaustive()
    }
}

/// Why a file could not be split to its end.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// Reading failed in the middle.
    #[error("reading failed after {offset} bytes: {source}")]
    Read {
        /// Bytes read so far.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The file had another length when it was opened.
    #[error(
        "changed while it was read: it had {expected} bytes at first and {found} later; prove a copy that nobody writes to"
    )]
    Changed {
        /// Length at first, in bytes.
        expected: u64,
        /// Length seen now, in bytes (at least).
        found: u64,
    },
}

/// Splits a file into partitions while it is read: nothing but the current partition is held.
pub struct Partitions<R> {
    reader: R,
    file_bytes: u64,
    index: u64,
    state: State,
    failed: bool,
}

impl<R> fmt::Debug for Partitions<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitions")
            .field("index", &self.index)
            .field("file_bytes", &self.file_bytes)
            .finish_non_exhaustive()
    }
}

impl<R: Read> Partitions<R> {
    /// Partitions of the `file_bytes` that `reader` gives (at most [`FILE_BYTES_MAX`]). Read it through a buffer: it is asked for
    /// 128 bytes at a time.
    pub fn new(reader: R, file_bytes: u64) -> Self {
        Self { reader, file_bytes, index: 0, state: INITIAL_STATE, failed: false }
    }

    fn read(&mut self) -> Result<Partition, SplitError> {
        let (index, file_bytes) = (self.index, self.file_bytes);
        let padding = Padding::of_partition(file_bytes, index);
        let mut message = Zeroizing::new(padding.bytes);

        let offset = index * PARTITION_BYTES as u64;
        let wanted = file_bytes.saturating_sub(offset).min(PARTITION_BYTES as u64) as usize;
        let mut got = 0;
        while got < wanted {
            match self.reader.read(&mut message[got..wanted]) {
                Ok(0) => {
                    return Err(SplitError::Changed { expected: file_bytes, found: offset + got as u64 });
                }
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(SplitError::Read { offset: offset + got as u64, source });
                }
            }
        }
        let last = index + 1 == partition_count(file_bytes);
        if last {
            self.expect_end()?;
        }

        let blocks = blocks_in_partition(file_bytes, index);
        let start = self.state;
        for block in message.as_chunks::<BLOCK_BYTES>().0.iter().take(usize::from(blocks)) {
            self.state = self.state.compress(block);
        }
        self.index += 1;
        Ok(Partition { index, start, end: self.state, blocks, padding, message })
    }

    fn expect_end(&mut self) -> Result<(), SplitError> {
        let mut more = [0];
        loop {
            match self.reader.read(&mut more) {
                Ok(0) => return Ok(()),
                Ok(_) => {
                    return Err(SplitError::Changed { expected: self.file_bytes, found: self.file_bytes + 1 });
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(SplitError::Read { offset: self.file_bytes, source });
                }
            }
        }
    }
}

impl<R: Read> Iterator for Partitions<R> {
    type Item = Result<Partition, SplitError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.index == partition_count(self.file_bytes) {
            return None;
        }
        let partition = self.read();
        self.failed = partition.is_err();
        Some(partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn chain_ends_in_the_ordinary_digest() {
        for len in (1..=300).chain([1023, 1024, 1025, 4096]) {
            let data = text(len);
            let parts: Vec<Partition> = Partitions::new(&data[..], len as u64).map(Result::unwrap).collect();
            assert_eq!(parts.len() as u64, partition_count(len as u64), "{len} bytes");
            assert_eq!(parts[0].start, INITIAL_STATE);
            for pair in parts.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
                assert_eq!(usize::from(pair[0].blocks), BLOCKS_PER_PARTITION, "only the last run may be short");
            }
            let digest: [u8; 32] = Sha256::digest(&data).into();
            assert_eq!(parts.last().unwrap().end.to_bytes(), digest, "{len} bytes");
        }
    }

    #[test]
    fn padding_covers_exactly_what_is_not_the_file() {
        for len in 1..=300_u64 {
            let padding_bytes: u64 =
                (0..partition_count(len)).map(|i| u64::from(Padding::of_partition(len, i).mask.count_ones())).sum();
            assert_eq!(len + padding_bytes, block_count(len) * BLOCK_BYTES as u64, "{len} bytes");
        }
    }

    #[test]
    fn paddings_of_different_lengths_differ() {
        // Lengths with the same number of blocks: nothing but the padding tells them apart.
        let all: Vec<Vec<Padding>> =
            (64..119).map(|len| (0..partition_count(len)).map(|i| Padding::of_partition(len, i)).collect()).collect();
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(a, b);
            }
        }
    }

    #[test]
    fn a_file_that_shrinks_or_grows_is_noticed() {
        let data = text(400);
        for pretended in [399, 401] {
            let last = Partitions::new(&data[..], pretended).last().unwrap();
            assert!(matches!(last, Err(SplitError::Changed { expected, .. }) if expected == pretended));
        }
    }

    #[test]
    fn witness_is_not_printed() {
        let data = text(100);
        let partition = Partitions::new(&data[..], 100).next().unwrap().unwrap();
        assert!(!format!("{partition:?}").contains("message"));
    }

    #[test]
    fn state_bytes_round_trip() {
        assert_eq!(State::from_bytes(INITIAL_STATE.to_bytes()), INITIAL_STATE);
    }
}
