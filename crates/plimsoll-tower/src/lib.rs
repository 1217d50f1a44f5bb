//! Back-pressure for tower services: a service is ready when the bytes that a request may need are there.
//!
//! ```
//! use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Space};
//! use plimsoll_tower::LedgerLayer;
//!
//! const IMAGE: Class = Class::new("image", Space::HOST);
//! let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::GIB));
//! let most = Demand::new().bytes(IMAGE, Bytes(64 << 20));
//! let layer = LedgerLayer::new(&ledger, "resize", most, |request: &Vec<u8>| {
//!     Demand::new().bytes(IMAGE, Bytes(4 * request.len() as u64))
//! });
//! # let _ = layer;
//! ```
//!
//! # What happens when
//!
//! 1. `poll_ready` waits for the inner service first, then for the declared maximum, all classes and slots at once. It
//!    is a job of the ledger, in flight from here on. A maximum that can never be served is an error at once.
//! 2. `call` asks how much the request needs and returns the other bytes. Slots stay as declared.
//! 3. The response's future holds what is left until it is done or dropped, or passes it on with the response
//!    ([`LedgerLayer::finish`]).
//!
//! A service that is ready and never called would hold its maximum for ever; see [`LedgerLayer::idle`].

mod admission;
mod layer;
mod service;
mod timer;

pub use admission::{Admission, AdmitError};
pub use layer::{Finish, LedgerLayer, UntilDone};
pub use service::{Admitted, ResponseFuture};
pub use timer::Timer;
#[cfg(feature = "tokio")]
pub use timer::TokioTimer;

/// What tower's services answer when they fail.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
