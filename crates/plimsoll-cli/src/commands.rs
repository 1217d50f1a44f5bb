//! The commands: what they do in order, and what they print.

pub mod completions;
pub mod ctl;
pub mod doctor;
pub mod inspect;
pub mod plan;
pub mod prove;
mod prove_circom;
mod proved;
pub mod report;
pub mod setup;
pub mod simulate;
pub mod top;
pub mod verify;
mod verify_snarkjs;
