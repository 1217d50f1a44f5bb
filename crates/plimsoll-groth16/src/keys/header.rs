//! The counts of a key file, found by seeking from one to the next.

use std::io::{Read, Seek, SeekFrom};

use blstrs::{G1Affine, G2Affine};

use super::error::{KeyReadError, Section};
use super::points::{CHUNK_BYTES, KeyPoint, read_count};
use super::{rewind, stream_len};

/// α and β in G1, β and γ in G2, δ in both.
pub(super) const CONSTANTS_BYTES: u64 = 3 * G1Affine::ENCODED_BYTES as u64 + 3 * G2Affine::ENCODED_BYTES as u64;

const COUNT_BYTES: u64 = 4;

/// The number of points in each section of a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHeader {
    /// Input points.
    pub ic: u32,
    /// Points of h.
    pub h: u32,
    /// Points of l.
    pub l: u32,
    /// Points of a.
    pub a: u32,
    /// Points of b in G1.
    pub b_g1: u32,
    /// Points of b in G2.
    pub b_g2: u32,
}

impl KeyHeader {
    /// What reading takes beyond [`KeyHeader::resident_bytes`], until it returns.
    pub const READ_SCRATCH_BYTES: u64 = CHUNK_BYTES as u64;

    /// Finds the counts and checks that the sections make up the file exactly. Reads a few bytes, allocates nothing.
    ///
    /// # Errors
    /// A section that is longer than what is left of the file, or bytes after the last.
    pub fn scan<R: Read + Seek>(reader: &mut R) -> Result<Self, KeyReadError> {
        let len = stream_len(reader)?;
        let ic = scan_verifying_key(reader, len)?;
        let mut position = verifying_key_bytes(ic);
        let mut section = |section, point_bytes| scan_section(reader, &mut position, len, section, point_bytes);
        let g1 = G1Affine::ENCODED_BYTES;
        let header = Self {
            ic,
            h: section(Section::H, g1)?,
            l: section(Section::L, g1)?,
            a: section(Section::A, g1)?,
            b_g1: section(Section::BG1, g1)?,
            b_g2: section(Section::BG2, G2Affine::ENCODED_BYTES)?,
        };
        if position < len {
            return Err(KeyReadError::TrailingBytes { extra: len - position });
        }
        Ok(header)
    }

    /// What the key will occupy in memory.
    pub fn resident_bytes(&self) -> u64 {
        self.g1_points() * size_of::<G1Affine>() as u64 + u64::from(self.b_g2) * size_of::<G2Affine>() as u64
    }

    /// The length of a file with these counts.
    pub fn file_bytes(&self) -> u64 {
        let g1 = self.g1_points() * G1Affine::ENCODED_BYTES as u64;
        let g2 = u64::from(self.b_g2) * G2Affine::ENCODED_BYTES as u64;
        CONSTANTS_BYTES + 6 * COUNT_BYTES + g1 + g2
    }

    /// Where each query's points are in the file: the first one's place, and how many there are. Before them are α and β in G1, β and γ
    /// in G2, and δ in both, from the file's start on.
    pub fn queries(&self) -> [(Section, u64, u32); 6] {
        let (g1, g2) = (G1Affine::ENCODED_BYTES as u64, G2Affine::ENCODED_BYTES as u64);
        let mut end = CONSTANTS_BYTES;
        [
            (Section::Ic, self.ic, g1),
            (Section::H, self.h, g1),
            (Section::L, self.l, g1),
            (Section::A, self.a, g1),
            (Section::BG1, self.b_g1, g1),
            (Section::BG2, self.b_g2, g2),
        ]
        .map(|(section, count, point_bytes)| {
            let start = end + COUNT_BYTES;
            end = start + u64::from(count) * point_bytes;
            (section, start, count)
        })
    }

    fn g1_points(&self) -> u64 {
        [self.ic, self.h, self.l, self.a, self.b_g1].into_iter().map(u64::from).sum()
    }
}

/// The bytes of a verifying key with so many input points.
pub(super) fn verifying_key_bytes(ic: u32) -> u64 {
    CONSTANTS_BYTES + COUNT_BYTES + u64::from(ic) * G1Affine::ENCODED_BYTES as u64
}

/// Finds the number of input points in a file of `len` bytes.
pub(super) fn scan_verifying_key<R: Read + Seek>(reader: &mut R, len: u64) -> Result<u32, KeyReadError> {
    if len < CONSTANTS_BYTES {
        return Err(KeyReadError::Truncated { section: Section::Constants, needed: CONSTANTS_BYTES, available: len });
    }
    rewind(reader)?;
    let mut position = CONSTANTS_BYTES;
    let ic = scan_section(reader, &mut position, len, Section::Ic, G1Affine::ENCODED_BYTES)?;
    if ic == 0 {
        return Err(KeyReadError::NoInputs);
    }
    Ok(ic)
}

/// Reads the count at `position`, checks that so many points follow, and moves `position` behind them.
fn scan_section<R: Read + Seek>(
    reader: &mut R,
    position: &mut u64,
    len: u64,
    section: Section,
    point_bytes: usize,
) -> Result<u32, KeyReadError> {
    let available = len - *position;
    if available < COUNT_BYTES {
        return Err(KeyReadError::Truncated { section, needed: COUNT_BYTES, available });
    }
    reader.seek(SeekFrom::Start(*position)).map_err(|source| KeyReadError::Io { section, source })?;
    let count = read_count(reader, section)?;
    let (available, needed) = (available - COUNT_BYTES, u64::from(count) * point_bytes as u64);
    if available < needed {
        return Err(KeyReadError::Truncated { section, needed, available });
    }
    *position += COUNT_BYTES + needed;
    Ok(count)
}
