//! Where did the memory go? Reads the traces of plimsoll's ledger, real and simulated alike, sets them against what the
//! process really holds, and shows both.
//!
//! - [`trace`]: the events of a trace, line by line.
//! - [`timeline`]: a trace over time, with sums that are checked.
//! - [`diagnose`]: what is the matter, from events and samples.
//! - `report` (feature of that name): a page to look at, and its pictures.
//! - [`reconcile`]: ledger against kernel, a table that adds up; the share for slack, kept as measured.
//! - [`recorder`]: the last minutes, readable after a crash.
//! - [`sample`]: what the kernel, the allocator and the drivers say that the process holds.

pub mod diagnose;
pub mod reconcile;
pub mod recorder;
#[cfg(feature = "report")]
pub mod report;
pub mod sample;
pub mod timeline;
pub mod trace;

pub use self::timeline::Timeline;
