//! Multi-scalar multiplication by the bucket method, with signed digits and affine additions.
//!
//! 1. **Terms.** Every scalar becomes a number of at most 254 bits with a sign (−1 is as short as 1): in its own place where the
//!    caller lets it ([`msm_mut`]), otherwise whenever it is looked at. What is kept of a term is its place, in 32 bits. Zeros and
//!    points at infinity are dropped. Short numbers stand apart from long ones and in order of length, so that a window never looks
//!    at a number that has no digit in it: a 0/1 witness costs one addition a term.
//! 2. **Plan.** The lengths' histogram gives the exact number of additions for each window width; the cheapest is taken.
//! 3. **Buckets.** A task is one window of one part of the terms; lanes (one a thread) take tasks from a counter and do
//!    each in their own buckets ([`super::buckets`]). Any distribution costs the same: a heavy bucket is a tree of
//!    additions like all others.
//! 4. **Sum** of the tasks' results, window by window. Which lane did a task does not matter to the result.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use blstrs::Scalar;
use group::Group;
use plimsoll::{Reservation, pool};

use super::buckets::{self, Lane};
use super::curve::AffineCurve;
use super::digits::{
    Limbs, bit_length, digit, digit_count, limbs, number_in, opposite, signed_limbs, to_number, to_scalar,
};
use super::{BackendError, ScratchVec, require_same_length, require_scratch};
use crate::backend::scratch::bytes_of;

/// Bits of a number once it has a sign.
const NUMBER_BITS: usize = 254;
/// Numbers up to this length are kept in order of length.
const SHORT_BITS: usize = 64;
const MAX_WINDOW_BITS: usize = 18;
/// An index and a sign share 32 bits.
const MAX_TERMS: usize = 1 << 31;
const MAX_SEGMENT_TERMS: usize = 1 << 14;

/// A point to be taken: which one, and whether its opposite. The sign is the lowest bit.
pub(super) type Place = u32;

/// Scalars, and the numbers that they stand for.
trait Numbers {
    /// The scalar at an index as a number and its sign.
    fn signed(&self, index: usize) -> (Limbs, bool);

    /// Told of a term that is kept.
    fn keep(&mut self, _index: usize, _number: &Limbs) {}

    /// The number of a term that was kept, and its sign.
    fn number(&self, index: usize, negative: bool) -> Limbs;
}

/// They stay as they are: a number is made whenever it is wanted.
struct Made<'a>(&'a [Scalar]);

impl Numbers for Made<'_> {
    #[inline]
    fn signed(&self, index: usize) -> (Limbs, bool) {
        signed_limbs(&self.0[index])
    }

    #[inline]
    fn number(&self, index: usize, negative: bool) -> Limbs {
        let number = limbs(&self.0[index]);
        if negative { opposite(&number) } else { number }
    }
}

/// The numbers take their places.
struct InPlace<S>(S);

impl Numbers for InPlace<&mut [Scalar]> {
    #[inline]
    fn signed(&self, index: usize) -> (Limbs, bool) {
        signed_limbs(&self.0[index])
    }

    #[inline]
    fn keep(&mut self, index: usize, number: &Limbs) {
        to_number(&mut self.0[index], number);
    }

    #[inline]
    fn number(&self, index: usize, _negative: bool) -> Limbs {
        number_in(&self.0[index])
    }
}

impl Numbers for InPlace<&[Scalar]> {
    #[inline]
    fn signed(&self, _index: usize) -> (Limbs, bool) {
        unreachable!("they are numbers by now")
    }

    #[inline]
    fn number(&self, index: usize, _negative: bool) -> Limbs {
        number_in(&self.0[index])
    }
}

/// The scratch of one multiplication with `n` terms.
pub(super) fn scratch_bytes<C: AffineCurve>(n: usize, threads: usize) -> u64 {
    if n == 0 {
        return 0;
    }
    let sizes = buckets::Sizes::new(max_window_bits(n, threads), n);
    let segments = bytes_of::<Place>(n) + segment_count(n, threads) as u64 * bytes_of::<u32>(NUMBER_BITS + 1);
    segments + threads as u64 * sizes.bytes::<C>()
}

