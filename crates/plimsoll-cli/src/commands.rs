//! The commands: what they do in order, and what they print.

pub mod plan;
pub mod prove;
pub mod simulate;
pub mod verify;
