//! Scratch buffers, each paid for by bytes that are split off the caller's reservation and merged back afterwards.

use std::ops::{Deref, DerefMut};

use super::BackendError;

/// Bytes that an operation may allocate (stands in for the ledger's type until that lands).
#[must_use]
#[derive(Debug)]
pub struct Reservation {
    bytes: u64,
}

impl Reservation {
    /// A free-standing reservation of so many bytes.
    pub fn of(bytes: u64) -> Self {
        Self { bytes }
    }

    /// The bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The bytes that a reservation holds now.
pub(super) fn held_bytes(reservation: &Reservation) -> u64 {
    reservation.bytes()
}

/// A buffer of fixed length that pays for itself.
#[derive(Debug)]
pub(super) struct ScratchVec<T> {
    data: Vec<T>,
    bytes: u64,
}

impl<T: Clone> ScratchVec<T> {
    /// `len` copies of `value`, paid from `scratch`.
    pub(super) fn filled(
        scratch: &mut Reservation,
        operation: &'static str,
        len: usize,
        value: T,
    ) -> Result<Self, BackendError> {
        let bytes = bytes_of::<T>(len);
        super::require_scratch(operation, scratch, bytes)?;
        scratch.bytes -= bytes;
        let mut data = Vec::with_capacity(len);
        data.resize(len, value);
        Ok(Self { data, bytes })
    }

    /// Frees the buffer, then gives its bytes back to `scratch`.
    pub(super) fn release(self, scratch: &mut Reservation) {
        let Self { data, bytes } = self;
        drop(data);
        scratch.bytes += bytes;
    }
}

impl<T> Deref for ScratchVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.data
    }
}

impl<T> DerefMut for ScratchVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.data
    }
}

/// The bytes of a buffer of `len` elements.
pub(super) const fn bytes_of<T>(len: usize) -> u64 {
    (len as u64) * (size_of::<T>() as u64)
}
