//! Multi-scalar multiplication by the bucket method, with signed digits and affine additions.
//!
//! 1. **Terms.** Every scalar becomes a number of at most 254 bits with a sign (−1 is as short as 1). Zeros and points at
//!    infinity are dropped. Short numbers stand apart from long ones and in order of length, so that a window never looks
//!    at a number that has no digit in it: a 0/1 witness costs one addition a term.
//! 2. **Plan.** The lengths' histogram gives the exact number of additions for each window width; the cheapest is taken.
//! 3. **Buckets.** A task is one window of one part of the terms; lanes (one a thread) take tasks from a counter and do
//!    each in their own buckets ([`super::buckets`]). Any distribution costs the same: a heavy bucket is a tree of
//!    additions like all others.
//! 4. **Sum** of the tasks' results, window by window. Which lane did a task does not matter to the result.

use std::sync::atomic::{AtomicUsize, Ordering};

use blstrs::Scalar;
use group::Group;
use plimsoll::{Reservation, pool};
use zeroize::Zeroize;

use super::buckets::{self, Lane};
use super::curve::AffineCurve;
use super::digits::{Limbs, bit_length, digit, digit_count, signed_limbs};
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

/// One term of the sum.
#[derive(Clone, Copy, Debug, Default)]
struct Term {
    number: Limbs,
    place: Place,
}

/// The scratch of one multiplication with `n` terms.
pub(super) fn scratch_bytes<C: AffineCurve>(n: usize, threads: usize) -> u64 {
    if n == 0 {
        return 0;
    }
    let sizes = buckets::Sizes::new(max_window_bits(n, threads), n);
    let segments = bytes_of::<Term>(n) + segment_count(n, threads) as u64 * bytes_of::<u32>(NUMBER_BITS + 1);
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
    let (n, threads) = (bases.len(), pool::current_threads());
    require_same_length("msm", n, scalars.len())?;
    require_scratch("msm", scratch, scratch_bytes::<C>(n, threads))?;
    if n >= MAX_TERMS {
        return Err(BackendError::TooLarge { operation: "msm", len: n, max: MAX_TERMS - 1 });
    }
    if n == 0 {
        return Ok(C::Curve::identity());
    }

    let mut segments = segments(n, threads, scratch)?;
    pool::for_each_chunk(&mut segments, 1, |_, segment| segment[0].fill(bases, scalars));
    let mut lengths = [0; NUMBER_BITS + 1];
    for segment in &segments {
        for (sum, count) in lengths.iter_mut().zip(&*segment.lengths) {
            *sum += *count as usize;
        }
    }

    let max_window_bits = max_window_bits(n, threads);
    let schedule = Schedule::cheapest(&lengths, max_window_bits, threads);
    let sizes = buckets::Sizes::new(max_window_bits, n);
    let mut lanes = (0..threads).map(|_| Lane::new(&sizes, scratch)).collect::<Result<Vec<Lane<C>>, _>>()?;
    let next_task = AtomicUsize::new(0);
    pool::for_each_chunk(&mut lanes, 1, |_, lane| {
        let lane = &mut lane[0];
        while let Some(task) = schedule.task(next_task.fetch_add(1, Ordering::Relaxed)) {
            lane.start(schedule.window_bits);
            for segment in
                &segments[task.part * segments.len() / task.parts..(task.part + 1) * segments.len() / task.parts]
            {
                for term in segment.terms_reaching(task.window * schedule.window_bits) {
                    let digit = digit(&term.number, task.window * schedule.window_bits, schedule.window_bits);
                    lane.add(digit, term.place, bases);
                }
            }
            let sum = lane.finish(bases);
            lane.results.push((task.window, sum));
        }
    });

    let sum = sum_of_windows(&lanes, &schedule);
    lanes.into_iter().for_each(|lane| lane.release(scratch));
    segments.into_iter().for_each(|segment| segment.release(scratch));
    Ok(sum)
}

/// Horner's rule over the windows, each the sum of its parts.
fn sum_of_windows<C: AffineCurve>(lanes: &[Lane<C>], schedule: &Schedule) -> C::Curve {
    let mut windows = vec![C::Curve::identity(); schedule.windows];
    for (window, sum) in lanes.iter().flat_map(|lane| &lane.results) {
        windows[*window] += sum;
    }
    windows.iter().rev().fold(C::Curve::identity(), |mut total, window| {
        for _ in 0..schedule.window_bits {
            total = total.double();
        }
        total + window
    })
}

/// A piece of the terms: long numbers from the front, short ones from the back in order of length, longest last.
struct Segment {
    first: usize,
    terms: ScratchVec<Term>,
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
                terms: ScratchVec::filled(scratch, "msm", end - first, Term::default())?,
                long: 0,
                short: 0,
                lengths: ScratchVec::filled(scratch, "msm", NUMBER_BITS + 1, 0)?,
            })
        })
        .collect()
}

impl Segment {
    fn fill<C: AffineCurve>(&mut self, bases: &[C], scalars: &[Scalar]) {
        let len = self.terms.len();
        for i in self.first..self.first + len {
            let (number, negative) = signed_limbs(&scalars[i]);
            let length = bit_length(&number);
            if length == 0 || bases[i].is_infinity() {
                continue;
            }
            let place = (i as Place) << 1 | Place::from(negative);
            self.lengths[length] += 1;
            if length > SHORT_BITS {
                self.terms[self.long] = Term { number, place };
                self.long += 1;
            } else {
                self.short += 1;
                self.terms[len - self.short] = Term { number, place };
            }
        }
        let short = &mut self.terms[len - self.short..];
        if !short.is_sorted_by_key(|term| bit_length(&term.number)) {
            short.sort_unstable_by_key(|term| bit_length(&term.number));
        }
    }

    /// The terms that may have a digit at bit `first` or above: a carry reaches one bit beyond the number.
    fn terms_reaching(&self, first: usize) -> impl Iterator<Item = &Term> {
        let long = if first <= NUMBER_BITS { &self.terms[..self.long] } else { &[] };
        let short = &self.terms[self.terms.len() - self.short..];
        let too_short = short.partition_point(|term| bit_length(&term.number) < first);
        long.iter().chain(&short[too_short..])
    }

    fn release(mut self, scratch: &mut Reservation) {
        // The numbers are the witness.
        self.terms.iter_mut().for_each(|term| term.number.zeroize());
        self.terms.release(scratch);
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
        let schedules = (1..=max_window_bits).flat_map(|window_bits| {
            let windows = digit_count(longest, window_bits);
            let digits = move |window: usize| -> usize { lengths[(window * window_bits).min(longest)..].iter().sum() };
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
