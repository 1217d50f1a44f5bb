//! Groth16's transforms and multiplications through [ICICLE](https://github.com/ingonyama-zk/icicle), loaded at run time, every
//! byte of device memory under a ledger.
//!
//! ICICLE computes on whatever it has a backend for: processors, CUDA, Metal. Nothing of it is needed to build this crate: its
//! shared libraries are looked for when a device is opened ([`Library::find`] tells where), and where there are none that is an
//! error with a list of the places. `docs/decisions` of the repository says why its own crates are no dependencies.
//!
//! [`Device::open`] finds, checks and describes a device; [`Device::alone`] or [`Device::under`] makes an [`Icicle`] of it, which is
//! a [`Backend`](plimsoll_groth16::backend::Backend). Proofs that it makes are verified before they are returned, unless
//! [that is switched off](plimsoll_groth16::prover::Prover::without_verification).
//!
//! ```no_run
//! use plimsoll_icicle::{Device, Options};
//!
//! let device = Device::open(Some(&"CUDA:0".parse()?), &Options::default())?;
//! println!("{}", device.describe());
//! let backend = device.alone(None)?;
//! # Ok::<(), plimsoll_icicle::error::OpenError>(())
//! ```

#[macro_use(mutant)]
extern crate plimsoll;

mod abi;
mod account;
mod convert;
mod devices;
pub mod error;
mod icicle;
mod library;
pub mod memory;
mod name;
mod owner;
pub mod probe;
mod shield;
mod trust;

/// A device as its owner's thread calls it: for who wants to compute beside what [`Icicle`] does.
pub mod device {
    pub use crate::owner::{DeviceMemory, MsmCall, Owner, Part, Plain, Scope, Sum};
}

pub use devices::Devices;
pub use icicle::{Device, Icicle, Learned, Options, Reconciliation};
pub use library::{FOLDER_VARIABLE, Library};
pub use name::{DeviceName, Which};
pub use shield::IS_SHIELDED;
