//! What operations allocate by themselves.

use crate::compute::Group2;
use crate::devices::Place;

/// What multiplications allocate, as it was measured, and what a backend estimates for itself.
pub(crate) fn msm_bytes<G: Group2>(n: u64, c: u32) -> (u64, u64) {
    let (windows, point) = (255_u64.div_ceil(u64::from(c)), G::PROJECTIVE as u64);
    let buckets = (point * windows) << c;
    let sorting = 24_116 * n * windows / 1000 + ((12 * windows) << c);
    let scratch = sorting.max(3 * buckets + ((2 * point * windows) << c.div_ceil(2)));
    (scratch, 28 * n * windows + 4 * buckets + n * (32 + G::AFFINE as u64))
}

/// What the processor allocates for a multiplication, as its sources say: each thread its own buckets and a bit for each, and two
/// points for each run of them.
pub(crate) fn host_msm_bytes<G: Group2>(c: u32, threads: u64) -> u64 {
    let (windows, point) = (255_u64.div_ceil(u64::from(c)), G::PROJECTIVE as u64);
    let half = 1_u64 << (c - 1);
    let buckets = (windows - 1) * half + (1 << (255 - (windows - 1) * u64::from(c)));
    let run =
        (buckets / threads).checked_ilog2().and_then(|log| log.checked_sub(4)).map_or(half, |log| half.min(1 << log));
    threads * (buckets * point + buckets.div_ceil(8)) + buckets.div_ceil(run) * 2 * point
}

/// The processor's roots: a list, and a hash table with each of them as a key.
const HOST_ROOT: u64 = 32 + 64 + 8;

/// What a domain takes.
pub(crate) fn domain_bytes(place: Place, log_size: u32) -> u64 {
    if place > 0 { 32 * ((1 << log_size) + 1) } else { HOST_ROOT << log_size }
}
