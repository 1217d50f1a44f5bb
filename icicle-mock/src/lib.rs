//! A library with ICICLE's C interface, for tests: nothing of ICICLE's is in it.
//!
//! It computes with blstrs, on simulated devices: `CPU`, which does everything at once and tells nothing of its memory, and some
//! of the kind `MOCK`, with hard limits of memory and with streams. What is begun on a stream is done when the stream is
//! synchronised, and not before: whoever reads a result too early, or frees too early what a call uses, is caught each time.
//!
//! It behaves as ICICLE does where that is a trap: the active device belongs to the thread; freeing another device's memory
//! switches to that device; a second domain is ignored; a transform beyond the domain, and an unknown device, throw C++ exceptions;
//! a multiplication that is out of memory leaks, and the next one on its thread fails for no reason; points in Montgomery form
//! are taken for standard ones.
//!
//! Tests set it up and question it with [`icicle_mock_set`] and [`icicle_mock_get`]; `faults.rs` has the keys.

#![expect(missing_docs, reason = "the functions are ICICLE's, and documented there")]
#![expect(clippy::missing_safety_doc, reason = "as above")]
#![expect(missing_debug_implementations, reason = "nobody prints them")]
#![expect(clippy::disallowed_types, reason = "a library of its own, which no model looks at")]

mod compute;
mod devices;
mod extension;
mod faults;
mod ffi;
mod sizes;
mod vectors;

pub use devices::*;
pub use extension::*;
pub use faults::*;
pub use ffi::*;
pub use vectors::*;