/// The window width for scalars without structure: the widest that any scalars get.
fn max_window_bits(n: usize, threads: usize) -> usize {
    let mut lengths = [0; NUMBER_BITS + 1];
    lengths[NUMBER_BITS] = n;
    Schedule::cheapest(&lengths, MAX_WINDOW_BITS, threads).window_bits
}

fn segment_count(n: usize, threads: usize) -> usize {
    n.div_ceil(MAX_SEGMENT_TERMS).max(8 * threads).min(n.div_ceil(64))
}

/// `Σ scalars[i] · bases[i]`.
pub(super) fn msm<C: AffineCurve>(
    bases: &[C],
    scalars: &[Scalar],
    scratch: &mut Reservation,
) -> Result<C::Curve, BackendError> {
    let Some((mut segments, lanes)) = prepare(bases, scalars, scratch)? else { return Ok(C::Curve::identity()) };
    pool::for_each_chunk(&mut segments, 1, |_, segment| {
        let range = segment[0].range();
        segment[0].fill(&bases[range.clone()], Made(&scalars[range]));
    });
    let sum = sum(bases, &segments, lanes, &Made(scalars), scratch);
    segments.into_iter().for_each(|segment| segment.release(scratch));
    Ok(sum)
}

/// The same with scalars that are numbers while it runs, in their own places, and scalars again when it returns.
pub(super) fn msm_mut<C: AffineCurve>(
    bases: &[C],
    scalars: &mut [Scalar],
    scratch: &mut Reservation,
) -> Result<C::Curve, BackendError> {
    let Some((mut segments, lanes)) = prepare(bases, scalars, scratch)? else { return Ok(C::Curve::identity()) };
    // Nothing fails from here on.
    each_with_scalars(&mut segments, scalars, |segment, scalars| {
        let range = segment.range();
        segment.fill(&bases[range], InPlace(scalars));
    });
    let sum = sum(bases, &segments, lanes, &InPlace(&*scalars), scratch);
    each_with_scalars(&mut segments, scalars, |segment, scalars| segment.undo(scalars));
    segments.into_iter().for_each(|segment| segment.release(scratch));
    Ok(sum)
}

type Prepared<C> = Option<(Vec<Segment>, Vec<Lane<C>>)>;

/// All buffers, unless there is nothing to do.
fn prepare<C: AffineCurve>(
    bases: &[C],
    scalars: &[Scalar],
    scratch: &mut Reservation,
) -> Result<Prepared<C>, BackendError> {
    let (n, threads) = (bases.len(), pool::current_threads());
    require_same_length("msm", n, scalars.len())?;
    require_scratch("msm", scratch, scratch_bytes::<C>(n, threads))?;
    if n >= MAX_TERMS {
        return Err(BackendError::TooLarge { operation: "msm", len: n, max: MAX_TERMS - 1 });
    }
    if n == 0 {
        return Ok(None);
    }
    let segments = segments(n, threads, scratch)?;
    let sizes = buckets::Sizes::new(max_window_bits(n, threads), n);
    let lanes = (0..threads).map(|_| Lane::new(&sizes, scratch)).collect::<Result<Vec<Lane<C>>, _>>()?;
    Ok(Some((segments, lanes)))
}

/// Calls `f` with each segment and the scalars of its terms, in parallel.
fn each_with_scalars(segments: &mut [Segment], scalars: &mut [Scalar], f: impl Fn(&mut Segment, &mut [Scalar]) + Sync) {
    let mut parts = Vec::with_capacity(segments.len());
    let mut rest = scalars;
    for segment in segments {
        let (part, others) = rest.split_at_mut(segment.order.len());
        parts.push((segment, part));
        rest = others;
    }
    pool::for_each_chunk(&mut parts, 1, |_, part| {
        let (segment, scalars) = &mut part[0];
        f(segment, scalars);
    });
}

