//! Scratch buffers, each paid for by bytes that are split off the caller's reservation and merged back afterwards.

use std::ops::{Deref, DerefMut};

use plimsoll::ledger::VecError;
use plimsoll::{Bytes, Charged, Reservation};

use super::BackendError;

/// A buffer of fixed length that pays for itself. What was in it is overwritten before its memory is freed, however that comes about:
/// nearly all that is computed here follows from a witness.
#[derive(Debug)]
pub(super) struct ScratchVec<T: Copy + Default>(Option<Charged<Vec<T>>>);

impl<T: Copy + Default> ScratchVec<T> {
    /// `len` copies of `value`, paid from `scratch`.
    pub(super) fn filled(
        scratch: &mut Reservation,
        operation: &'static str,
        len: usize,
        value: T,
    ) -> Result<Self, BackendError> {
        let needed = bytes_of::<T>(len);
        super::require_scratch(operation, scratch, needed)?;
        let too_small = |held: Bytes| BackendError::ScratchTooSmall { operation, needed, held: held.0 };
        let payment = scratch.split(Bytes(needed)).map_err(|error| too_small(error.held))?;
        #[cfg(test)]
        low_water::note(scratch.bytes());
        let mut data = Charged::with_capacity(payment, len).map_err(|error| match error {
            VecError::Alloc { .. } => BackendError::OutOfMemory { operation, bytes: needed },
            other => too_small(match other {
                VecError::TooFew { reservation, .. } => reservation.bytes(),
                _ => Bytes(0),
            }),
        })?;
        data.resize(len, value).map_err(|_| too_small(data.bytes()))?;
        Ok(Self(Some(data)))
    }

    /// Erases and frees the buffer, then gives its bytes back to `scratch`.
    pub(super) fn release(mut self, scratch: &mut Reservation) {
        self.erase();
        if let Some(data) = self.0.take() {
            let (data, payment) = data.into_parts();
            drop(data);
            scratch.merge(payment).expect("it was split off this reservation");
        }
    }

    fn erase(&mut self) {
        // All of these types' defaults are zeros.
        self.fill(T::default());
        zeroize::optimization_barrier(&**self);
    }
}

impl<T: Copy + Default> Drop for ScratchVec<T> {
    fn drop(&mut self) {
        self.erase();
    }
}

impl<T: Copy + Default> Deref for ScratchVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<T: Copy + Default> DerefMut for ScratchVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

/// The bytes of a buffer of `len` elements.
pub(super) const fn bytes_of<T>(len: usize) -> u64 {
    (len as u64) * (size_of::<T>() as u64)
}

/// The least that was left of any scratch on this thread: what an operation did not need.
#[cfg(test)]
pub(super) mod low_water {
    use std::cell::Cell;

    use plimsoll::Bytes;

    thread_local! {
        static LEAST: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    pub(super) fn note(left: Bytes) {
        LEAST.with(|least| least.set(least.get().min(left.0)));
    }

    /// The least since the last call.
    pub(in crate::backend) fn take() -> u64 {
        LEAST.with(|least| least.replace(u64::MAX))
    }
}
