//! What can be wrong with snarkjs's JSON files.

use plimsoll_groth16::keys::PointFault;

/// Why a JSON file was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// It is not JSON, or has other fields.
    #[error("it does not have the form of snarkjs's file (line {line}, column {column}); write it again with snarkjs")]
    Form {
        /// Where, from 1.
        line: usize,
        /// Where, from 1.
        column: usize,
    },
    /// Another proof system.
    #[error("it is of the proof system \"{found}\", not groth16")]
    Protocol {
        /// Its name.
        found: String,
    },
    /// Another curve.
    #[error("it is for the curve {found}; this verifier has BLS12-381 (bls12381)")]
    Curve {
        /// Its name.
        found: String,
    },
    /// A public input is no number below the modulus.
    #[error("public input {index} is not a decimal number below the field's modulus")]
    Number {
        /// Which, from 0.
        index: usize,
    },
    /// A point is none of its group.
    #[error("{element}{}: {fault}", index.map_or(String::new(), |index| format!("[{index}]")))]
    Point {
        /// The field.
        element: &'static str,
        /// Which, in a field of several.
        index: Option<usize>,
        /// What is wrong with it.
        fault: PointFault,
    },
    /// The key's counts do not agree.
    #[error("nPublic is {public}, but IC has {points} points instead of one more")]
    InputCount {
        /// The count.
        public: u64,
        /// The points.
        points: usize,
    },
}
