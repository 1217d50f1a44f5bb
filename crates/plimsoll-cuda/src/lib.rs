//! Groth16 over BLS12-381 on CUDA devices, with every byte of device memory planned before it is used.
//!
//! The kernels are behind the feature `cuda`, which needs a CUDA toolkit. What decides about memory is not: the [`plan`]s
//! (pure functions from sizes to bytes), the [`arena`] that all device memory is taken from, and what CUDA's [`error`]s mean.

pub mod arena;
#[cfg(feature = "cuda")]
mod backend;
#[cfg(feature = "cuda")]
mod clock;
#[cfg(feature = "cuda")]
mod driver;
pub mod error;
#[cfg(feature = "cuda")]
mod ffi;
#[cfg(feature = "cuda")]
mod kernels;
#[cfg(feature = "cuda")]
mod msm;
pub mod plan;
#[cfg(feature = "cuda")]
mod prove;
#[cfg(feature = "cuda")]
mod raw;
#[cfg(feature = "cuda")]
mod staging;

#[cfg(feature = "cuda")]
pub use backend::Cuda;
#[cfg(feature = "cuda")]
pub use driver::{CudaDriver, CudaLane, Part, Piece, device_count, has_kernels_for, properties};
#[cfg(feature = "cuda")]
pub use kernels::Scalars;
#[cfg(feature = "cuda")]
pub use msm::{DevicePoint, MsmMemory, Passing, PendingMsm, PointSource};
#[cfg(feature = "cuda")]
pub use raw::Properties;
#[cfg(feature = "cuda")]
pub use staging::{Staging, StagingArea, StagingError};

/// A scalar as it lies in memory, in Montgomery form: what the device works with.
#[cfg(feature = "cuda")]
pub fn scalar_bytes(scalar: &blstrs::Scalar) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(raw::bytes_of(std::slice::from_ref(scalar)));
    bytes
}
