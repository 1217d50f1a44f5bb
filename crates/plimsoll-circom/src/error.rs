//! What can be wrong with a file.

use std::fmt;

use plimsoll_groth16::keys::PointFault;

use crate::container::ContainerError;

/// Why a file was not read. It does not say which file: the caller knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Its frame is damaged.
    #[error(transparent)]
    Container(ContainerError),
    /// It is for a curve that this prover does not have.
    #[error(
        "it is for the curve {curve}; this prover has BLS12-381: compile the circuit with `circom --prime bls12381`, and make \
         its key from powers of tau of that curve (`snarkjs powersoftau new bls12-381 …`)"
    )]
    OtherCurve {
        /// The curve.
        curve: &'static str,
    },
    /// Its field is none that circom knows.
    #[error("its field has a modulus of {bits} bits that belongs to no curve known here; the file is damaged")]
    UnknownField {
        /// The size of the modulus.
        bits: u64,
    },
    /// It is for another proof system.
    #[error("it is a key for {found}, not for Groth16; make one with `snarkjs groth16 setup`")]
    OtherProtocol {
        /// The proof system.
        found: String,
    },
    /// A section ends before what it says is in it.
    #[error("the {section} end too early: {needed} bytes are needed, {available} are there; the file is damaged")]
    Short {
        /// The section.
        section: Part,
        /// The bytes that its counts ask for.
        needed: u64,
        /// The bytes that there are.
        available: u64,
    },
    /// A section has another length than the header's counts make.
    #[error("the {section} take {found} bytes where the header's counts make {expected}; the file is damaged")]
    Length {
        /// The section.
        section: Part,
        /// What follows from the header.
        expected: u64,
        /// What there is.
        found: u64,
    },
    /// A number is out of its range.
    #[error("{what} is {found}, more than {max}; the file is damaged")]
    Range {
        /// What it counts or names.
        what: &'static str,
        /// The number.
        found: u64,
        /// The most that it may be.
        max: u64,
    },
    /// The domain's size is no power of two, or too small for what the circuit needs.
    #[error("its domain has {found} points; a power of two of at least {needed} is needed, the file is damaged")]
    Domain {
        /// The size in the header.
        found: u64,
        /// The points that the circuit needs.
        needed: u64,
    },
    /// A number of the scalar field is not below the modulus.
    #[error("value {index} of the {section} is not below the field's modulus; the file is damaged")]
    Value {
        /// The section.
        section: Part,
        /// Which, from 0.
        index: u64,
    },
    /// A point is not one that the section may hold.
    #[error("the {section}, point {index}: {fault}; the file is damaged or was made to deceive")]
    Point {
        /// The section.
        section: Part,
        /// Which, from 0.
        index: usize,
        /// What is wrong with it.
        fault: PointFault,
    },
    /// A signal that occurs in no constraint of a matrix has a point in its query.
    #[error(
        "the {section}, point {index}: its signal occurs in no coefficient, but it is not infinity; the file is damaged"
    )]
    Unused {
        /// The section.
        section: Part,
        /// The signal.
        index: usize,
    },
    /// The system does not give the bytes: the disk fails, or the file was cut short meanwhile.
    #[error("it cannot be read: {kind}")]
    Unreadable {
        /// What the system says.
        kind: std::io::ErrorKind,
    },
    /// Bytes are not those that were read, and checked, before.
    #[error("the file was changed while it was in use; begin again with one that nobody writes to")]
    Changed,
    /// The caller said so.
    #[error("stopped")]
    Stopped,
    /// The caller has no room for what it takes.
    #[error("it takes {bytes} bytes more than there is room for")]
    NoRoom {
        /// What is missing.
        bytes: u64,
    },
    /// A witness does not begin with the constant one.
    #[error("its first value is not one, so it is not a witness")]
    NoOne,
}

impl From<ContainerError> for ReadError {
    fn from(error: ContainerError) -> Self {
        match error {
            ContainerError::Unreadable { kind } => Self::Unreadable { kind },
            error => Self::Container(error),
        }
    }
}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        Self::Unreadable { kind: error.kind() }
    }
}

/// A part of a file, as messages name it. All are plural.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The header's fields.
    Header,
    /// The constraints of an r1cs file.
    Constraints,
    /// The labels of an r1cs file's wires.
    Labels,
    /// The values of a witness.
    Values,
    /// α, β, γ, δ of a key, in the order of the file.
    Constants,
    /// The points of the public inputs.
    Ic,
    /// The coefficients of A and B.
    Coefficients,
    /// The A query.
    A,
    /// The B query in G1.
    BG1,
    /// The B query in G2.
    BG2,
    /// The private signals' points.
    L,
    /// The quotient's points.
    H,
    /// The contributions to a ceremony.
    Contributions,
    /// The powers of τ in G1.
    TauG1,
    /// The powers of τ in G2.
    TauG2,
    /// α times the powers of τ.
    AlphaTauG1,
    /// β times the powers of τ.
    BetaTauG1,
    /// β in G2.
    BetaG2,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "header's fields",
            Self::Constraints => "constraints",
            Self::Labels => "labels",
            Self::Values => "values",
            Self::Constants => "constants",
            Self::Ic => "input points (IC)",
            Self::Coefficients => "coefficients",
            Self::A => "A points",
            Self::BG1 => "B points in G1",
            Self::BG2 => "B points in G2",
            Self::L => "C points",
            Self::H => "H points",
            Self::Contributions => "contributions",
            Self::TauG1 => "powers of tau in G1",
            Self::TauG2 => "powers of tau in G2",
            Self::AlphaTauG1 => "powers of tau times alpha",
            Self::BetaTauG1 => "powers of tau times beta",
            Self::BetaG2 => "points of beta in G2",
        })
    }
}
