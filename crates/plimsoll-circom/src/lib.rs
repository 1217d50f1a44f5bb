//! circom's and snarkjs's files, over BLS12-381.
//!
//! | module | what |
//! |---|---|
//! | [`container`] | the frame that all binary files have |
//! | [`r1cs`], [`wtns`], [`zkey`], [`ptau`] | what is in them |
//! | [`sym`] | the names of signals |
//! | [`json`] | proofs, public inputs and verification keys |
//! | [`map`] | files in memory without being read into memory |
//!
//! Readers work on bytes, in a mapped file or anywhere, and never trust a count: what it asks for is compared with the bytes that
//! are there before anything is allocated. So a hostile file costs a small multiple of its size at most, and what is made of its
//! largest parts says how much beforehand ([`zkey::ZkeyFile::shape_bytes`], [`zkey::ZkeyFile::plan`]).

pub mod container;
mod contributions;
pub mod curve;
mod decimal;
mod error;
pub mod fields;
pub mod json;
pub mod map;
mod points;
pub mod ptau;
pub mod r1cs;
mod scalars;
pub mod sym;
pub mod wtns;
pub mod zkey;

pub use contributions::Contribution;
pub use error::{Part, ReadError};
