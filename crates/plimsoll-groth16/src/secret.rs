//! Secret scalars: buffers that are erased before their memory is freed, and never printed.

use std::fmt;
use std::ops::{Deref, DerefMut};

use blstrs::Scalar;
use ff::Field;
use plimsoll::ledger::VecError;
use plimsoll::{Charged, Class, Grant, pool};

/// Overwrites the scalars with zeros, in a way that the compiler may not leave out although nobody reads them again.
pub(crate) fn erase(scalars: &mut [Scalar]) {
    scalars.fill(Scalar::ZERO);
    zeroize::optimization_barrier(scalars);
}

/// A charged vector of scalars that come from a witness. Dropping it erases it, then frees it, then returns its bytes.
pub(crate) struct SecretVec {
    scalars: Charged<Vec<Scalar>>,
}

impl SecretVec {
    /// `len` zeros, paid for from the grant.
    pub(crate) fn zeroed(grant: &mut Grant, class: Class, len: usize) -> Result<Self, VecError> {
        Ok(Self::zeros(grant.vec(class, len)?, len))
    }

    /// Three times the same, written by three threads: the first touch of so much memory takes longer than what is computed
    /// there, and until then the ledger holds what the process does not have.
    pub(crate) fn zeroed_three(grant: &mut Grant, class: Class, len: usize) -> Result<[Self; 3], VecError> {
        let (a, b, c) = (grant.vec(class, len)?, grant.vec(class, len)?, grant.vec(class, len)?);
        let (a, (b, c)) =
            pool::join(|| Self::zeros(a, len), || pool::join(|| Self::zeros(b, len), || Self::zeros(c, len)));
        Ok([a, b, c])
    }

    fn zeros(mut scalars: Charged<Vec<Scalar>>, len: usize) -> Self {
        match scalars.resize(len, Scalar::ZERO) {
            Ok(()) => Self { scalars },
            Err(_) => unreachable!("the capacity is the length"),
        }
    }
}

impl Deref for SecretVec {
    type Target = [Scalar];

    fn deref(&self) -> &[Scalar] {
        &self.scalars
    }
}

impl DerefMut for SecretVec {
    fn deref_mut(&mut self) -> &mut [Scalar] {
        &mut self.scalars
    }
}

impl Drop for SecretVec {
    fn drop(&mut self) {
        erase(self);
    }
}

impl fmt::Debug for SecretVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} secret scalars]", self.len())
    }
}
