//! Secret scalars and points: erased before their memory is freed, and never printed.

use std::fmt;
use std::ops::{Deref, DerefMut};

use blstrs::Scalar;
use ff::Field;
use group::Group;
use plimsoll::ledger::VecError;
use plimsoll::{Charged, Class, Grant, pool};

/// On the smallest page of memory.
const SCALARS_PER_PAGE: usize = 4096 / size_of::<Scalar>();
/// A megabyte: enough that handing it to a thread costs little.
const TOUCHED_PER_TASK: usize = 256 * SCALARS_PER_PAGE;

/// Overwrites the scalars with zeros, in a way that the compiler may not leave out although nobody reads them again.
pub(crate) fn erase(scalars: &mut [Scalar]) {
    scalars.fill(Scalar::ZERO);
    zeroize::optimization_barrier(scalars);
}

/// A point that tells something about a witness: a sum that is not blinded yet. Erased when dropped.
pub(crate) struct SecretPoint<P: Group>(P);

impl<P: Group> SecretPoint<P> {
    pub(crate) fn new(point: P) -> Self {
        Self(point)
    }
}

impl<P: Group> Deref for SecretPoint<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.0
    }
}

impl<P: Group> DerefMut for SecretPoint<P> {
    fn deref_mut(&mut self) -> &mut P {
        &mut self.0
    }
}

impl<P: Group> Drop for SecretPoint<P> {
    fn drop(&mut self) {
        self.0 = P::identity();
        zeroize::optimization_barrier(&self.0);
    }
}

/// Scalars that nobody has charged, as callers hand them in. Erased when dropped.
pub(crate) struct SecretScalars(pub(crate) Vec<Scalar>);

impl Drop for SecretScalars {
    fn drop(&mut self) {
        erase(&mut self.0);
    }
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

    /// Up to three times the same, at once.
    pub(crate) fn zeroed_vectors(
        grant: &mut Grant,
        class: Class,
        len: usize,
        vectors: usize,
    ) -> Result<(Self, Option<Self>, Option<Self>), VecError> {
        let a = grant.vec(class, len)?;
        let b = if vectors > 1 { Some(grant.vec(class, len)?) } else { None };
        let c = if vectors > 2 { Some(grant.vec(class, len)?) } else { None };
        let zeros = |vector: Option<_>| vector.map(|vector| Self::zeros(vector, len));
        let (a, (b, c)) = pool::join(|| Self::zeros(a, len), || pool::join(|| zeros(b), || zeros(c)));
        Ok((a, b, c))
    }

    /// Touched by all threads that are free: the first touch of so much memory takes longer than what is computed there, and until
    /// then the ledger holds what the process does not have.
    fn zeros(mut scalars: Charged<Vec<Scalar>>, len: usize) -> Self {
        pool::for_each_chunk(&mut scalars.spare_capacity_mut()[..len], TOUCHED_PER_TASK, |_, part| {
            part.iter_mut().step_by(SCALARS_PER_PAGE).for_each(|first| _ = first.write(Scalar::ZERO));
        });
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
