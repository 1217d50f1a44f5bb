//! Help for loom models of your own code with `plimsoll`'s types in it.
//!
//! `plimsoll` is built on loom's locks, atomics and threads under `--cfg plimsoll_loom`, and on the standard library's
//! otherwise. Take yours from here, and one test is both: an ordinary one, which runs once, and a model, of which loom runs
//! every interleaving.
//!
//! ```
//! use plimsoll::{Budget, Bytes, Class, Ledger, Space};
//! use plimsoll_check::model;
//! const A: Class = Class::new("a", Space::HOST);
//!
//! model::check(|| {
//!     let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(1)));
//!     let other = ledger.clone();
//!     let thread = model::thread::spawn(move || drop(other.reserve(A, Bytes(1)).wait().unwrap()));
//!     drop(ledger.reserve(A, Bytes(1)).wait().unwrap());
//!     thread.join().unwrap();
//!     assert!(ledger.snapshot().is_empty());
//! });
//! ```
//!
//! ```sh
//! RUSTFLAGS="--cfg plimsoll_loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release
//! ```
//!
//! Keep a model to two or three threads, capacities of one digit, and one property. Two things that loom 0.7 does not
//! know: a wait with a time-out never times out, and a deadlock aborts the process, so that [`finds_a_fault`] cannot catch
//! it.

use std::panic::{self, AssertUnwindSafe};

#[cfg(plimsoll_loom)]
pub use loom::{sync, thread};
#[cfg(not(plimsoll_loom))]
pub use std::{sync, thread};

/// Runs `model` in every interleaving of its threads under `--cfg plimsoll_loom`, once otherwise. Whatever fails in it
/// panics.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    #[cfg(plimsoll_loom)]
    loom::model(model);
    #[cfg(not(plimsoll_loom))]
    model();
}

/// Whether some interleaving of `model` panics: for showing that a model would see the fault that it is there for.
///
/// Without loom, one run says little: only look at the answer under `--cfg plimsoll_loom`.
pub fn finds_a_fault(model: impl Fn() + Send + Sync + 'static) -> bool {
    panic::catch_unwind(AssertUnwindSafe(|| check(model))).is_err()
}
