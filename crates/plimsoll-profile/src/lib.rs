//! Where did the memory go? Reads the traces of plimsoll's ledger, real and simulated alike, sets them against what the
//! process really holds, and shows both.
//!
//! - [`trace`]: the events of a trace, line by line.
//! - [`timeline`]: a trace over time, with sums that are checked.
//! - [`diagnose`]: what is the matter, from events and samples.
//! - [`live`]: a running process, seen and steered over a Unix socket.
//! - [`perfetto`]: a trace for Perfetto and Chrome.
//! - `report` (feature of that name): a page to look at, and its pictures.
//! - [`reconcile`]: ledger against kernel, a table that adds up; the share for slack, kept as measured.
//! - [`recorder`]: the last minutes, readable after a crash.
//! - `top` (feature of that name): a running process, in the terminal.
//! - [`sample`]: what the kernel, the allocator and the drivers say that the process holds.

pub mod diagnose;
#[cfg(unix)]
pub mod live;
pub mod perfetto;
pub mod reconcile;
pub mod recorder;
#[cfg(feature = "report")]
pub mod report;
pub mod sample;
pub mod timeline;
#[cfg(all(unix, feature = "top"))]
pub mod top;
pub mod trace;

pub use self::timeline::Timeline;
