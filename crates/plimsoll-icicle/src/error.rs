//! What can go wrong: opening ICICLE, and calling it.

use std::path::PathBuf;

use plimsoll::Bytes;
use plimsoll_groth16::backend::BackendError;

use crate::abi::{Code, code, code_name};
use crate::name::DeviceName;
use crate::shield::Exception;

/// A place where ICICLE was looked for, and why it was not taken from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The folder, or `None` for wherever the system's loader looks.
    pub folder: Option<PathBuf>,
    /// What said to look there.
    pub because: &'static str,
    /// What was found instead.
    pub found: String,
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.folder {
            Some(folder) => write!(f, "{} ({}): {}", folder.display(), self.because, self.found),
            None => write!(f, "{}: {}", self.because, self.found),
        }
    }
}

/// Why a device of ICICLE's was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No library, anywhere.
    #[error(
        "ICICLE is not installed: looked in {}; install its libraries, or name their folder in PLIMSOLL_ICICLE_LIB",
        list(.tried)
    )]
    NotInstalled {
        /// Where it was looked for, in this order.
        tried: Vec<Tried>,
    },
    /// There is a library, which cannot be opened.
    #[error("{library} is there, but cannot be opened: {message}")]
    Unusable {
        /// The library.
        library: String,
        /// What the loader said.
        message: String,
    },
    /// It is no ICICLE that this crate knows.
    #[error(
        "this is no ICICLE of v3.1 to v4.0 ({found}), and calling another one could do anything; install one of these"
    )]
    UnknownVersion {
        /// What gave it away.
        found: String,
    },
    /// The name of a device is not one.
    #[error("`{name}` names no device of ICICLE's; write its kind, as in CUDA, or its kind and number, as in CUDA:1")]
    BadName {
        /// What was asked for.
        name: String,
    },
    /// The libraries have no such device.
    #[error("ICICLE has no device {wanted} here ({message}); it has {registered}")]
    NoSuchDevice {
        /// What was asked for.
        wanted: String,
        /// What it has.
        registered: String,
        /// What it said.
        message: String,
    },
    /// The backend has a licence that does not hold here.
    #[error("ICICLE's backend for {device} wants a licence, and found none that holds; see its guide")]
    Licence {
        /// The device.
        device: String,
    },
    /// This process has it open already.
    #[error("{device} is open already in this process; share that one, its memory is one budget")]
    AlreadyOpen {
        /// The device.
        device: String,
    },
    /// It was given up in this process, and cannot be had again: nobody knows what it still does.
    #[error(
        "{device} was given up in this process ({message}), and nobody knows what it still does; restart the process"
    )]
    GivenUp {
        /// The device.
        device: String,
        /// Why.
        message: String,
    },
    /// A child process that opened it first was ended by a signal.
    #[error(
        "opening {device} has ended the process that tried it out (signal {signal}); this ICICLE has other layouts than v3.1 to \
         v4.0, or its backend is broken"
    )]
    Crashed {
        /// The device.
        device: String,
        /// The signal's number.
        signal: i32,
    },
    /// It computes wrong results.
    #[error("{device} is not to be trusted: {what}")]
    Untrusted {
        /// The device.
        device: String,
        /// Which known answer it did not give.
        what: String,
    },
    /// A device that does not say how much memory it has needs a budget.
    #[error("{device} does not say how much memory it has; name a budget for it (--device-memory)")]
    NoBudget {
        /// The device.
        device: String,
    },
    /// The budget's ledger has no such device, or no room.
    #[error("the ledger has no room on device {number} for what ICICLE keeps there: {message}")]
    Ledger {
        /// The device's number in the ledger.
        number: u16,
        /// What the ledger said.
        message: String,
    },
    /// The operating system refused the device's thread.
    #[error("no thread for the device: {message}; raise the process's limit")]
    Thread {
        /// What it said.
        message: String,
    },
    /// A call.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl OpenError {
    /// What a call said while the device was opened.
    pub(crate) fn call(error: CallError, name: &DeviceName) -> Self {
        match error.fault {
            Fault::Licence => OpenError::Licence { device: name.to_string() },
            _ => OpenError::Call(error),
        }
    }
}

