#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod engine;
mod names;
pub mod policies;
pub mod random;
mod units;
pub mod workload;

pub use engine::{End, Options, Outcome, Sink, simulate};
pub use units::Nanos;
pub use workload::{Workload, WorkloadError};
