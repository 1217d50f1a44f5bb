//! The buckets of one window: points come with their digits, Σ digit · point leaves.
//!
//! Digits are gathered until a *tile* is full. Then the tile's points are put in order of their buckets, and within each
//! bucket the second half is added to the first half until one point is left; the pairs of all buckets fill the batches of
//! [`add_each`] together. What is left goes into the buckets. At the end, the bucket of digit d has to count d times: with
//! the buckets as a matrix, d − 1 = row · columns + column, the rows' sums and the columns' sums are made by the same batched
//! additions, and only those few are weighted one by one.

use blstrs::Scalar;
use group::Group;
use plimsoll::Reservation;

use super::curve::{AffineCurve, BATCH, Step, add_each};
use super::msm::Place;
use super::{BackendError, ScratchVec};
use crate::backend::scratch::bytes_of;

/// A tile is an eighth of the terms within these bounds, or half as many as there are buckets: to walk through the buckets for each tile
/// costs little beside its additions then, and its slots take no more than half of what the buckets take.
const MIN_TILE: usize = 1 << 9;
const MAX_TILE: usize = 1 << 11;

/// How many additions it takes to sum the buckets of a window, about.
pub(super) fn additions_of_sum(window_bits: usize) -> usize {
    // Each bucket is in a row and in a column; the sums of 2^half rows and columns are weighted by two projective
    // additions, each as much as three affine ones.
    (2 << (window_bits - 1)) + (12 << (window_bits / 2)) + 60
}

/// The lengths of a lane's buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    buckets: usize,
    tile: usize,
    slots: usize,
    batch: usize,
}

impl Sizes {
    /// For windows up to so many bits and up to `terms` terms.
    pub(super) fn new(max_window_bits: usize, terms: usize) -> Self {
        let buckets = 1 << (max_window_bits - 1);
        let tile = (terms / 8).clamp(MIN_TILE, MAX_TILE).max(buckets / 2).min(terms);
        // A bucket with k points of a tile takes ⌈k/2⌉ slots; the columns' partial sums take a batch.
        let slots = (tile + tile.min(buckets)).div_ceil(2).max(BATCH.min(buckets));
        Self { buckets, tile, slots, batch: BATCH.min(tile.max(buckets).div_ceil(2)) }
    }

    pub(super) fn bytes<C: AffineCurve>(&self) -> u64 {
        bytes_of::<C>(self.buckets + self.slots + 2 * self.batch)
            + bytes_of::<Step<C::Field>>(self.batch)
            + bytes_of::<Entry>(self.tile)
            + bytes_of::<Place>(self.tile)
            + bytes_of::<Run>(self.buckets)
            + bytes_of::<u32>(self.batch)
    }
}

/// A digit's bucket and its point.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    bucket: u32,
    place: Place,
}

/// The slots (or the tile's places) that belong to one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    start: u32,
    len: u32,
}

/// The buffers of one thread.
pub(super) struct Lane<C: AffineCurve> {
    /// What the tasks done in this lane came to: the window and the sum.
    pub(super) results: Vec<(usize, C::Curve)>,
    window_bits: usize,
    buckets: ScratchVec<C>,
    entries: ScratchVec<Entry>,
    entry_count: usize,
    places: ScratchVec<Place>,
    runs: ScratchVec<Run>,
    slots: ScratchVec<C>,
    batch: Batch<C>,
}

impl<C: AffineCurve> Lane<C> {
    pub(super) fn new(sizes: &Sizes, scratch: &mut Reservation) -> Result<Self, BackendError> {
        let points = |len, scratch: &mut Reservation| ScratchVec::filled(scratch, "msm", len, C::identity());
        Ok(Self {
            results: Vec::new(),
            window_bits: 1,
            buckets: points(sizes.buckets, scratch)?,
            entries: ScratchVec::filled(scratch, "msm", sizes.tile, Entry::default())?,
            entry_count: 0,
            places: ScratchVec::filled(scratch, "msm", sizes.tile, 0)?,
            runs: ScratchVec::filled(scratch, "msm", sizes.buckets, Run::default())?,
            slots: points(sizes.slots, scratch)?,
            batch: Batch {
                sums: points(sizes.batch, scratch)?,
                others: points(sizes.batch, scratch)?,
                steps: ScratchVec::filled(scratch, "msm", sizes.batch, Step::default())?,
                targets: ScratchVec::filled(scratch, "msm", sizes.batch, 0)?,
                len: 0,
            },
        })
    }