fn list(tried: &[Tried]) -> String {
    tried.iter().map(Tried::to_string).collect::<Vec<_>>().join("; ")
}

/// What a call of ICICLE said, or why it was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {fault}")]
pub struct CallError {
    /// What was to be done.
    pub operation: &'static str,
    /// What went wrong.
    pub fault: Fault,
}

/// What went wrong in a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There is no such device, or no backend for it.
    #[error("ICICLE has no such device")]
    NoSuchDevice,
    /// The backend's licence does not hold.
    #[error("the backend's licence does not hold")]
    Licence,
    /// The device has too little free memory.
    #[error("the device is out of memory (code {code}); {wanted} were wanted")]
    OutOfMemory {
        /// ICICLE's code.
        code: i32,
        /// What was wanted, as far as it is known.
        wanted: Bytes,
    },
    /// It takes no such arguments.
    #[error("ICICLE takes no such arguments")]
    InvalidArgument,
    /// This device does not do it.
    #[error("this device does not do that")]
    NotImplemented,
    /// The library does not have the function.
    #[error("this ICICLE has no function {name}")]
    NoFunction {
        /// Its name.
        name: &'static str,
    },
    /// The device's domain does not reach so far, or was let go of to make a larger one.
    #[error("the device's domain is too small for it")]
    DomainTooSmall,
    /// What came out of a call is no result of any call: no point of the curve.
    #[error("the device's sum is no point of the curve")]
    Nonsense,
    /// Any other number.
    #[error("ICICLE says {} ({code})", code_name(*.code))]
    Code {
        /// The number.
        code: i32,
    },
    /// A C++ exception.
    #[error("ICICLE threw an exception: {text}")]
    Exception {
        /// What it said.
        text: String,
    },
    /// Refused before the call, because ICICLE would not have survived it.
    #[error("{why}")]
    Refused {
        /// Why.
        why: &'static str,
    },
    /// Less is free than what the call would find enough, so it would choose its own way.
    #[error("{free} are free on the device, and {needed} are needed so that it keeps to its plan")]
    Squeezed {
        /// What is free.
        free: Bytes,
        /// What has to be.
        needed: Bytes,
    },
    /// A call on the device has failed, and it has not been looked at since.
    #[error("a call on the device has failed, and it was not asked for known answers since")]
    Doubted,
    /// What was under way has not come to its end: what it was to write may be written in part.
    #[error("ICICLE says {} ({code}) of what was under way", code_name(*.code))]
    Unfinished {
        /// The number.
        code: i32,
    },
    /// The device was given up.
    #[error("the device was given up: {message}")]
    Lost {
        /// Why.
        message: String,
    },
}

impl Fault {
    /// The number that ICICLE said, or the nearest to it.
    pub(crate) fn code(&self) -> Code {
        match self {
            Fault::OutOfMemory { code, .. } | Fault::Code { code } | Fault::Unfinished { code } => *code,
            Fault::NoSuchDevice => code::INVALID_DEVICE,
            Fault::Licence => code::LICENSE_CHECK_ERROR,
            Fault::InvalidArgument => code::INVALID_ARGUMENT,
            Fault::NotImplemented => code::API_NOT_IMPLEMENTED,
            _ => code::UNKNOWN_ERROR,
        }
    }
}

impl CallError {
    /// From a code that is no success. `wanted` is what the call would have taken of the device's memory.
    pub(crate) fn from_code(operation: &'static str, code: Code, wanted: u64) -> Self {
        let fault = match code {
            code::INVALID_DEVICE | code::BACKEND_LOAD_FAILED => Fault::NoSuchDevice,
            code::LICENSE_CHECK_ERROR => Fault::Licence,
            code::OUT_OF_MEMORY | code::ALLOCATION_FAILED => Fault::OutOfMemory { code, wanted: Bytes(wanted) },
            code::INVALID_ARGUMENT | code::INVALID_POINTER => Fault::InvalidArgument,
            code::API_NOT_IMPLEMENTED => Fault::NotImplemented,
            code => Fault::Code { code },
        };
        Self { operation, fault }
    }

