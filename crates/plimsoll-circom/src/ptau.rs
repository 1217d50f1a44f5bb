//! `.ptau`: powers of tau, from which snarkjs makes keys. Its header and the lengths of its sections are looked at; nothing is made
//! from it.
//!
//! With the feature `insecure-setup` some can be made for development (`insecure`).

use blstrs::{G1Affine, G2Affine};

use crate::container::{Container, Kind};
use crate::contributions::{self, Contribution};
use crate::curve::{self, BASE_BYTES};
use crate::error::{Part, ReadError};
use crate::fields::Fields;
use crate::points::{FilePoint, point};

#[cfg(any(test, feature = "insecure-setup"))]
pub mod insecure;

/// The header and what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtauHeader {
    /// The binary logarithm of the constraints that it is good for.
    pub power: u32,
    /// The power of the whole ceremony, from which this file may have been cut.
    pub ceremony_power: u32,
    /// The contributions to the ceremony.
    pub contributions: u32,
    /// Whether the second phase was prepared: the Lagrange bases are there, from which keys are made.
    pub prepared: bool,
}

/// A `.ptau` file whose frame and header are sound.
#[derive(Clone, Debug)]
pub struct PtauFile<'a> {
    container: Container<'a>,
    header: PtauHeader,
}

/// The most that snarkjs makes.
const POWER_MAX: u32 = 28;

impl<'a> PtauFile<'a> {
    /// Reads the header, and compares the sections' lengths with it.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let container = Container::parse(bytes, Kind::Ptau)?;
        let hint = "download or make it again";
        let header = &bytes[container.require(1, "header", hint)?];
        let short = || ReadError::Short { section: Part::Header, needed: 60, available: header.len() as u64 };
        let mut fields = Fields::new(header);
        let prime = fields.u32().and_then(|len| fields.take(len as usize)).ok_or_else(short)?;
        curve::require_base(prime)?;
        let (Some(power), Some(ceremony_power)) = (fields.u32(), fields.u32()) else { return Err(short()) };
        let expected = 4 + prime.len() + 8;
        if prime.len() != BASE_BYTES || header.len() != expected {
            let (expected, found) = (expected as u64, header.len() as u64);
            return Err(ReadError::Length { section: Part::Header, expected, found });
        }
        if power > POWER_MAX || ceremony_power > POWER_MAX {
            let found = u64::from(power.max(ceremony_power));
            return Err(ReadError::Range { what: "the power", found, max: POWER_MAX.into() });
        }
        let (n, g1, g2) = (1_u64 << power, 2 * BASE_BYTES as u64, 4 * BASE_BYTES as u64);
        let expected = [
            (2, Part::TauG1, (2 * n - 1) * g1),
            (3, Part::TauG2, n * g2),
            (4, Part::AlphaTauG1, n * g1),
            (5, Part::BetaTauG1, n * g1),
            (6, Part::BetaG2, g2),
        ];
        for (id, section, expected) in expected {
            let found = container.require(id, "powers", hint)?.len() as u64;
            if found != expected {
                return Err(ReadError::Length { section, expected, found });
            }
        }
        let contributions = container.require(7, "contributions", hint)?;
        let contributions = Fields::new(&bytes[contributions]).u32().unwrap_or(0);
        let prepared = [12, 13, 14, 15].iter().all(|id| matches!(container.find(*id, "Lagrange basis"), Ok(Some(_))));
        let header = PtauHeader { power, ceremony_power, contributions, prepared };
        Ok(Self { container, header })
    }

    /// The powers of τ from 0 on in both groups, at most so many: points that are on the curve; whether they are in their groups, and
    /// belong together, `snarkjs powersoftau verify` looks.
    ///
    /// # Errors
    /// One is none of the curve.
    pub fn powers(&self, most: usize) -> Result<(Vec<G1Affine>, Vec<G2Affine>), ReadError> {
        Ok((self.first(2, Part::TauG1, most)?, self.first(3, Part::TauG2, most)?))
    }

    /// α and β times the powers of τ from 0 on, at most so many.
    ///
    /// # Errors
    /// One is none of the curve.
    pub fn scaled_powers(&self, most: usize) -> Result<[Vec<G1Affine>; 2], ReadError> {
        Ok([self.first(4, Part::AlphaTauG1, most)?, self.first(5, Part::BetaTauG1, most)?])
    }

    /// The contributions, one by one.
    ///
    /// # Errors
    /// The section is damaged.
    pub fn contributors(&self) -> Result<Vec<Contribution>, ReadError> {
        let section = self.container.require(7, "contributions", "download or make it again")?;
        contributions::read_of_powers(&self.container.bytes()[section])
    }

    fn first<P: FilePoint>(&self, id: u32, section: Part, most: usize) -> Result<Vec<P>, ReadError> {
        let range = self.container.require(id, "powers", "download or make it again")?;
        let points = self.container.bytes()[range].chunks_exact(P::BYTES).take(most).enumerate();
        points.map(|(index, bytes)| point(bytes).map_err(|fault| ReadError::Point { section, index, fault })).collect()
    }

    /// The header.
    pub fn header(&self) -> &PtauHeader {
        &self.header
    }

    /// The frame.
    pub fn container(&self) -> &Container<'a> {
        &self.container
    }
}
