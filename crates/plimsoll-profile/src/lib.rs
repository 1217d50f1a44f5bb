//! Where did the memory go? Reads the traces of plimsoll's ledger, real and simulated alike, sets them against what the
//! process really holds, and shows both.
//!
//! - [`trace`]: the events of a trace, line by line.

pub mod trace;
