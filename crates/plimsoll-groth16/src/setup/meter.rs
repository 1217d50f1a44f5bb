//! Makes points and tells how far it is.

use blstrs::Scalar;

use super::{OnProgress, SetupError, SetupPhase, SetupProgress};
use crate::backend::AffineCurve;
use crate::fixed_base::FixedBase;

/// Points between two reports: some 20 ms in G1 on one thread.
const POINTS_PER_REPORT: usize = 8192;

/// Counts points and passes the count on.
pub(super) struct Meter<'a> {
    phase: SetupPhase,
    total: usize,
    on_progress: OnProgress<'a>,
    done: usize,
}

impl<'a> Meter<'a> {
    pub(super) fn new(phase: SetupPhase, total: usize, on_progress: OnProgress<'a>) -> Self {
        Self { phase, total, on_progress, done: 0 }
    }

    /// Counts points and reports.
    pub(super) fn add(&mut self, points: usize) -> Result<(), SetupError> {
        self.done += points;
        let progress = SetupProgress { phase: self.phase, done: self.done, total: self.total };
        if (self.on_progress)(progress).is_continue() { Ok(()) } else { Err(SetupError::Cancelled) }
    }

    /// The multiples of the table's base by `scalars`, on all threads of the current pool.
    pub(super) fn multiples<C: AffineCurve>(
        &mut self,
        table: &FixedBase<C>,
        scalars: &[Scalar],
    ) -> Result<Vec<C>, SetupError> {
        let mut points = vec![C::identity(); scalars.len()];
        for (points, scalars) in points.chunks_mut(POINTS_PER_REPORT).zip(scalars.chunks(POINTS_PER_REPORT)) {
            table.multiply_each(scalars, points);
            self.add(points.len())?;
        }
        Ok(points)
    }
}
