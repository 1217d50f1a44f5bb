//! Commitments with a key that is not in memory: its points pass through a buffer, a piece at a time.
//!
//! Nothing is gathered: a piece of A or B has a point for each variable, infinity where it does not occur, and backends pass over
//! those. Only the quotient's values are put in the order of the key's points, as many at a time as a piece has.

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::Group;
use group::prime::PrimeCurveAffine;
use plimsoll::{Charged, Grant, Reservation};

use super::commit::Committed;
use super::quotient::Quotient;
use super::{ProveError, Prover, Streamed};
use crate::footprint::{SCRATCH, pieces};
use crate::keys::Query;
use crate::secret::{SecretPoint, SecretVec, erase};

impl Prover {
    /// [`Prover::commit`] with points that pass through.
    pub(super) fn commit_streamed(
        &self,
        grant: &mut Grant,
        quotient: Quotient,
        streamed: &Streamed,
    ) -> Result<Committed, ProveError> {
        let Quotient { witness, h } = quotient;
        let (mut assignment, public_inputs) = (witness.assignment, witness.public_inputs);
        let len = streamed.piece_g1(&self.r1cs);
        let mut values = SecretVec::zeroed(grant, SCRATCH, len)?;
        let mut piece = Piece::<G1Affine>::of(grant, len, streamed)?;
        let footprint = self.footprint(plimsoll::pool::current_threads());
        let mut scratch = grant.take(SCRATCH, footprint.multiplication_scratch())?;

        let key = &*streamed.key;
        let mut h_and_l = SecretPoint::new(G1Projective::identity());
        for (first, len) in pieces(key.points(Query::H), streamed.piece) {
            for (i, value) in values[..len].iter_mut().enumerate() {
                *value = h[key.h_place(first + i)];
            }
            *h_and_l += self.msm_piece(&mut piece, Query::H, first, &mut values[..len], &mut scratch)?;
        }
        erase(&mut values);
        drop(h);
        let mut sum = |query, values: &mut [Scalar]| -> Result<SecretPoint<G1Projective>, ProveError> {
            let mut sum = SecretPoint::new(G1Projective::identity());
            for (first, len) in pieces(key.points(query), streamed.piece) {
                *sum += self.msm_piece(&mut piece, query, first, &mut values[first..first + len], &mut scratch)?;
            }
            Ok(sum)
        };
        *h_and_l += *sum(Query::L, &mut assignment[self.r1cs.inputs()..])?;
        let a = sum(Query::A, &mut assignment)?;
        let b_g1 = sum(Query::B, &mut assignment)?;
        Ok(Committed { h_and_l, a, b_g1, b_scalars: assignment, public_inputs })
    }

    /// The multiplication in G2 with points that pass through.
    pub(super) fn b_g2_streamed(
        &self,
        grant: &mut Grant,
        values: &mut [Scalar],
        streamed: &Streamed,
    ) -> Result<SecretPoint<G2Projective>, ProveError> {
        let mut piece = Piece::<G2Affine>::of(grant, streamed.piece_g2(&self.r1cs), streamed)?;
        let footprint = self.footprint(plimsoll::pool::current_threads());
        let mut scratch = grant.take(SCRATCH, footprint.multiplication_scratch_g2())?;
        let mut sum = SecretPoint::new(G2Projective::identity());
        for (first, len) in pieces(streamed.key.points(Query::B), streamed.piece) {
            self.check_stop()?;
            let points = &mut piece.points[..len];
            streamed.key.read_g2(first, points).map_err(|source| ProveError::Key { source })?;
            let values = &mut values[first..first + len];
            *sum += self.backend.msm_g2_mut(points, values, &mut scratch).map_err(self.backend_error())?;
        }
        Ok(sum)
    }

    fn msm_piece(
        &self,
        piece: &mut Piece<G1Affine>,
        query: Query,
        first: usize,
        values: &mut [Scalar],
        scratch: &mut Reservation,
    ) -> Result<G1Projective, ProveError> {
        self.check_stop()?;
        let points = &mut piece.points[..values.len()];
        let streamed = self.streamed.as_ref().expect("only called with a key that passes through");
        streamed.key.read_g1(query, first, points).map_err(|source| ProveError::Key { source })?;
        self.backend.msm_g1_mut(points, values, scratch).map_err(self.backend_error())
    }
}

/// The buffer that points pass through.
struct Piece<P> {
    points: Charged<Vec<P>>,
    #[expect(dead_code, reason = "held for what reading takes for itself")]
    reading: Reservation,
}

impl<P: PrimeCurveAffine> Piece<P> {
    fn of(grant: &mut Grant, len: usize, streamed: &Streamed) -> Result<Self, ProveError> {
        let reading = grant.take(SCRATCH, plimsoll::Bytes(streamed.key.scratch_bytes()))?;
        let mut points = grant.vec(SCRATCH, len)?;
        match points.resize(len, P::identity()) {
            Ok(()) => Ok(Self { points, reading }),
            Err(_) => unreachable!("the capacity is the length"),
        }
    }
}
