//! The simulator as its users see it: files in, outcomes out.

mod curve;
mod determinism;
mod faults;
mod mutated;
mod observed;
mod peers;
mod plan;
mod replay;
mod resources;
mod search;
mod support;
