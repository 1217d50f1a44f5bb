//! Device memory together with the bytes that pay for it, and when it is freed.
//!
//! What a stage has used is freed only after the device has been synchronised, because copies and kernels may still be at
//! it when the stage lets go. So a buffer that is dropped inside of a stage goes to the stage's [`Yard`]; the lane empties
//! that after it has synchronised, and before it ends the stage (which returns lease, lane and bytes). A buffer that is
//! dropped when its stage is over is freed on the spot: nothing is under way in it any more.

use std::fmt;
use std::marker::PhantomData;

use super::driver::Driver;
use crate::ledger::Charged;
use crate::sync::{Arc, Mutex, lock};
use crate::{Bytes, Class};

/// Memory and what pays for it; freed first, returned after.
pub(super) type Held<D> = Charged<<D as Driver>::Memory>;

/// Where buffers go that a stage is done with, until the device is synchronised. `None` when the stage is over.
pub(super) struct Yard<D: Driver>(Arc<Mutex<Option<Vec<Held<D>>>>>);

impl<D: Driver> Yard<D> {
    pub(super) fn open() -> Self {
        Yard(Arc::new(Mutex::new(Some(Vec::new()))))
    }

    fn put(&self, held: Held<D>) {
        // Out of the lock before it is freed: that returns bytes, which wakes others.
        let now = match &mut *lock(&self.0) {
            Some(yard) => {
                yard.push(held);
                None
            }
            None => Some(held),
        };
        drop(now);
    }

    /// Whether its stage is over, or is this one.
    fn is_settled_for(&self, other: &Yard<D>) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || lock(&self.0).is_none()
    }

    /// Takes what has come together so far. The stage goes on.
    pub(super) fn empty(&self) -> Vec<Held<D>> {
        lock(&self.0).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes everything. The stage is over.
    pub(super) fn close(&self) -> Vec<Held<D>> {
        lock(&self.0).take().unwrap_or_default()
    }
}

impl<D: Driver> Clone for Yard<D> {
    fn clone(&self) -> Self {
        Yard(self.0.clone())
    }
}

/// Memory of the device and the right to it, back to back. Inside of a stage it may be used, so dropping it is put off.
struct Piece<D: Driver> {
    /// Taken only by those who consume the piece.
    held: Option<Held<D>>,
    yard: Yard<D>,
}

impl<D: Driver> Piece<D> {
    fn held(&self) -> &Held<D> {
        self.held.as_ref().expect("it is there until the piece is consumed")
    }
}

impl<D: Driver> Drop for Piece<D> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.yard.put(held);
        }
    }
}

/// Device memory that a stage works with. It cannot outlive the stage, and where the stage holds the lease, not the lease:
/// the lifetime belongs to the one call of the stage's closure, and nothing that the closure returns or has captured can
/// name it.
///
/// It carries the reservation that pays for it. Dropped, it is freed as soon as nothing on the device uses it, at the
/// latest before the lease is given up; its bytes return after that.
pub struct DeviceBuffer<'lease, D: Driver> {
    piece: Piece<D>,
    /// Invariant, so that the lifetime can be neither lengthened nor shortened.
    lease: PhantomData<fn(&'lease ()) -> &'lease ()>,
}

impl<D: Driver> DeviceBuffer<'_, D> {
    pub(super) fn new(held: Held<D>, yard: Yard<D>) -> Self {
        DeviceBuffer { piece: Piece { held: Some(held), yard }, lease: PhantomData }
    }

    /// The memory, to hand to the driver's own calls.
    pub fn memory(&self) -> &D::Memory {
        self.piece.held().buffer()
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> Bytes {
        self.piece.held().bytes()
    }

    /// The class that it is charged to.
    pub fn class(&self) -> Class {
        self.piece.held().class()
    }

    pub(super) fn into_staged(self) -> Staged<D> {
        Staged { piece: self.piece }
    }
}

/// Device memory that belongs to a job between its stages: what was staged in and waits for the lease, or a result that
/// waits to be fetched. Nothing uses it, and nothing can: the stage that wants to takes it on with
/// [`adopt`](super::LaneCx::adopt).
///
/// It may be dropped anywhere; it is freed, and its bytes return after.
pub struct Staged<D: Driver> {
    piece: Piece<D>,
}

impl<D: Driver> Staged<D> {
    /// How many bytes it has.
    pub fn bytes(&self) -> Bytes {
        self.piece.held().bytes()
    }

    /// The class that it is charged to.
    pub fn class(&self) -> Class {
        self.piece.held().class()
    }

    /// The same memory, in the hands of a stage; itself, where another stage may still be at it.
    pub(super) fn into_buffer<'lease>(mut self, yard: Yard<D>) -> Result<DeviceBuffer<'lease, D>, Self> {
        if !self.piece.yard.is_settled_for(&yard) {
            return Err(self);
        }
        let held = self.piece.held.take().expect("it is there until the piece is consumed");
        Ok(DeviceBuffer::new(held, yard))
    }
}

impl<D: Driver> fmt::Debug for DeviceBuffer<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} of {})", self.bytes(), self.class())
    }
}

impl<D: Driver> fmt::Debug for Staged<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Staged({} of {})", self.bytes(), self.class())
    }
}
