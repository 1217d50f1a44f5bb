//! Device memory together with the bytes that pay for it, and when it is freed.
//!
//! What a stage has used is freed only after the device has been synchronised, because copies and kernels may still be at
//! it when the stage lets go. So a buffer that is dropped inside of a stage goes to the stage's [`Yard`]; the lane empties
//! that after it has synchronised, and before it ends the stage (which returns lease, lane and bytes). A buffer that is
//! dropped when its stage is over is freed on the spot: nothing is under way in it any more.

use std::fmt;
use std::marker::PhantomData;

use thiserror::Error;

use super::driver::Driver;
use super::error::DeviceError;
use super::lanes::Lanes;
use crate::ledger::Charged;
use crate::sync::{Arc, Mutex, lock};
use crate::{Bytes, Class};

/// Memory and what pays for it; freed first, returned after.
pub(super) type Held<D> = Charged<<D as Driver>::Memory>;

/// Where pieces go that are let go while a stage may be using them, until its lane is synchronised. `None` when the stage is
/// over.
pub(super) struct Yard<D: Driver>(Arc<Mutex<Option<Vec<Piece<D>>>>>);

impl<D: Driver> Yard<D> {
    pub(super) fn open() -> Self {
        Yard(Arc::new(Mutex::new(Some(Vec::new()))))
    }

    /// Takes a piece in; gives it back when the stage is over.
    fn put(&self, piece: Piece<D>) -> Option<Piece<D>> {
        match &mut *lock(&self.0) {
            Some(yard) => {
                yard.push(piece);
                None
            }
            None => Some(piece),
        }
    }

    fn is(&self, other: &Yard<D>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn is_open(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// Takes what has come together so far. The stage goes on.
    pub(super) fn empty(&self) -> Vec<Piece<D>> {
        lock(&self.0).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes everything. The stage is over.
    pub(super) fn close(&self) -> Vec<Piece<D>> {
        lock(&self.0).take().unwrap_or_default()
    }
}

impl<D: Driver> Clone for Yard<D> {
    fn clone(&self) -> Self {
        Yard(self.0.clone())
    }
}

/// Device memory, what pays for it, and the stages that may be using it. Dropped, it goes through the yards of those that are
/// not over, one after the other, and is freed after the last.
pub(super) struct Piece<D: Driver> {
    /// Taken only by those who consume the piece.
    held: Option<Held<D>>,
    users: Mutex<Vec<Yard<D>>>,
    /// The device that it is on.
    home: Arc<Lanes>,
}

impl<D: Driver> Piece<D> {
    fn new(held: Held<D>, user: Yard<D>, home: Arc<Lanes>) -> Self {
        Piece { held: Some(held), users: Mutex::new(vec![user]), home }
    }

    fn held(&self) -> &Held<D> {
        self.held.as_ref().expect("it is there until the piece is consumed")
    }

    /// Notes that a stage may be using it.
    fn used_by(&self, user: &Yard<D>) {
        let mut users = lock(&self.users);
        users.retain(|other| other.is_open() && !other.is(user));
        if mutant!("one-user-of-shared-memory") {
            users.clear();
        }
        users.push(user.clone());
    }

    /// Whether no stage but this one can be using it.
    fn is_used_by_none_but(&self, user: &Yard<D>) -> bool {
        lock(&self.users).iter().all(|other| other.is(user) || !other.is_open())
    }

    /// What it holds, if no stage but this one, whose lane has just been synchronised, can be using it.
    pub(super) fn into_held(mut self, user: &Yard<D>) -> Option<Held<D>> {
        if self.is_used_by_none_but(user) {
            return self.held.take();
        }
        lock(&self.users).retain(|other| !other.is(user));
        None
    }
}

impl<D: Driver> Drop for Piece<D> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let mut users = std::mem::take(&mut *lock(&self.users));
        let mut held = Some(held);
        while let Some(yard) = users.pop() {
            let users_left = Mutex::new(std::mem::take(&mut users));
            let piece = Piece { held: held.take(), users: users_left, home: self.home.clone() };
            let Some(mut back) = yard.put(piece) else { return };
            held = back.held.take();
            users = std::mem::take(&mut *lock(&back.users));
        }
        // Under no lock: it returns bytes, which wakes others.
        drop(held);
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
    pub(super) fn new(held: Held<D>, yard: Yard<D>, home: Arc<Lanes>) -> Self {
        DeviceBuffer { piece: Piece::new(held, yard, home), lease: PhantomData }
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
/// waits to be fetched; or to everybody, as a resident key in an [`Arc`]. The stage that uses it takes it on with
/// [`adopt`](super::LaneCx::adopt), or has it [lent](super::LaneCx::lend) to it; several stages at once may.
///
/// It may be dropped anywhere. It is freed when no stage uses it any more, and its bytes return after.
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

    /// The device that it is on.
    pub fn device(&self) -> u16 {
        self.piece.home.number
    }

    /// Why a stage of this device cannot have it, if so.
    fn refusal_by(&self, here: &Arc<Lanes>) -> Option<DeviceError> {
        let home = &self.piece.home;
        match home.loss() {
            Some(loss) => Some(DeviceError::Lost(loss)),
            None if Arc::ptr_eq(home, here) => None,
            None => Some(DeviceError::Elsewhere { class: self.class(), lies_on: home.number, device: here.number }),
        }
    }

    /// The memory, for a stage that will have synchronised before its yard closes.
    pub(super) fn lend(&self, yard: &Yard<D>, here: &Arc<Lanes>) -> Result<&D::Memory, DeviceError> {
        if let Some(refusal) = self.refusal_by(here) {
            return Err(refusal);
        }
        self.piece.used_by(yard);
        Ok(self.piece.held().buffer())
    }

    /// The same memory, in the hands of a stage.
    pub(super) fn into_buffer<'lease>(
        mut self,
        yard: Yard<D>,
        here: &Arc<Lanes>,
    ) -> Result<DeviceBuffer<'lease, D>, NotAdopted<D>> {
        if let Some(error) = self.refusal_by(here) {
            return Err(NotAdopted { error: Box::new(error), staged: self });
        }
        if !self.piece.is_used_by_none_but(&yard) {
            let error = DeviceError::InUse { class: self.class(), device: self.device() };
            return Err(NotAdopted { error: Box::new(error), staged: self });
        }
        let held = self.piece.held.take().expect("it is there until the piece is consumed");
        Ok(DeviceBuffer::new(held, yard, here.clone()))
    }
}

/// Memory that a stage did not adopt.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct NotAdopted<D: Driver> {
    /// Why.
    pub error: Box<DeviceError>,
    /// The memory.
    pub staged: Staged<D>,
}

impl<D: Driver> From<NotAdopted<D>> for DeviceError {
    fn from(refused: NotAdopted<D>) -> Self {
        *refused.error
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
