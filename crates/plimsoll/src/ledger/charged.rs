//! Buffers that carry the reservation that pays for them.

use std::collections::TryReserveError;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use thiserror::Error;

use super::error::{GrowError, TakeError};
use super::reservation::Reservation;
use crate::{Bytes, Class};

/// A buffer together with the reservation that pays for it: `Charged<Vec<T>>` or `Charged<Box<[T]>>`.
///
/// Dropping it frees the buffer first and returns the bytes after. The whole capacity is charged, not only the length. To
/// share a buffer, put the charged buffer into an [`Arc`](std::sync::Arc): it is charged once, and returned with the last
/// owner.
///
/// It gives out slices only. A `&mut Vec<T>` would let `mem::take` carry the allocation off, or `push` grow it uncounted:
///
/// ```compile_fail
/// # use plimsoll::{Bytes, Charged, Class, Ledger, Space};
/// # let ledger = Ledger::unlimited();
/// # let reservation = ledger.reserve(Class::new("a", Space::HOST), Bytes(8)).wait().unwrap();
/// let mut charged: Charged<Vec<u8>> = Charged::with_capacity(reservation, 8).unwrap();
/// let stolen: Vec<u8> = std::mem::take(&mut *charged);
/// ```
///
/// ```
/// # use plimsoll::{Bytes, Charged, Class, Ledger, Space};
/// # let ledger = Ledger::unlimited();
/// # let reservation = ledger.reserve(Class::new("a", Space::HOST), Bytes(8)).wait().unwrap();
/// let mut charged: Charged<Vec<u8>> = Charged::with_capacity(reservation, 8)?;
/// charged.extend_from_slice(&[1, 2, 3])?;
/// charged[0] = 7;
/// assert_eq!(&charged[..], [7, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Charged<B> {
    // Fields are dropped in this order: freed, then returned.
    #[cfg(not(plimsoll_mutant = "bytes-back-before-free"))]
    buffer: B,
    reservation: Reservation,
    #[cfg(plimsoll_mutant = "bytes-back-before-free")]
    buffer: B,
}

impl<B> Charged<B> {
    /// A buffer and what pays for it, as whoever allocated the one for the other knows.
    pub(crate) fn new(buffer: B, reservation: Reservation) -> Charged<B> {
        Charged { buffer, reservation }
    }

    /// The buffer, for this crate's eyes.
    pub(crate) fn buffer(&self) -> &B {
        &self.buffer
    }

    /// What the buffer costs.
    pub fn bytes(&self) -> Bytes {
        self.reservation.bytes()
    }

    /// The class that it is charged to.
    pub fn class(&self) -> Class {
        self.reservation.class()
    }

    /// The buffer and the reservation, apart. From here on it is the caller who frees first and returns after.
    pub fn into_parts(self) -> (B, Reservation) {
        let Charged { buffer, reservation } = self;
        (buffer, reservation)
    }
}

impl<T> Charged<Vec<T>> {
    /// An empty vector of exactly this capacity; what the reservation holds beyond it goes back.
    ///
    /// # Errors
    ///
    /// If the reservation holds fewer bytes, or the allocator refuses; the reservation comes back in the error.
    pub fn with_capacity(reservation: Reservation, capacity: usize) -> Result<Charged<Vec<T>>, VecError> {
        let needed = Bytes::of::<T>(capacity);
        if reservation.bytes() < needed {
            return Err(VecError::TooFew { needed, reservation });
        }
        let mut buffer = Vec::new();
        match buffer.try_reserve_exact(capacity) {
            Ok(()) => Charged::pay(buffer, reservation),
            Err(source) => Err(VecError::Alloc { source, reservation }),
        }
    }

    /// Charges a vector that exists already; what the reservation holds beyond its capacity goes back.
    ///
    /// # Errors
    ///
    /// If the reservation holds fewer bytes than the vector's capacity takes; both come back in the error.
    pub fn from_parts(buffer: Vec<T>, reservation: Reservation) -> Result<Charged<Vec<T>>, Unpaid<Vec<T>>> {
        if reservation.bytes() < capacity_bytes(&buffer) {
            return Err(Unpaid { needed: capacity_bytes(&buffer), buffer, reservation });
        }
        Ok(Charged::with_exact(buffer, reservation))
    }