/// The sum of the segments' terms. Gives the lanes back.
fn sum<C: AffineCurve>(
    bases: &[C],
    segments: &[Segment],
    mut lanes: Vec<Lane<C>>,
    numbers: &(impl Numbers + Sync),
    scratch: &mut Reservation,
) -> C::Curve {
    let mut lengths = [0; NUMBER_BITS + 1];
    for segment in segments {
        for (sum, count) in lengths.iter_mut().zip(&*segment.lengths) {
            *sum += *count as usize;
        }
    }
    let threads = lanes.len();
    let schedule = Schedule::cheapest(&lengths, max_window_bits(bases.len(), threads), threads);
    let next_task = AtomicUsize::new(0);
    pool::for_each_chunk(&mut lanes, 1, |_, lane| {
        let lane = &mut lane[0];
        while let Some(task) = schedule.task(next_task.fetch_add(1, Ordering::Relaxed)) {
            lane.start(schedule.window_bits);
            let first = task.window * schedule.window_bits;
            let part = task.part * segments.len() / task.parts..(task.part + 1) * segments.len() / task.parts;
            for segment in &segments[part] {
                for &place in segment.places_reaching(first, numbers) {
                    let number = numbers.number((place >> 1) as usize, place & 1 == 1);
                    lane.add(digit(&number, first, schedule.window_bits), place, bases);
                }
            }
            let sum = lane.finish(bases);
            lane.results.push((task.window, sum));
        }
    });
    let sum = sum_of_windows(&lanes, &schedule);
    lanes.into_iter().for_each(|lane| lane.release(scratch));
    sum
}

/// Horner's rule over the windows, each the sum of its parts.
fn sum_of_windows<C: AffineCurve>(lanes: &[Lane<C>], schedule: &Schedule) -> C::Curve {
    let mut windows = vec![C::Curve::identity(); schedule.windows];
    for (window, sum) in lanes.iter().flat_map(|lane| &lane.results) {
        windows[*window] += sum;
    }
    let sum = windows.iter().rev().fold(C::Curve::identity(), |mut total, window| {
        for _ in 0..schedule.window_bits {
            total = total.double();
        }
        total + window
    });
    windows.fill(C::Curve::identity());
    zeroize::optimization_barrier(&windows);
    sum
}

/// A piece of the terms, by their places: those of long numbers from the front, of short ones from the back in order of length, longest
/// last.
struct Segment {
    first: usize,
    order: ScratchVec<Place>,
    long: usize,
    short: usize,
    /// How many numbers have each length.
    lengths: ScratchVec<u32>,
}

fn segments(n: usize, threads: usize, scratch: &mut Reservation) -> Result<Vec<Segment>, BackendError> {
    let count = segment_count(n, threads);
    (0..count)
        .map(|i| {
            let (first, end) = (i * n / count, (i + 1) * n / count);
            Ok(Segment {
                first,
                order: ScratchVec::filled(scratch, "msm", end - first, 0)?,
                long: 0,
                short: 0,
                lengths: ScratchVec::filled(scratch, "msm", NUMBER_BITS + 1, 0)?,
            })
        })
        .collect()
}

impl Segment {
    /// Which terms are its.
    fn range(&self) -> Range<usize> {
        self.first..self.first + self.order.len()
    }

    /// Orders its terms, which have these bases and scalars.
    fn fill<C: AffineCurve>(&mut self, bases: &[C], mut numbers: impl Numbers) {
        let len = self.order.len();
        for (i, base) in bases.iter().enumerate() {
            let (number, negative) = numbers.signed(i);
            let length = bit_length(&number);
            if length == 0 || base.is_infinity() {
                continue;
            }
            numbers.keep(i, &number);
            let place = ((self.first + i) as Place) << 1 | Place::from(negative);
            self.lengths[length] += 1;
            if length > SHORT_BITS {
                self.order[self.long] = place;
                self.long += 1;
            } else {
                self.short += 1;
                self.order[len - self.short] = place;
            }
        }
        let first = self.first;
        let length = |place: &Place| bit_length(&numbers.number((place >> 1) as usize - first, place & 1 == 1));
        let short = &mut self.order[len - self.short..];
        if !short.is_sorted_by_key(length) {
            short.sort_unstable_by_key(length);
        }
    }

