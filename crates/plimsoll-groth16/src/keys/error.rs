//! What can be wrong with a key or its file.

use std::fmt;
use std::io;

use super::HBasis;

/// A part of a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// α, β in G1; β, γ in G2; δ in G1 and G2: points 0 to 5.
    Constants,
    /// The points of the public inputs.
    Ic,
    /// The quotient's points.
    H,
    /// The private variables' points.
    L,
    /// The A query.
    A,
    /// The B query in G1.
    BG1,
    /// The B query in G2.
    BG2,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Constants => "constants",
            Self::Ic => "ic",
            Self::H => "h",
            Self::L => "l",
            Self::A => "a",
            Self::BG1 => "b in G1",
            Self::BG2 => "b in G2",
        })
    }
}

/// What is wrong with an encoded point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointFault {
    /// The flag bits say something else than what belongs here, or a coordinate is not below the field's modulus.
    #[error("not a canonical encoding")]
    NotCanonical,
    /// The coordinates are no point of the curve.
    #[error("not on the curve")]
    NotOnCurve,
    /// A point of the curve, but not of the group of prime order.
    #[error("not in the subgroup of prime order")]
    NotInSubgroup,
    /// The point at infinity, which has no place here.
    #[error("the point at infinity")]
    Infinity,
}

/// Why a key was not read.
#[derive(Debug, thiserror::Error)]
pub enum KeyReadError {
    /// The file ends before the section does. Nothing was allocated for the section.
    #[error("section {section} needs {needed} bytes but {available} are left; the file is truncated or damaged")]
    Truncated {
        /// The section.
        section: Section,
        /// The bytes that its count asks for.
        needed: u64,
        /// The bytes that there are.
        available: u64,
    },
    /// The file goes on after the last section.
    #[error("{extra} bytes follow the last section; the file is damaged or not a key")]
    TrailingBytes {
        /// How many.
        extra: u64,
    },
    /// A section's count is not what the header said.
    #[error("section {section} has {found} points where the header had {expected}; the file changed while it was read")]
    Changed {
        /// The section.
        section: Section,
        /// The count in the header.
        expected: u32,
        /// The count now.
        found: u32,
    },
    /// There is not even a point for the constant one.
    #[error("the key has no input points; the file is not a key")]
    NoInputs,
    /// A point is damaged, or not one that a key may hold.
    #[error("section {section}, point {index}: {fault}; the file is damaged or not a key")]
    Point {
        /// The section.
        section: Section,
        /// The point, counted from 0.
        index: usize,
        /// What is wrong with it.
        fault: PointFault,
    },
    /// The reader failed.
    #[error("section {section} could not be read")]
    Io {
        /// The section.
        section: Section,
        /// What the reader reported.
        #[source]
        source: io::Error,
    },
}

/// Why a key was not written.
#[derive(Debug, thiserror::Error)]
pub enum KeyWriteError {
    /// The writer failed.
    #[error("the key could not be written")]
    Io(#[from] io::Error),
    /// bellperson's format only knows powers of τ.
    #[error("bellperson's format has no place for h points in the basis {basis:?}")]
    Basis {
        /// The key's basis.
        basis: HBasis,
    },
    /// bellperson's format counts in 32 bits.
    #[error("section {section} has {points} points, more than the format can count")]
    TooManyPoints {
        /// The section.
        section: Section,
        /// Its points.
        points: usize,
    },
}

/// A key does not belong to a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key is for another circuit: section {section} has {found} points, the circuit needs {expected}")]
pub struct KeyMismatch {
    /// The first section that differs.
    pub section: Section,
    /// The points that the key has.
    pub found: usize,
    /// The points that the circuit needs.
    pub expected: usize,
}
