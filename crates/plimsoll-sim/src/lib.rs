//! Proving engines in virtual time. So far: the admission [`policies`] of other engines, for comparison.
#![forbid(unsafe_code)]

pub mod policies;
