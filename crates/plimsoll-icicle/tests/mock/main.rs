//! The backend on a mocked ICICLE: loading, threads, accounting, errors. The mock (`icicle-mock/`) behaves as ICICLE does where that
//! is a trap, and counts whoever steps into one.

mod conformance;
mod devices;
mod faults;
mod memory;
mod opening;
mod ownership;
mod proofs;
mod support;
mod sweep;
mod threads;