    /// From an exception.
    pub(crate) fn thrown(operation: &'static str, exception: Exception) -> Self {
        Self { operation, fault: Fault::Exception { text: exception.text } }
    }

    /// Before the call.
    pub(crate) fn refused(operation: &'static str, why: &'static str) -> Self {
        Self { operation, fault: Fault::Refused { why } }
    }

    /// The same of a call that came when what it was about was done: whatever was wanting, that is not to be made again.
    pub(crate) fn after_all(self) -> Self {
        let fault = match self.fault {
            fault @ (Fault::OutOfMemory { .. } | Fault::Doubted) => Fault::Unfinished { code: fault.code() },
            fault => fault,
        };
        Self { fault, ..self }
    }

    /// Whether the device had too little memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self.fault, Fault::OutOfMemory { .. })
    }

    /// Whether the device has to be looked at before it is used again: something was left half done.
    pub(crate) fn leaves_doubt(&self) -> bool {
        match &self.fault {
            Fault::OutOfMemory { .. }
            | Fault::Exception { .. }
            | Fault::Code { .. }
            | Fault::Unfinished { .. }
            | Fault::Nonsense => true,
            Fault::NoSuchDevice
            | Fault::Licence
            | Fault::InvalidArgument
            | Fault::NotImplemented
            | Fault::NoFunction { .. }
            | Fault::Refused { .. }
            | Fault::Squeezed { .. }
            | Fault::DomainTooSmall
            | Fault::Doubted
            | Fault::Lost { .. } => false,
        }
    }

    /// In the words of backends. `free` is what the device has left.
    pub(crate) fn for_backend(self, operation: &'static str, free: u64) -> BackendError {
        match self.fault {
            Fault::OutOfMemory { wanted, .. } => BackendError::DeviceOutOfMemory { operation, wanted: wanted.0, free },
            Fault::Squeezed { free, needed } => {
                BackendError::DeviceOutOfMemory { operation, wanted: needed.0, free: free.0 }
            }
            Fault::Lost { message } => BackendError::DeviceLost { operation, message },
            _ => BackendError::Device { operation, message: self.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_meaning_and_unknown_ones_keep_their_number() {
        let fault = |code| CallError::from_code("x", code, 7).fault;
        assert_eq!(fault(1), Fault::NoSuchDevice);
        assert_eq!(fault(12), Fault::NoSuchDevice);
        assert_eq!(fault(2), Fault::OutOfMemory { code: 2, wanted: Bytes(7) });
        assert_eq!(fault(4), Fault::OutOfMemory { code: 4, wanted: Bytes(7) });
        assert_eq!(fault(13), Fault::Licence);
        assert_eq!(fault(11), Fault::InvalidArgument);
        assert_eq!(fault(10), Fault::NotImplemented);
        for code in [5, 6, 7, 14, 15, 99, -7] {
            assert_eq!(fault(code), Fault::Code { code });
        }
        assert_eq!(CallError::from_code("msm", 99, 0).to_string(), "msm: ICICLE says a code that no header names (99)");
    }

    #[test]
    fn an_out_of_memory_of_either_code_is_one_for_backends() {
        for code in [2, 4] {
            let error = CallError::from_code("msm", code, 9).for_backend("msm", 3);
            assert_eq!(error, BackendError::DeviceOutOfMemory { operation: "msm", wanted: 9, free: 3 });
        }
        let lost = CallError { operation: "msm", fault: Fault::Lost { message: "gone".to_owned() } };
        assert!(matches!(lost.for_backend("msm", 0), BackendError::DeviceLost { .. }));
    }

    #[test]
    fn a_message_says_where_it_was_looked() {
        let tried = vec![
            Tried { folder: Some("/opt/icicle/lib".into()), because: "ICICLE's guide", found: "no folder".to_owned() },
            Tried { folder: None, because: "the system's loader", found: "not found".to_owned() },
        ];
        let text = OpenError::NotInstalled { tried }.to_string();
        for part in ["/opt/icicle/lib", "the system's loader: not found", "PLIMSOLL_ICICLE_LIB"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
