//! Where did the memory go? Reads the traces of plimsoll's ledger, real and simulated alike, sets them against what the
//! process really holds, and shows both.
//!
//! - [`trace`]: the events of a trace, line by line.
//! - [`timeline`]: a trace over time, with sums that are checked.
//! - [`diagnose`]: what is the matter, from events and samples.
//! - [`live`]: a running process, seen and steered over a Unix socket.
//! - [`perfetto`]: a trace for Perfetto and Chrome.
//! - [`pprof`]: who holds what, for pprof.
//! - `exporter` (feature `prometheus`): metrics on a loopback address.
//! - `heap` (feature `heap-profiles`): who allocated what is in use.
//! - `report` (feature of that name): a page to look at, and its pictures.
//! - [`reconcile`]: ledger against kernel, a table that adds up; the share for slack, kept as measured.
//! - [`watch`]: a run while it goes on: samples, the alarm on drift, the verdict so far.
//! - [`recorder`]: the last minutes, readable after a crash.
//! - `top` (feature of that name): a running process, in the terminal.
//! - [`sample`]: what the kernel, the allocator and the drivers say that the process holds.

#[cfg(unix)]
mod accept;
pub mod diagnose;
#[cfg(feature = "prometheus")]
pub mod exporter;
#[cfg(feature = "heap-profiles")]
pub mod heap;
#[cfg(test)]
mod hostile;
#[cfg(unix)]
pub mod live;
pub mod perfetto;
mod plain;
pub mod pprof;
mod proto;
pub mod reconcile;
pub mod recorder;
#[cfg(feature = "report")]
pub mod report;
pub mod sample;
pub mod timeline;
#[cfg(all(unix, feature = "top"))]
pub mod top;
pub mod trace;
pub mod watch;

pub use self::timeline::Timeline;
