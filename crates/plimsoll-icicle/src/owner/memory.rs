//! Device memory that remembers its device.

use std::sync::Arc;

use super::here::free;
use super::{IS_OWNER, Owner};

/// A piece of a device's memory. Dropped anywhere, it is freed by the device's owner, and is gone when `drop` returns; in a call of
/// another device, it is gone before what is allocated afterwards.
pub struct DeviceMemory {
    owner: Arc<Owner>,
    address: usize,
    bytes: u64,
}

impl DeviceMemory {
    pub(super) fn new(owner: Arc<Owner>, address: usize, bytes: u64) -> Self {
        Self { owner, address, bytes }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of it.
    pub fn all(&self) -> Part<'_> {
        Part { memory: self, at: 0, bytes: self.bytes }
    }

    /// A part of it.
    ///
    /// # Panics
    ///
    /// If it has no such part.
    pub fn part(&self, at: u64, bytes: u64) -> Part<'_> {
        let end = at.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "{bytes} bytes at {at} of {}", self.bytes);
        Part { memory: self, at, bytes }
    }

    /// The device that it is on.
    pub fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let (address, bytes) = (self.address, self.bytes);
        let owner = &self.owner;
        // Refused where the device has fallen silent; and a device that cannot free has nothing that could be done here.
        let _ = match owner.is_here() || mutant!("icicle-frees-where-dropped") {
            // In a call that let go of memory which it did not use: what it uses is borrowed by it.
            true => free(owner.library, &owner.shared, address, bytes),
            // One device's thread does not wait for another's, which may wait for it.
            false if IS_OWNER.get() && !mutant!("icicle-owners-wait") => {
                owner.free_later(address, bytes);
                Ok(())
            }
            false => owner.tidy("free", move |scope| scope.free(address, bytes)),
        };
    }
}

impl std::fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceMemory({} bytes on {})", self.bytes, self.owner.name())
    }
}

/// A part of a piece of device memory.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    memory: &'a DeviceMemory,
    at: u64,
    bytes: u64,
}

impl<'a> Part<'a> {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The piece that it is of.
    pub fn memory(&self) -> &'a DeviceMemory {
        self.memory
    }

    /// A part of this part.
    ///
    /// # Panics
    ///
    /// If it has no such part.
    pub fn part(&self, at: u64, bytes: u64) -> Part<'a> {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "{bytes} bytes at {at} of {}", self.bytes);
        Part { memory: self.memory, at: self.at + at, bytes }
    }

    /// Where it begins, in its piece.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn address(&self) -> usize {
        self.memory.address + self.at as usize
    }
}