    fn pay(buffer: Vec<T>, reservation: Reservation) -> Result<Charged<Vec<T>>, VecError> {
        // The allocator may have given more than was asked for; what is not paid for is not kept.
        match Charged::from_parts(buffer, reservation) {
            Ok(charged) => Ok(charged),
            Err(Unpaid { needed, reservation, .. }) => Err(VecError::TooFew { needed, reservation }),
        }
    }

    fn with_exact(buffer: Vec<T>, mut reservation: Reservation) -> Charged<Vec<T>> {
        let needed = capacity_bytes(&buffer);
        if reservation.bytes() > needed {
            reservation.shrink_to(needed).expect("it holds more");
        }
        Charged { buffer, reservation }
    }

    /// How many elements it can hold.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Adds an element at the end.
    ///
    /// # Errors
    ///
    /// If the vector is full; the element comes back. It never grows by itself: see [`try_grow`](Charged::try_grow).
    pub fn push(&mut self, value: T) -> Result<(), Full<T>> {
        if self.buffer.len() == self.buffer.capacity() {
            return Err(Full { capacity: self.buffer.capacity(), rejected: value });
        }
        self.buffer.push(value);
        Ok(())
    }

    /// Adds copies of all elements of a slice at the end.
    ///
    /// # Errors
    ///
    /// If they do not all fit; then none is added.
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<(), Full<()>>
    where
        T: Clone,
    {
        self.room_for(values.len())?;
        self.buffer.extend_from_slice(values);
        Ok(())
    }

    /// Makes it `len` elements long, with copies of `value` where it grows.
    ///
    /// # Errors
    ///
    /// If that is beyond the capacity; then nothing changes.
    pub fn resize(&mut self, len: usize, value: T) -> Result<(), Full<()>>
    where
        T: Clone,
    {
        self.room_for(len.saturating_sub(self.buffer.len()))?;
        self.buffer.resize(len, value);
        Ok(())
    }

    /// Makes it `len` elements long, with what `f` makes where it grows.
    ///
    /// # Errors
    ///
    /// If that is beyond the capacity; then nothing changes.
    pub fn resize_with(&mut self, len: usize, f: impl FnMut() -> T) -> Result<(), Full<()>> {
        self.room_for(len.saturating_sub(self.buffer.len()))?;
        self.buffer.resize_with(len, f);
        Ok(())
    }

    /// The room beyond the length, for whoever is to touch its pages before there are elements. What is written there is not the
    /// vector's: [`Charged::resize`] writes over it.
    ///
    /// ```
    /// # use plimsoll::{Bytes, Charged, Class, Ledger, Space};
    /// # let ledger = Ledger::unlimited();
    /// # let reservation = ledger.reserve(Class::new("a", Space::HOST), Bytes(8)).wait().unwrap();
    /// let mut charged: Charged<Vec<u8>> = Charged::with_capacity(reservation, 8)?;
    /// charged.push(1)?;
    /// charged.spare_capacity_mut()[0].write(7);
    /// charged.resize(3, 0)?;
    /// assert_eq!(&charged[..], [1, 0, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spare_capacity_mut(&mut self) -> &mut [MaybeUninit<T>] {
        self.buffer.spare_capacity_mut()
    }

    /// Drops all elements from `len` on. The capacity, and what it costs, stay.
    pub fn truncate(&mut self, len: usize) {
        self.buffer.truncate(len);
    }

    /// Drops all elements. The capacity, and what it costs, stay.
    pub fn clear(&mut self) {
        self.buffer.clear();
    }

    /// Makes room for `additional` elements more, by [`Reservation::try_grow`]: now or not at all. While the elements move,
    /// the old buffer and the new one are both charged, as both exist.
    ///
    /// # Errors
    ///
    /// If the ledger has not so much room, or the allocator refuses; then nothing changes.
    pub fn try_grow(&mut self, additional: usize) -> Result<(), GrowBufferError> {
        let capacity = self.buffer.capacity().saturating_add(additional);
        let new_bytes = Bytes::of::<T>(capacity);
        self.reservation.try_grow(new_bytes).map_err(GrowBufferError::Ledger)?;
        let old_bytes = self.reservation.bytes().saturating_sub(new_bytes);
        let mut grown: Vec<T> = Vec::new();
        if let Err(source) = grown.try_reserve_exact(capacity) {
            self.reservation.shrink_to(old_bytes).expect("it held that much before");
            return Err(GrowBufferError::Alloc(source));
        }
        grown.append(&mut self.buffer);
        self.buffer = grown;
        self.reservation.shrink_to(new_bytes).expect("it holds both");
        Ok(())
    }

    /// Frees the room beyond the length, and returns what it cost.
    ///
    /// The allocator may have to move the elements for that; a vector that is full is not moved.
    pub fn into_boxed_slice(self) -> Charged<Box<[T]>> {
        let Charged { buffer, mut reservation } = self;
        let buffer = buffer.into_boxed_slice();
        reservation.shrink_to(Bytes(size_of_val(&*buffer) as u64)).expect("a slice takes no more than its vector");
        Charged { buffer, reservation }
    }

    fn room_for(&self, additional: usize) -> Result<(), Full<()>> {
        if additional > self.buffer.capacity() - self.buffer.len() {
            return Err(Full { capacity: self.buffer.capacity(), rejected: () });
        }
        Ok(())
    }
}

