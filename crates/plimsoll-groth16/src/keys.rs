//! Proving and verifying keys, and bellperson's file format for them.
//!
//! A file is the verifying key (α, β in G1; β, γ in G2; δ in G1 and G2; a 32-bit count and the input points), then the
//! queries h, l, a, b in G1 and b in G2, each a 32-bit big-endian count and that many points. Points are uncompressed: 96
//! bytes in G1, 192 in G2. A point at infinity occurs nowhere: a query leaves such points out ([`crate::r1cs::Density`]).
//!
//! In memory a point takes as many bytes as in the file, so a file costs about its own size and is never held twice: it is
//! read in chunks. [`KeyHeader::scan`] finds all counts, checks that they add up to the file's length, and says what
//! loading will take, before anything is allocated.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};

use blstrs::{G1Affine, G2Affine};

use crate::r1cs::R1cs;

mod equations;
mod error;
mod header;
mod points;
mod stream;

pub use equations::BrokenEquation;
pub use error::{KeyMismatch, KeyReadError, KeyWriteError, PointFault, Section};
pub use header::KeyHeader;
use points::{PointReader, write_points};
pub(crate) use stream::check_shape as check_stream_shape;
pub use stream::{KeyStream, Query, StreamError};

/// Whether points are checked for the subgroup when they are read. That they are on the curve is always checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Every point is checked: for a file from anywhere.
    Yes,
    /// The caller knows the bytes, for example by their digest, from an earlier checked reading or from having made them.
    No,
}

/// The basis in which the h query's points hold the quotient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HBasis {
    /// Point i is τ^i · t(τ) / δ: the scalars are the quotient's n − 1 coefficients. bellperson's keys.
    PowersOfTau,
    /// Point i is L_{2i+1}(τ) / δ, with the Lagrange basis of the domain of twice the size: the scalars are the evaluations
    /// of a·b − c on the n odd points. snarkjs's keys.
    OddCosetLagrange,
}

/// The h query.
#[derive(Clone, PartialEq, Eq)]
pub struct HQuery {
    /// What the points stand for.
    pub basis: HBasis,
    /// n − 1 points for [`HBasis::PowersOfTau`], n for [`HBasis::OddCosetLagrange`].
    pub points: Vec<G1Affine>,
}

/// What a verifier needs, and the prover for the blinding terms.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    /// α in G1.
    pub alpha_g1: G1Affine,
    /// β in G1.
    pub beta_g1: G1Affine,
    /// β in G2.
    pub beta_g2: G2Affine,
    /// γ in G2.
    pub gamma_g2: G2Affine,
    /// δ in G1.
    pub delta_g1: G1Affine,
    /// δ in G2.
    pub delta_g2: G2Affine,
    /// For each input, the constant one first: (β·u(τ) + α·v(τ) + w(τ)) / γ.
    pub ic: Vec<G1Affine>,
}

/// What a prover needs. Long-lived and shared; charge [`ProvingKey::resident_bytes`] to the class `srs`.
#[derive(Clone, PartialEq, Eq)]
pub struct ProvingKey {
    /// The verifying key.
    pub vk: VerifyingKey,
    /// The quotient's points.
    pub h: HQuery,
    /// For each private variable: (β·u(τ) + α·v(τ) + w(τ)) / δ.
    pub l: Vec<G1Affine>,
    /// u(τ) of the variables in [`R1cs::a_density`].
    pub a: Vec<G1Affine>,
    /// v(τ) of the variables in [`R1cs::b_density`], in G1.
    pub b_g1: Vec<G1Affine>,
    /// The same in G2.
    pub b_g2: Vec<G2Affine>,
}

impl VerifyingKey {
    /// Reads a verifying key of bellperson's format, every point checked, from a file that is nothing else.
    pub fn read<R: Read + Seek>(mut reader: R) -> Result<Self, KeyReadError> {
        let len = stream_len(&mut reader)?;
        let ic = header::scan_verifying_key(&mut reader, len)?;
        let expected = header::verifying_key_bytes(ic);
        if len > expected {
            return Err(KeyReadError::TrailingBytes { extra: len - expected });
        }
        rewind(&mut reader)?;
        Self::read_from(&mut PointReader::new(&mut reader, Checked::Yes), ic)
    }

    /// Writes bellperson's format.
    pub fn write<W: Write>(&self, mut writer: W) -> Result<(), KeyWriteError> {
        let mut constants = Vec::with_capacity(header::CONSTANTS_BYTES as usize);
        constants.extend_from_slice(&self.alpha_g1.to_uncompressed());
        constants.extend_from_slice(&self.beta_g1.to_uncompressed());
        constants.extend_from_slice(&self.beta_g2.to_uncompressed());
        constants.extend_from_slice(&self.gamma_g2.to_uncompressed());
        constants.extend_from_slice(&self.delta_g1.to_uncompressed());
        constants.extend_from_slice(&self.delta_g2.to_uncompressed());
        writer.write_all(&constants)?;
        write_points(&mut writer, Section::Ic, &self.ic)
    }