    pub(super) fn release(mut self, scratch: &mut Reservation) {
        self.results.fill((0, C::Curve::identity()));
        zeroize::optimization_barrier(&self.results);
        self.buckets.release(scratch);
        self.entries.release(scratch);
        self.places.release(scratch);
        self.runs.release(scratch);
        self.slots.release(scratch);
        self.batch.sums.release(scratch);
        self.batch.others.release(scratch);
        self.batch.steps.release(scratch);
        self.batch.targets.release(scratch);
    }

    /// Empties the buckets for windows of so many bits.
    pub(super) fn start(&mut self, window_bits: usize) {
        self.window_bits = window_bits;
        self.buckets[..1 << (window_bits - 1)].fill(C::identity());
    }

    /// Adds digit · point.
    #[inline]
    pub(super) fn add(&mut self, digit: i32, place: Place, bases: &[C]) {
        if digit != 0 {
            let place = place ^ Place::from(digit < 0);
            self.entries[self.entry_count] = Entry { bucket: digit.unsigned_abs() - 1, place };
            self.entry_count += 1;
            if self.entry_count == self.entries.len() {
                self.empty_tile(bases);
            }
        }
    }

    /// Σ digit · point over all that were added since the start.
    pub(super) fn finish(&mut self, bases: &[C]) -> C::Curve {
        self.empty_tile(bases);
        self.weighted_sum()
    }

    /// Adds the tile's points to the buckets.
    fn empty_tile(&mut self, bases: &[C]) {
        let runs = &mut self.runs[..1 << (self.window_bits - 1)];
        sort_by_bucket(&self.entries[..self.entry_count], &mut self.places, runs);
        self.entry_count = 0;

        // The first halving reads the bases and writes the slots.
        let mut next_slot = 0_u32;
        let point = |place: Place| bases[(place >> 1) as usize].signed(place & 1 == 1);
        for run in runs.iter_mut() {
            let places = &self.places[run.start as usize..(run.start + run.len) as usize];
            for i in 0..places.len() / 2 {
                let (first, second) = (point(places[i]), point(places[places.len() - 1 - i]));
                self.batch.push(first, second, next_slot + i as u32, &mut self.slots);
            }
            if places.len() % 2 == 1 {
                self.slots[next_slot as usize + places.len() / 2] = point(places[places.len() / 2]);
            }
            *run = Run { start: next_slot, len: run.len.div_ceil(2) };
            next_slot += run.len;
        }
        self.batch.flush(&mut self.slots);
        halve_runs(runs, &mut self.slots, &mut self.batch);

        for (bucket, run) in runs.iter().enumerate().filter(|(_, run)| run.len > 0) {
            self.batch.push(self.buckets[bucket], self.slots[run.start as usize], bucket as u32, &mut self.buckets);
        }
        self.batch.flush(&mut self.buckets);
    }