    /// Makes scalars of the numbers of its terms again.
    fn undo(&self, scalars: &mut [Scalar]) {
        let (long, short) = (&self.order[..self.long], &self.order[self.order.len() - self.short..]);
        for place in long.iter().chain(short) {
            let scalar = &mut scalars[(place >> 1) as usize - self.first];
            to_scalar(scalar);
            if place & 1 == 1 {
                *scalar = -*scalar;
            }
        }
    }

    /// The terms that may have a digit at bit `first` or above: a carry reaches one bit beyond the number.
    fn places_reaching(&self, first: usize, numbers: &impl Numbers) -> impl Iterator<Item = &Place> {
        let long = if first <= NUMBER_BITS { &self.order[..self.long] } else { &[] };
        let short = &self.order[self.order.len() - self.short..];
        let length = |place: &Place| bit_length(&numbers.number((place >> 1) as usize, place & 1 == 1));
        let too_short = short.partition_point(|place| length(place) < first);
        long.iter().chain(&short[too_short..])
    }

    fn release(self, scratch: &mut Reservation) {
        self.order.release(scratch);
        self.lengths.release(scratch);
    }
}

/// How the work is cut into tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Schedule {
    window_bits: usize,
    windows: usize,
    /// How many tasks share a window.
    parts: usize,
    /// How many tasks share the lowest window, in which short numbers have their only digit.
    lowest_parts: usize,
}

/// One window of one part of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Task {
    window: usize,
    part: usize,
    parts: usize,
}

impl Schedule {
    /// The schedule that ends first, additions being all that costs time.
    fn cheapest(lengths: &[usize; NUMBER_BITS + 1], max_window_bits: usize, threads: usize) -> Self {
        let longest = lengths.iter().rposition(|count| *count > 0).unwrap_or(0);
        // How many numbers have each length or more.
        let mut reaching = *lengths;
        for length in (0..NUMBER_BITS).rev() {
            reaching[length] += reaching[length + 1];
        }
        let reaching = &reaching;
        let schedules = (1..=max_window_bits).flat_map(|window_bits| {
            let windows = digit_count(longest, window_bits);
            let digits = move |window: usize| reaching[(window * window_bits).min(longest)];
            let (lowest, above) = (digits(0), digits(1.min(windows - 1)));
            (1..=threads).map(move |parts| {
                let lowest_parts = (lowest * parts).div_ceil(above.max(1)).clamp(parts, 4 * threads);
                let schedule = Self { window_bits, windows, parts, lowest_parts };
                let bucket_additions = buckets::additions_of_sum(window_bits);
                let tasks = schedule.tasks();
                // What all threads do together, and what the last one does alone while the others have run out of tasks.
                let additions = (0..windows).map(digits).sum::<usize>() + tasks * bucket_additions;
                let largest_task = (lowest / lowest_parts).max(above / parts) + bucket_additions;
                let idle = (tasks.div_ceil(threads) * threads - tasks) * largest_task;
                (additions + idle, schedule)
            })
        });
        schedules
            .min_by_key(|(cost, _)| *cost)
            .map_or_else(|| Self { window_bits: 1, windows: 1, parts: 1, lowest_parts: 1 }, |(_, schedule)| schedule)
    }

    fn tasks(&self) -> usize {
        self.lowest_parts + (self.windows - 1) * self.parts
    }

    /// The lowest window's tasks come first: they may be the largest.
    fn task(&self, index: usize) -> Option<Task> {
        if index < self.lowest_parts {
            return Some(Task { window: 0, part: index, parts: self.lowest_parts });
        }
        let above = index - self.lowest_parts;
        let window = 1 + above / self.parts;
        (window < self.windows).then_some(Task { window, part: above % self.parts, parts: self.parts })
    }
}