impl<T> Charged<Box<[T]>> {
    /// The slice as a vector that is full.
    pub fn into_vec(self) -> Charged<Vec<T>> {
        let Charged { buffer, reservation } = self;
        Charged { buffer: buffer.into_vec(), reservation }
    }
}

impl<T, B: Deref<Target = [T]>> Deref for Charged<B> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.buffer
    }
}

impl<T, B: DerefMut<Target = [T]>> DerefMut for Charged<B> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.buffer
    }
}

/// Shows what it costs, not what is in it: the contents may be secret, and are large.
impl<B> fmt::Debug for Charged<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charged({} of {})", self.bytes(), self.class())
    }
}

fn capacity_bytes<T>(buffer: &Vec<T>) -> Bytes {
    Bytes::of::<T>(if size_of::<T>() == 0 { 0 } else { buffer.capacity() })
}

/// A vector was not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VecError {
    /// The grant has not so many bytes left.
    #[error(transparent)]
    Take(TakeError),
    /// The reservation does not pay for it.
    #[error("the vector needs {needed} but the reservation holds {}; reserve the capacity's bytes", reservation.bytes())]
    TooFew {
        /// What the capacity takes.
        needed: Bytes,
        /// The reservation.
        reservation: Reservation,
    },
    /// The allocator refused.
    #[error("the allocator refused {} of {}: {source}", reservation.bytes(), reservation.class())]
    Alloc {
        /// The allocator's word.
        source: TryReserveError,
        /// The reservation.
        reservation: Reservation,
    },
    /// The allocator refused, and the bytes are back in the grant: an error that carried them off would keep its job from going on
    /// with less, or from its start.
    #[error("the allocator refused {bytes} of {class}: {source}")]
    Refused {
        /// The allocator's word.
        source: TryReserveError,
        /// What was to be charged.
        class: Class,
        /// How much of it.
        bytes: Bytes,
    },
}

/// A buffer that its reservation does not pay for.
#[derive(Error)]
#[error("the buffer needs {needed} but the reservation holds {}; reserve its capacity's bytes", reservation.bytes())]
pub struct Unpaid<B> {
    /// What it takes.
    pub needed: Bytes,
    /// The buffer.
    pub buffer: B,
    /// The reservation.
    pub reservation: Reservation,
}

impl<B> fmt::Debug for Unpaid<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unpaid(needs {}, {:?})", self.needed, self.reservation)
    }
}

/// A charged vector was not grown.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GrowBufferError {
    /// The ledger has not so much room now.
    #[error(transparent)]
    Ledger(GrowError),
    /// The allocator refused.
    #[error("the allocator refused: {0}")]
    Alloc(TryReserveError),
}

/// A charged vector is full.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("the buffer is full at {capacity} elements; charge a larger capacity, or grow it with try_grow")]
pub struct Full<T> {
    /// How many elements it can hold.
    pub capacity: usize,
    /// What did not fit.
    pub rejected: T,
}

/// Shows the capacity, not what was rejected.
impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Full {{ capacity: {} }}", self.capacity)
    }
}
