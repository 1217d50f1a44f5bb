//! CUDA's errors, and what they mean for whoever goes on.
//!
//! CUDA has three kinds that matter here: what one call could not do, what breaks the context so that every later call says
//! the same (it *sticks*), and what says that there is no device to work with. The C side clears the error that CUDA would
//! otherwise report to the next call, so an error of the first kind is reported once.

use plimsoll::Bytes;
use plimsoll::device::DriverError;

/// What a call of CUDA said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {name} ({code}): {text}")]
pub struct CudaError {
    /// CUDA's number.
    pub code: i32,
    /// CUDA's name for it.
    pub name: String,
    /// CUDA's explanation.
    pub text: String,
    /// What was to be done.
    pub operation: &'static str,
}

/// What an error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Too little memory. The device is well.
    OutOfMemory,
    /// This one call failed. The device is well.
    Failed,
    /// The context is broken, and the process needs a new one.
    Broken,
    /// The device itself is gone or not to be trusted.
    Lost,
    /// There is no device, or no driver for it.
    NoDevice,
    /// The driver is older than the runtime that this was built with.
    OldDriver,
    /// The device's architecture is none that the kernels were built for.
    WrongArchitecture,
}

impl Meaning {
    /// Of a number of CUDA's.
    pub fn of(code: i32) -> Meaning {
        match code {
            2 => Meaning::OutOfMemory,
            // No device; a stub in the place of the driver; no driver, or one that did not start.
            100 | 34 | 3 | 803 => Meaning::NoDevice,
            35 => Meaning::OldDriver,
            98 | 209 | 200 | 222 => Meaning::WrongArchitecture,
            // Uncorrectable memory error, its contained kind, a device in use elsewhere or not ready, a link that failed.
            214 | 226 | 46 | 802 | 220 | 205 => Meaning::Lost,
            // What leaves the process's context in a state in which every call fails.
            700..=720 if !matches!(code, 701 | 704 | 705 | 708 | 711 | 712 | 713 | 720) => Meaning::Broken,
            721 | 999 | 4 => Meaning::Broken,
            _ => Meaning::Failed,
        }
    }
}

impl CudaError {
    /// What it means.
    pub fn meaning(&self) -> Meaning {
        Meaning::of(self.code)
    }

    /// As the scheduler wants it. `wanted` and `free` are for the case that memory was short.
    pub fn for_driver(&self, wanted: u64, free: u64) -> DriverError {
        let message = self.to_string();
        match self.meaning() {
            Meaning::OutOfMemory => DriverError::OutOfMemory { wanted: Bytes(wanted), free: Bytes(free) },
            Meaning::Broken => DriverError::Broken { message },
            Meaning::Lost | Meaning::NoDevice => DriverError::Lost { message },
            Meaning::Failed | Meaning::OldDriver | Meaning::WrongArchitecture => DriverError::Failed { message },
        }
    }
}

/// Why a device was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Built without kernels.
    #[error("this program was built without CUDA kernels; build it with the feature `cuda`")]
    NotBuilt,
    /// No driver, or no device.
    #[error(
        "there is no CUDA device here ({detail}); is NVIDIA's driver installed, and may this process use the device?"
    )]
    NoDevice {
        /// What CUDA said.
        detail: String,
    },
    /// There are fewer devices.
    #[error("there is no CUDA device {device}; there are {count}, numbered from 0")]
    NoSuchDevice {
        /// What was asked for.
        device: u16,
        /// How many there are.
        count: u16,
    },
    /// The driver is too old.
    #[error(
        "NVIDIA's driver is too old: it serves CUDA {driver}, this program was built with {runtime}; update the driver"
    )]
    OldDriver {
        /// What the driver serves.
        driver: String,
        /// What this was built with.
        runtime: String,
    },
    /// No machine code for it.
    #[error(
        "{name} is of compute capability {major}.{minor}, for which this program has no kernels; build it with PLIMSOLL_CUDA_ARCH={major}{minor}"
    )]
    WrongArchitecture {
        /// The device.
        name: String,
        /// Its compute capability.
        major: i32,
        /// Its compute capability.
        minor: i32,
    },
    /// The memory to work in was not to be had.
    #[error(
        "the device has {free} free, fewer than the {wanted} that were to be taken; lower the device budget or end what else uses it"
    )]
    OutOfMemory {
        /// What was asked for.
        wanted: Bytes,
        /// What is free.
        free: Bytes,
    },
    /// Something else.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// A version as CUDA numbers it, 13010 for 13.1.
pub fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_mean_what_cuda_documents() {
        for (code, meaning) in [
            (2, Meaning::OutOfMemory),
            (1, Meaning::Failed),
            (9, Meaning::Failed),
            (100, Meaning::NoDevice),
            (35, Meaning::OldDriver),
            (209, Meaning::WrongArchitecture),
            (214, Meaning::Lost),
            (700, Meaning::Broken),
            (719, Meaning::Broken),
            (701, Meaning::Failed),
            (720, Meaning::Failed),
        ] {
            assert_eq!(Meaning::of(code), meaning, "{code}");
        }
    }

    #[test]
    fn only_what_sticks_gives_a_device_up() {
        let error = |code| CudaError { code, name: "n".into(), text: "t".into(), operation: "o" }.for_driver(7, 5);
        assert_eq!(error(2), DriverError::OutOfMemory { wanted: Bytes(7), free: Bytes(5) });
        assert!(!error(2).is_fatal() && !error(1).is_fatal());
        assert!(error(700).is_fatal() && error(214).is_fatal() && error(100).is_fatal());
    }
}
