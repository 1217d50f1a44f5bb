//! A simulator and planner of proving engines, in virtual time, on the shipped ledger, pacer and queue order.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod engine;
pub mod from_trace;
mod names;
pub mod plan;
pub mod policies;
pub mod random;
pub mod search;
pub mod sweep;
mod trace_file;
mod units;
pub mod workload;

pub use engine::{End, Options, Outcome, Progress, Seen, Sink, Trouble, simulate, simulate_troubled};
pub use trace_file::record;
pub use units::Nanos;
pub use workload::{Workload, WorkloadError};
