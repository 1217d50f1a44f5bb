//! A memory-accounted scheduler for engines with huge buffers.
#![deny(unsafe_code)]

pub mod pool;
mod sync;
