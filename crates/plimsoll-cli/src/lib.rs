//! The `plimsoll` command, as a library so that its parts can be tested.

pub mod chain;
pub mod circuit;
