//! The `plimsoll` command, as a library so that its parts can be tested.

pub mod chain;
pub mod circuit;
pub mod exit;
pub mod key_cache;
pub mod proof_file;
