#![doc = include_str!("../README.md")]
//!
//! # Where to start
//!
//! [`Ledger`] for accounting alone; [`pipeline::Pipeline`] for stages; [`pool`] for the threads underneath.
#![deny(unsafe_code)]

#[macro_use]
#[doc(hidden)]
pub mod mutant;

mod budget;
mod bytes;
mod class;
mod contain;
mod demand;
pub mod device;
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
pub use ledger::{Charged, Grant, Job, JobSpec, Ledger, Reaper, Reservation};
pub use profile::{Parts, Profile, ProfileError, StageProfile};

/// The example on the project's front page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod front_page {}
