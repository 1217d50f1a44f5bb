//! Erasing secret scalars.

use blstrs::Scalar;
use ff::Field;

/// Overwrites the scalars with zeros, in a way that the compiler may not leave out although nobody reads them again.
pub(crate) fn erase(scalars: &mut [Scalar]) {
    scalars.fill(Scalar::ZERO);
    zeroize::optimization_barrier(scalars);
}
