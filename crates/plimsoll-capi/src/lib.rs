//! The C interface of [`plimsoll`]'s ledger.
//!
//! C and C++ code reserves bytes before it allocates, carries the reservation as a 64-bit handle beside its buffer, and
//! returns it on whatever thread frees the buffer. A handle that is released twice, or never, is found and named.
//!
//! `include/plimsoll.h` is generated from this crate. Ledgers, classes and handles are numbers that are looked up in
//! tables, not pointers, so that a stale or foreign one is an error and not undefined behaviour; `unsafe` is what remains
//! for reading texts and writing results (`memory`). No panic crosses into C: it becomes [`Status::Panicked`].
//!
//! A program that is written in Rust and has parts in C shares its ledger with them by [`share`] and hands over
//! [`RawHandle`](plimsoll::ledger::RawHandle)s as numbers.

mod failure;
mod memory;
mod query;
mod reserve;
mod tables;

pub use failure::{Status, plimsoll_last_error};
pub use query::{
    Usage, plimsoll_class_usage, plimsoll_describe_handle, plimsoll_outstanding_handles, plimsoll_space_usage,
};
pub use reserve::{
    HandleNumber, PLIMSOLL_FOREVER, plimsoll_handle_bytes, plimsoll_merge, plimsoll_release, plimsoll_reserve,
    plimsoll_shrink_to, plimsoll_split,
};
pub use tables::{
    ClassNumber, LedgerNumber, Limit, PLIMSOLL_SPACE_DEVICES, PLIMSOLL_SPACE_HOST, PLIMSOLL_SPACE_PINNED, SpaceNumber,
    plimsoll_class_new, plimsoll_ledger_close, plimsoll_ledger_free, plimsoll_ledger_new, share,
};
