//! Groth16 over BLS12-381, in stages that a memory-accounted scheduler can see.

pub mod domain;
