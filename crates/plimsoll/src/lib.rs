//! A memory-accounted scheduler for engines with huge buffers.
#![deny(unsafe_code)]

mod budget;
mod bytes;
mod class;
mod demand;
pub mod ledger;
pub mod observe;
pub mod pipeline;
pub mod pool;
mod profile;
mod sync;

pub use budget::Budget;
pub use bytes::{Bytes, ParseBytesError};
pub use class::{Class, Resource, Slots, Space};
pub use demand::Demand;
pub use ledger::{Charged, Grant, Job, JobSpec, Ledger, Reservation};
pub use profile::{Profile, ProfileError, StageProfile};
