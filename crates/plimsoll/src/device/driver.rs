//! What a kind of device has to offer: the interface that a backend implements and the simulated device as well.

use thiserror::Error;

use crate::{Bytes, Class};

/// One device, as its lanes open it: a CUDA context, an ICICLE device, a [simulated card](super::simulate).
///
/// It is shared by the threads of all its lanes; what belongs to one thread is in [`Driver::Lane`].
pub trait Driver: Send + Sync + 'static {
    /// What one lane works with: streams, pinned staging buffers, the fact that the thread's current device is this one.
    /// It is made on the lane's own thread and never leaves it, so it need not be `Send`.
    type Lane: DriverLane<Memory = Self::Memory>;

    /// A piece of the device's memory. Dropping it frees it.
    ///
    /// It is its only owner (not `Clone`), and other threads may be the ones to drop it: those that cancel a job whose
    /// inputs wait on the device. A driver whose own free is bound to a thread, or stops the whole device as CUDA's does,
    /// allocates once and gives out pieces of that. After the device was lost, dropping it does nothing, quietly.
    ///
    /// Nobody but its driver gets more than a `&Memory`: through a `&mut` it could be swapped for another piece, and
    /// outlive the lease that way. What a kernel changes, it changes behind the shared reference.
    type Memory: Send + Sync + 'static;

    /// Opens the device for a lane, on the lane's thread.
    ///
    /// # Errors
    ///
    /// As the device says. A device of which one lane cannot be opened is not started.
    fn open(&self, lane: usize) -> Result<Self::Lane, DriverError>;
}

/// What one lane can do with its device. All calls come from the thread that opened it.
///
/// Copies and kernels may go on after the call has returned, in the order in which they were begun;
/// [`synchronise`](DriverLane::synchronise) waits for them. The scheduler frees no memory that a stage has used before it
/// has synchronised.
pub trait DriverLane: 'static {
    /// [`Driver::Memory`].
    type Memory;

    /// Allocates memory that is paid for.
    ///
    /// # Errors
    ///
    /// [`DriverError::OutOfMemory`] where the device has less than was promised (somebody else uses it). The device must
    /// be as usable afterwards as before: a driver clears an error that would stick to the next call.
    fn allocate(&mut self, paid: Paid) -> Result<Self::Memory, DriverError>;

    /// Copies to the device, to offset `at`. When it returns, `from` may be reused.
    ///
    /// # Errors
    ///
    /// As the device says; what does not fit into `to` is [`DriverError::Failed`].
    fn copy_in(&mut self, from: &[u8], to: &Self::Memory, at: u64) -> Result<(), DriverError>;

    /// Copies from the device, from offset `at`. When it returns, `to` is complete.
    ///
    /// # Errors
    ///
    /// As the device says; what lies beyond `from` is [`DriverError::Failed`].
    fn copy_out(&mut self, from: &Self::Memory, at: u64, to: &mut [u8]) -> Result<(), DriverError>;

    /// Waits until everything that this lane has begun is done.
    ///
    /// # Errors
    ///
    /// What went wrong in any of it. After an error that is not fatal the scheduler asks again; a device that fails twice is
    /// given up, because nobody can tell what is still under way.
    fn synchronise(&mut self) -> Result<(), DriverError>;
}

/// Bytes of device memory that a reservation pays for. Only the scheduler makes it, so that nobody allocates device memory
/// past the ledger.
#[derive(Debug, PartialEq, Eq)]
pub struct Paid {
    class: Class,
    bytes: Bytes,
}

impl Paid {
    pub(super) fn new(class: Class, bytes: Bytes) -> Paid {
        Paid { class, bytes }
    }

    /// What it is for: a driver may keep apart what stays long and what is soon gone.
    pub fn class(&self) -> Class {
        self.class
    }

    /// How many.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }
}

/// What a driver's call says when it fails.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The device has too little free memory. It is well otherwise.
    #[error("the device is out of memory: {wanted} were asked for, {free} are free")]
    OutOfMemory {
        /// What was asked for.
        wanted: Bytes,
        /// What is free, as far as the device can tell.
        free: Bytes,
    },
    /// This one call failed. The device is well otherwise.
    #[error("the device refused: {message}")]
    Failed {
        /// What the device said.
        message: String,
    },
    /// The context is broken: every later call fails (an error that sticks). The device is given up.
    #[error("the device is broken: {message}")]
    Broken {
        /// What the device said.
        message: String,
    },
    /// The device is gone.
    #[error("the device is lost: {message}")]
    Lost {
        /// What the device said.
        message: String,
    },
}

impl DriverError {
    /// Whether the device is of no more use.
    pub fn is_fatal(&self) -> bool {
        matches!(self, DriverError::Broken { .. } | DriverError::Lost { .. })
    }
}
