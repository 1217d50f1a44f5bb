//! The commands: what they do in order, and what they print.

pub mod prove;
pub mod verify;