    /// Σ (i + 1) · bucket i; leaves the buckets in disorder.
    fn weighted_sum(&mut self) -> C::Curve {
        let columns = 1 << (self.window_bits / 2);
        let buckets = &mut self.buckets[..1 << (self.window_bits - 1)];
        let columns = columns.min(buckets.len());

        // Columns first: they leave the buckets as they are. Partial sums of several rows fill a batch.
        let partial_len = BATCH.max(columns).min(buckets.len());
        let partial = &mut self.slots[..partial_len];
        partial.copy_from_slice(&buckets[..partial_len]);
        for rows in buckets[partial_len..].chunks_exact(partial_len) {
            self.batch.add_slice(partial, rows);
        }
        let mut len = partial_len;
        while len > columns {
            len /= 2;
            let (first, second) = partial.split_at_mut(len);
            self.batch.add_slice(first, &second[..len]);
        }
        let columns_sum = weighted(&partial[..columns]);

        let runs = &mut self.runs[..buckets.len() / columns];
        for (row, run) in runs.iter_mut().enumerate() {
            *run = Run { start: (row * columns) as u32, len: columns as u32 };
        }
        halve_runs(runs, buckets, &mut self.batch);
        for row in 0..buckets.len() / columns {
            buckets[row] = buckets[row * columns];
        }
        let rows = &buckets[..buckets.len() / columns];
        let total: C::Curve = rows.iter().fold(C::Curve::identity(), |sum, row| sum + row);
        weighted(rows) * Scalar::from(columns as u64) + columns_sum + total
    }
}

/// Σ i · point i, by the sums of the suffixes.
fn weighted<C: AffineCurve>(points: &[C]) -> C::Curve {
    let (mut suffix, mut sum) = (C::Curve::identity(), C::Curve::identity());
    for point in points[1..].iter().rev() {
        suffix += point;
        sum += suffix;
    }
    sum
}

/// Puts the entries' places in order of their buckets, and says which belong to each.
fn sort_by_bucket(entries: &[Entry], places: &mut [Place], runs: &mut [Run]) {
    runs.fill(Run::default());
    for entry in entries {
        runs[entry.bucket as usize].len += 1;
    }
    let mut start = 0;
    for run in runs.iter_mut() {
        run.start = start;
        start += run.len;
        run.len = 0;
    }
    for entry in entries {
        let run = &mut runs[entry.bucket as usize];
        places[(run.start + run.len) as usize] = entry.place;
        run.len += 1;
    }
}

/// Adds the second half of every run to its first half, until each run is one point (or none).
fn halve_runs<C: AffineCurve>(runs: &mut [Run], slots: &mut [C], batch: &mut Batch<C>) {
    loop {
        let mut longest = 0;
        for run in runs.iter_mut().filter(|run| run.len > 1) {
            for i in 0..run.len / 2 {
                let (first, second) = (run.start + i, run.start + run.len - 1 - i);
                batch.push(slots[first as usize], slots[second as usize], first, slots);
            }
            run.len = run.len.div_ceil(2);
            longest = longest.max(run.len);
        }
        batch.flush(slots);
        if longest <= 1 {
            return;
        }
    }
}

/// Additions that wait to be made together, and where their sums go.
struct Batch<C: AffineCurve> {
    sums: ScratchVec<C>,
    others: ScratchVec<C>,
    steps: ScratchVec<Step<C::Field>>,
    targets: ScratchVec<u32>,
    len: usize,
}

impl<C: AffineCurve> Batch<C> {
    /// Notes `slots[target] = first + second`. No other waiting addition may read or write that slot.
    #[inline]
    fn push(&mut self, first: C, second: C, target: u32, slots: &mut [C]) {
        (self.sums[self.len], self.others[self.len], self.targets[self.len]) = (first, second, target);
        self.len += 1;
        if self.len == self.sums.len() {
            self.flush(slots);
        }
    }

    /// Makes the waiting additions.
    fn flush(&mut self, slots: &mut [C]) {
        add_each(&mut self.sums[..self.len], &mut self.others[..self.len], &mut self.steps);
        for (sum, target) in self.sums[..self.len].iter().zip(&*self.targets) {
            slots[*target as usize] = *sum;
        }
        self.len = 0;
    }

    /// `sums[i] += others[i]`.
    fn add_slice(&mut self, sums: &mut [C], others: &[C]) {
        for (sums, others) in sums.chunks_mut(self.others.len()).zip(others.chunks(self.others.len())) {
            let copied = &mut self.others[..others.len()];
            copied.copy_from_slice(others);
            add_each(sums, copied, &mut self.steps);
        }
    }
}
