//! What can go wrong with a device, one type per operation.

use thiserror::Error;

use super::driver::DriverError;
use crate::ledger::TakeError;
use crate::pipeline::Failure;
use crate::{Bytes, Class};

/// Something that a stage asked of its device was not done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device said no.
    #[error("device {device}: {source}")]
    Driver {
        /// The device.
        device: u16,
        /// What it said.
        source: DriverError,
    },
    /// The device was given up, because of what it said then.
    #[error("device {} was given up: {}; its jobs go to another device, or fail", .0.device, .0.cause)]
    Lost(Loss),
    /// The stage's grant has not so many bytes left.
    #[error(transparent)]
    Take(Box<TakeError>),
    /// The class is not one of this device's memory.
    #[error("{class} lives in {}, but the stage runs on device {device}; use a class of that device", class.space())]
    OtherSpace {
        /// The class.
        class: Class,
        /// The device that the stage runs on.
        device: u16,
    },
    /// What an earlier stage kept lies on another device.
    #[error("{class} lies on device {lies_on}, but the stage runs on device {device}; stage it in there")]
    Elsewhere {
        /// The class.
        class: Class,
        /// The device that it lies on.
        lies_on: u16,
        /// The device that the stage runs on.
        device: u16,
    },
    /// What an earlier stage kept is used by a stage that has not ended.
    #[error("{class} on device {device} is used by another stage; let it end, or have the memory lent")]
    InUse {
        /// The class.
        class: Class,
        /// The device.
        device: u16,
    },
    /// The job's grant does not name what the stage needs by its nature: its lane, or the lease.
    #[error(
        "job {job:?} was granted no {what} of device {device} for stage {stage}; declare it in that stage's peak, \
         with Demand::on_{what}"
    )]
    NotGranted {
        /// The job.
        job: String,
        /// The stage.
        stage: &'static str,
        /// `lane` or `lease`.
        what: &'static str,
        /// The device.
        device: u16,
    },
    /// The device takes no more work.
    #[error("device {device} has been shut down")]
    ShutDown {
        /// The device.
        device: u16,
    },
}

impl DeviceError {
    /// Whether the device had less memory than the ledger was told: the stage may be tried again, or with a smaller plan.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, DeviceError::Driver { source: DriverError::OutOfMemory { .. }, .. })
    }

    /// Whether the device was given up: the job may begin again on another one.
    pub fn is_lost(&self) -> bool {
        matches!(self, DeviceError::Lost(_))
    }

    /// What kind of failure it is, for [`Builder::failures`](crate::pipeline::Builder::failures). A lost device is a transient
    /// one: a job that begins [from its start](crate::pipeline::Builder::from_start) finds another.
    pub fn failure(&self) -> Failure {
        match self {
            DeviceError::Driver { source: DriverError::OutOfMemory { .. }, .. } => Failure::OutOfMemory,
            DeviceError::Driver { .. } | DeviceError::Lost(_) => Failure::Transient,
            _ => Failure::Fatal,
        }
    }
}

impl From<TakeError> for DeviceError {
    fn from(error: TakeError) -> Self {
        DeviceError::Take(Box::new(error))
    }
}

/// Why a device was given up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("device {device} was given up: {cause}")]
pub struct Loss {
    /// The device.
    pub device: u16,
    /// What it said.
    pub cause: DriverError,
}

/// A stage on a device ended without a result. Everything that it did not hand on has been returned.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StageError<E> {
    /// The stage returned an error.
    #[error("the stage failed on its device")]
    Stage(#[source] E),
    /// The stage panicked. The lane stays usable.
    #[error("the stage panicked on its device: {message}; this is a bug in the stage")]
    Panicked {
        /// The panic's text.
        message: String,
    },
    /// The stage failed, and its device had been out of memory: more is used of it than the ledger was told. It can be
    /// tried again when the other user is done, or with a smaller plan.
    #[error("the stage failed because device {device} was out of memory: {wanted} were asked for, {free} were free")]
    OutOfMemory {
        /// The device.
        device: u16,
        /// What was asked for.
        wanted: Bytes,
        /// What was free, as far as the device could tell.
        free: Bytes,
        /// What the stage made of it.
        source: E,
    },
    /// The stage did not run, or its device was given up while it did.
    #[error(transparent)]
    Device(DeviceError),
}

/// A device was not started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// There must be a thread that feeds it.
    #[error("device {device} needs at least one lane; two let one stage in while the other computes")]
    NoLanes {
        /// The device.
        device: u16,
    },
    /// The operating system refused a thread.
    #[error("lane {lane} of device {device} was refused a thread; ask for fewer or raise the process's limit")]
    Thread {
        /// The device.
        device: u16,
        /// The lane.
        lane: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The driver could not be opened.
    #[error("lane {lane} of device {device} could not open it")]
    Open {
        /// The device.
        device: u16,
        /// The lane.
        lane: usize,
        /// What the driver said.
        source: DriverError,
    },
}