    fn read_from<R: Read>(reader: &mut PointReader<'_, R>, ic: u32) -> Result<Self, KeyReadError> {
        let section = Section::Constants;
        Ok(Self {
            alpha_g1: reader.point(section, 0)?,
            beta_g1: reader.point(section, 1)?,
            beta_g2: reader.point(section, 2)?,
            gamma_g2: reader.point(section, 3)?,
            delta_g1: reader.point(section, 4)?,
            delta_g2: reader.point(section, 5)?,
            ic: reader.points(Section::Ic, ic)?,
        })
    }
}

impl ProvingKey {
    /// Reads a key whose header was scanned; `reader` stands at the start of the file. The points are parsed on all threads
    /// of the current pool.
    ///
    /// Allocates [`KeyHeader::resident_bytes`] and, while it reads, [`KeyHeader::READ_SCRATCH_BYTES`].
    ///
    /// # Errors
    /// A point that is damaged or not what a key holds, named by section and index; a count that is no longer what the
    /// header said, because the file changed in between; whatever the reader reports.
    pub fn read<R: Read>(mut reader: R, header: &KeyHeader, checked: Checked) -> Result<Self, KeyReadError> {
        let reader = &mut PointReader::new(&mut reader, checked);
        Ok(Self {
            vk: VerifyingKey::read_from(reader, header.ic)?,
            h: HQuery { basis: HBasis::PowersOfTau, points: reader.points(Section::H, header.h)? },
            l: reader.points(Section::L, header.l)?,
            a: reader.points(Section::A, header.a)?,
            b_g1: reader.points(Section::BG1, header.b_g1)?,
            b_g2: reader.points(Section::BG2, header.b_g2)?,
        })
    }

    /// Scans the header, rewinds and reads.
    pub fn scan_and_read<R: Read + Seek>(mut reader: R, checked: Checked) -> Result<Self, KeyReadError> {
        let header = KeyHeader::scan(&mut reader)?;
        rewind(&mut reader)?;
        Self::read(reader, &header, checked)
    }

    /// Writes bellperson's format.
    ///
    /// # Errors
    /// [`KeyWriteError::Basis`] for a key whose h points are not powers of τ: the format cannot say so.
    pub fn write<W: Write>(&self, mut writer: W) -> Result<(), KeyWriteError> {
        if self.h.basis != HBasis::PowersOfTau {
            return Err(KeyWriteError::Basis { basis: self.h.basis });
        }
        self.vk.write(&mut writer)?;
        write_points(&mut writer, Section::H, &self.h.points)?;
        write_points(&mut writer, Section::L, &self.l)?;
        write_points(&mut writer, Section::A, &self.a)?;
        write_points(&mut writer, Section::BG1, &self.b_g1)?;
        write_points(&mut writer, Section::BG2, &self.b_g2)
    }

    /// What the key's points occupy.
    pub fn resident_bytes(&self) -> u64 {
        let g1 = [&self.vk.ic, &self.h.points, &self.l, &self.a, &self.b_g1];
        let g1: usize = g1.iter().map(|points| points.capacity()).sum();
        (g1 * size_of::<G1Affine>() + self.b_g2.capacity() * size_of::<G2Affine>()) as u64
    }

    /// Checks that the key has as many points as the circuit's shape needs. Whether they are the right ones only a proof
    /// shows.
    pub fn check_shape(&self, r1cs: &R1cs) -> Result<(), KeyMismatch> {
        let n = r1cs.domain().size();
        let h = match self.h.basis {
            HBasis::PowersOfTau => n - 1,
            HBasis::OddCosetLagrange => n,
        };
        let checks = [
            (Section::Ic, self.vk.ic.len(), r1cs.inputs()),
            (Section::H, self.h.points.len(), h),
            (Section::L, self.l.len(), r1cs.aux()),
            (Section::A, self.a.len(), r1cs.a_density().total()),
            (Section::BG1, self.b_g1.len(), r1cs.b_density().total()),
            (Section::BG2, self.b_g2.len(), r1cs.b_density().total()),
        ];
        match checks.into_iter().find(|(_, found, expected)| found != expected) {
            Some((section, found, expected)) => Err(KeyMismatch { section, found, expected }),
            None => Ok(()),
        }
    }
}

fn stream_len<S: Seek>(stream: &mut S) -> Result<u64, KeyReadError> {
    let seek = |error| KeyReadError::Io { section: Section::Constants, source: error };
    let len = stream.seek(SeekFrom::End(0)).map_err(seek)?;
    rewind(stream)?;
    Ok(len)
}

fn rewind<S: Seek>(stream: &mut S) -> Result<(), KeyReadError> {
    stream.rewind().map_err(|source: io::Error| KeyReadError::Io { section: Section::Constants, source })
}

impl fmt::Debug for HQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} points in {:?}", self.points.len(), self.basis)
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyingKey").field("ic", &self.ic.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ProvingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProvingKey")
            .field("ic", &self.vk.ic.len())
            .field("h", &self.h)
            .field("l", &self.l.len())
            .field("a", &self.a.len())
            .field("b", &self.b_g1.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
