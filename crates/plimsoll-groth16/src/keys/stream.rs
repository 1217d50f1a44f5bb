//! A key that stays where it is, in a mapped file say, because memory has no room for it: its points pass through a buffer, a
//! piece at a time, for each proof anew.

use std::error::Error;
use std::fmt;

use blstrs::{G1Affine, G2Affine};

use super::{HBasis, KeyMismatch, Section, VerifyingKey};
use crate::r1cs::R1cs;

/// What went wrong while points were read.
pub type StreamError = Box<dyn Error + Send + Sync>;

/// The points of a query in G1, as a [`KeyStream`] numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Query {
    /// The quotient's: point i is for the value at [`KeyStream::h_place`] of i.
    H,
    /// One for each private variable.
    L,
    /// One for *each* variable; infinity where one does not occur in A.
    A,
    /// One for *each* variable; infinity where one does not occur in B. The points in G2 are the same.
    B,
}

/// A key whose points are read again and again.
///
/// Whoever makes one vouches for the points as for those of a [`ProvingKey`](super::ProvingKey): on the curve and in the subgroup, and
/// the same whenever they are read; otherwise reading fails.
pub trait KeyStream: Send + Sync + fmt::Debug {
    /// What a verifier needs.
    fn verifying_key(&self) -> &VerifyingKey;

    /// What the h points stand for.
    fn basis(&self) -> HBasis;

    /// How many points a query has.
    fn points(&self, query: Query) -> usize;

    /// Points are read in whole windows of so many, from a multiple of it on: a piece is some of them.
    fn window_points(&self) -> usize;

    /// What one reading takes for itself.
    fn scratch_bytes(&self) -> u64;

    /// Where the quotient's value for point `index` of h is, in the order of the domain.
    fn h_place(&self, index: usize) -> usize;

    /// Fills `out` with the points of a query from `first` on. Both ends are those of windows, or the query's end.
    ///
    /// # Errors
    /// They cannot be read, or are not what they were.
    fn read_g1(&self, query: Query, first: usize, out: &mut [G1Affine]) -> Result<(), StreamError>;

    /// The same of B's points in G2.
    ///
    /// # Errors
    /// They cannot be read, or are not what they were.
    fn read_g2(&self, first: usize, out: &mut [G2Affine]) -> Result<(), StreamError>;
}

/// Checks that the key has as many points as the circuit's shape needs, as
/// [`ProvingKey::check_shape`](super::ProvingKey::check_shape) does.
pub(crate) fn check_shape(key: &dyn KeyStream, r1cs: &R1cs) -> Result<(), KeyMismatch> {
    let n = r1cs.domain().size();
    let h = match key.basis() {
        HBasis::PowersOfTau => n - 1,
        HBasis::OddCosetLagrange => n,
    };
    let checks = [
        (Section::Ic, key.verifying_key().ic.len(), r1cs.inputs()),
        (Section::H, key.points(Query::H), h),
        (Section::L, key.points(Query::L), r1cs.aux()),
        (Section::A, key.points(Query::A), r1cs.variables()),
        (Section::BG1, key.points(Query::B), r1cs.variables()),
    ];
    match checks.into_iter().find(|(_, found, expected)| found != expected) {
        Some((section, found, expected)) => Err(KeyMismatch { section, found, expected }),
        None => Ok(()),
    }
}
