//! Groth16 over BLS12-381, in stages that a memory-accounted scheduler can see.

pub mod backend;
mod circuit;
pub mod domain;
pub mod r1cs;

pub use circuit::Counts;

#[cfg(test)]
#[path = "../tests/support/circuits.rs"]
mod test_circuits;
