//! Uncompressed points, one by one and by the section.

use std::io::{self, Read, Write};

use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;
use plimsoll::pool;

use super::Checked;
use super::error::{KeyReadError, KeyWriteError, PointFault, Section};
use crate::backend::BASE_MODULUS;

/// What is read, parsed and encoded at once.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// How many points a task parses: a millisecond with subgroup checks.
const POINTS_PER_TASK: usize = 64;

/// The highest three bits of an encoding: compressed, infinity, and the sign of a compressed point's y.
const FLAG_BITS: u8 = 0b1110_0000;
const INFINITY: u8 = 0b0100_0000;

/// A point as keys hold it.
pub(crate) trait KeyPoint: PrimeCurveAffine + Send + Sync {
    /// Bytes of the uncompressed encoding.
    const ENCODED_BYTES: usize;

    /// Whether the bytes are a canonical encoding of a point of the curve, and that point.
    fn decode_on_curve(bytes: &[u8]) -> Option<Self>;

    /// Whether a point of the curve is in the group of prime order.
    fn is_in_subgroup(&self) -> bool;

    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// Whether both coordinates' parts are below the modulus is all that separates a non-canonical encoding from a point off
    /// the curve; the parts start here.
    const COORDINATE_STARTS: &'static [usize];
}

/// The field's modulus p, big-endian.
pub(super) const MODULUS: [u8; 48] = big_endian(BASE_MODULUS);

const fn big_endian(limbs: [u64; 6]) -> [u8; 48] {
    let mut bytes = [0; 48];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = limbs[5 - at / 8].to_be_bytes()[at % 8];
        at += 1;
    }
    bytes
}

macro_rules! key_point {
    ($point:ty, $bytes:literal, $starts:expr) => {
        impl KeyPoint for $point {
            const ENCODED_BYTES: usize = $bytes;
            const COORDINATE_STARTS: &'static [usize] = $starts;

            fn decode_on_curve(bytes: &[u8]) -> Option<Self> {
                let bytes: &[u8; $bytes] = bytes.try_into().ok()?;
                let point = Option::<Self>::from(Self::from_uncompressed_unchecked(bytes))?;
                bool::from(point.is_on_curve()).then_some(point)
            }

            fn is_in_subgroup(&self) -> bool {
                self.is_torsion_free().into()
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_uncompressed());
            }
        }
    };
}

key_point!(G1Affine, 96, &[0, 48]);
key_point!(G2Affine, 192, &[0, 48, 96, 144]);

/// Decodes a point that may not be infinity.
pub(crate) fn decode<P: KeyPoint>(bytes: &[u8], checked: Checked) -> Result<P, PointFault> {
    match bytes[0] & FLAG_BITS {
        0 => {}
        INFINITY if bytes[0] == INFINITY && bytes[1..].iter().all(|&byte| byte == 0) => {
            return Err(PointFault::Infinity);
        }
        _ => return Err(PointFault::NotCanonical),
    }
    let Some(point) = P::decode_on_curve(bytes) else {
        let canonical = P::COORDINATE_STARTS.iter().all(|&start| bytes[start..start + 48] < MODULUS[..]);
        return Err(if canonical { PointFault::NotOnCurve } else { PointFault::NotCanonical });
    };
    if checked == Checked::Yes && !point.is_in_subgroup() {
        return Err(PointFault::NotInSubgroup);
    }
    Ok(point)
}

pub(super) fn read_count<R: Read>(reader: &mut R, section: Section) -> Result<u32, KeyReadError> {
    let mut count = [0; 4];
    read_exact(reader, section, &mut count)?;
    Ok(u32::from_be_bytes(count))
}

fn read_exact<R: Read>(reader: &mut R, section: Section, out: &mut [u8]) -> Result<(), KeyReadError> {
    reader.read_exact(out).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => KeyReadError::Truncated { section, needed: out.len() as u64, available: 0 },
        _ => KeyReadError::Io { section, source },
    })
}

/// Reads points through one buffer of [`CHUNK_BYTES`].
pub(super) struct PointReader<'a, R> {
    reader: &'a mut R,
    checked: Checked,
    buffer: Vec<u8>,
}

impl<'a, R: Read> PointReader<'a, R> {
    pub(super) fn new(reader: &'a mut R, checked: Checked) -> Self {
        Self { reader, checked, buffer: vec![0; CHUNK_BYTES] }
    }

    /// Reads one point.
    pub(super) fn point<P: KeyPoint>(&mut self, section: Section, index: usize) -> Result<P, KeyReadError> {
        let bytes = &mut self.buffer[..P::ENCODED_BYTES];
        read_exact(self.reader, section, bytes)?;
        decode(bytes, self.checked).map_err(|fault| KeyReadError::Point { section, index, fault })
    }

    /// Reads a count, which must be the expected one, and so many points.
    pub(super) fn points<P: KeyPoint>(&mut self, section: Section, expected: u32) -> Result<Vec<P>, KeyReadError> {
        let found = read_count(self.reader, section)?;
        if found != expected {
            return Err(KeyReadError::Changed { section, expected, found });
        }
        let mut points = vec![P::identity(); found as usize];
        let checked = self.checked;
        for (chunk, out) in points.chunks_mut(CHUNK_BYTES / P::ENCODED_BYTES).enumerate() {
            let bytes = &mut self.buffer[..out.len() * P::ENCODED_BYTES];
            read_exact(self.reader, section, bytes)?;
            let bytes = &*bytes;
            // A damaged point is left at infinity, which no good point is, and is found and named afterwards.
            let encoded = |index: usize| &bytes[index * P::ENCODED_BYTES..(index + 1) * P::ENCODED_BYTES];
            pool::for_each_chunk(out, POINTS_PER_TASK, |first, out| {
                for (i, out) in out.iter_mut().enumerate() {
                    *out = decode(encoded(first + i), checked).unwrap_or_else(|_| P::identity());
                }
            });
            if let Some(bad) = out.iter().position(|point| point.is_identity().into()) {
                let fault = decode::<P>(encoded(bad), checked).err().unwrap_or(PointFault::Infinity);
                let index = chunk * (CHUNK_BYTES / P::ENCODED_BYTES) + bad;
                return Err(KeyReadError::Point { section, index, fault });
            }
        }
        Ok(points)
    }
}

/// Writes a count and the points.
pub(super) fn write_points<W: Write, P: KeyPoint>(
    writer: &mut W,
    section: Section,
    points: &[P],
) -> Result<(), KeyWriteError> {
    let count =
        u32::try_from(points.len()).map_err(|_| KeyWriteError::TooManyPoints { section, points: points.len() })?;
    writer.write_all(&count.to_be_bytes())?;
    let mut buffer = Vec::with_capacity(CHUNK_BYTES.min(points.len() * P::ENCODED_BYTES));
    for chunk in points.chunks(CHUNK_BYTES / P::ENCODED_BYTES) {
        buffer.clear();
        for point in chunk {
            point.encode(&mut buffer);
        }
        writer.write_all(&buffer)?;
    }
    Ok(())
}
