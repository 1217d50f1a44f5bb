//! Many multiples of one point, from a table of its multiples by windows.

use std::sync::atomic::{AtomicUsize, Ordering};

use blstrs::Scalar;
use group::prime::{PrimeCurve, PrimeCurveAffine};
use plimsoll::pool;

use super::{OnProgress, SetupError, SetupPhase, SetupProgress};

/// Bits of a window. The table has 32 · 255 points; 8 bits are a byte of the scalar.
const WINDOW_BITS: u32 = 8;
const WINDOWS: usize = 32;

/// Points made by a task between two reports: about 10 ms in G1.
const POINTS_PER_TASK: usize = 512;

/// The multiples 1 to 255 of 2^(8·w)·P for each window w.
pub(super) struct FixedBase<C: PrimeCurve<Scalar = Scalar>> {
    windows: Vec<Vec<C::Affine>>,
}

impl<C: PrimeCurve<Scalar = Scalar>> FixedBase<C>
where
    C::Affine: Send + Sync,
{
    pub(super) fn new(point: &C) -> Self {
        let mut bases = vec![*point];
        for window in 1..WINDOWS {
            let mut base = bases[window - 1];
            for _ in 0..WINDOW_BITS {
                base = base.double();
            }
            bases.push(base);
        }
        let windows = pool::map_indices(WINDOWS, |window| {
            let mut multiples = vec![bases[window]];
            for i in 1..(1 << WINDOW_BITS) - 1 {
                multiples.push(multiples[i - 1] + bases[window]);
            }
            let mut affine = vec![C::Affine::identity(); multiples.len()];
            C::batch_normalize(&multiples, &mut affine);
            affine
        });
        Self { windows }
    }

    /// The multiples by `scalars`.
    pub(super) fn multiply(&self, scalars: &[Scalar], meter: &Meter<'_>) -> Result<Vec<C::Affine>, SetupError> {
        let mut points = vec![C::Affine::identity(); scalars.len()];
        pool::for_each_chunk(&mut points, POINTS_PER_TASK, |first, points| {
            if meter.is_cancelled() {
                return;
            }
            let multiples: Vec<C> = scalars[first..first + points.len()].iter().map(|s| self.multiple(s)).collect();
            C::batch_normalize(&multiples, points);
            // A cancellation is remembered by the meter and found when all tasks have ended.
            let _ = meter.add(points.len());
        });
        meter.add(0)?;
        Ok(points)
    }

    fn multiple(&self, scalar: &Scalar) -> C {
        let mut sum = C::identity();
        for (window, byte) in self.windows.iter().zip(scalar.to_bytes_le()) {
            if byte > 0 {
                sum += window[usize::from(byte) - 1];
            }
        }
        sum
    }
}

/// Counts points and passes the count on.
pub(super) struct Meter<'a> {
    phase: SetupPhase,
    total: usize,
    on_progress: OnProgress<'a>,
    /// Points done; `CANCELLED` once the callback said so.
    done: AtomicUsize,
}

const CANCELLED: usize = usize::MAX / 2;

impl<'a> Meter<'a> {
    pub(super) fn new(phase: SetupPhase, total: usize, on_progress: OnProgress<'a>) -> Self {
        Self { phase, total, on_progress, done: AtomicUsize::new(0) }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= CANCELLED
    }

    /// Counts points and reports.
    pub(super) fn add(&self, points: usize) -> Result<(), SetupError> {
        let done = self.done.fetch_add(points, Ordering::Relaxed) + points;
        if done < CANCELLED {
            if (self.on_progress)(SetupProgress { phase: self.phase, done, total: self.total }).is_continue() {
                return Ok(());
            }
            self.done.store(CANCELLED, Ordering::Relaxed);
        }
        Err(SetupError::Cancelled)
    }
}
