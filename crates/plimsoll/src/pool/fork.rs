//! Work that a stage forks: [`join`], [`for_each_chunk`], [`map_indices`].

use super::job;
use super::worker::Worker;
use crate::contain::{contain, discard_each};

/// How many threads can work on what the current stage forks; 1 outside a pool.
pub fn current_threads() -> usize {
    Worker::with_current(|worker| worker.map_or(1, Worker::threads))
}

/// Runs both closures, possibly in parallel, and returns both results.
///
/// The calling worker runs `a` and lets `b` be stolen meanwhile.
///
/// # Panics
///
/// With the panic of `a`, or else of `b`, after both have ended. If `a` panics before `b` was stolen, `b` does not run.
#[inline]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    Worker::with_current(|worker| match worker {
        Some(worker) => job::join(worker, a, b),
        None => job::one_after_the_other(a, b),
    })
}

/// Calls `f(offset, chunk)` for each chunk of `chunk_len` elements (the last may be shorter), possibly in parallel.
///
/// # Panics
///
/// If `chunk_len` is 0, and with the panic of a call of `f`; then other chunks may be left out.
pub fn for_each_chunk<T, F>(data: &mut [T], chunk_len: usize, f: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    assert_ne!(chunk_len, 0, "a chunk needs at least one element");
    // Several leaves for each thread even out chunks of unequal cost; more would only add overhead.
    let leaves = if current_threads() == 1 { 1 } else { current_threads() * 16 };
    let chunks_a_leaf = data.len().div_ceil(chunk_len).div_ceil(leaves).max(1);
    halve(data, 0, chunk_len, chunks_a_leaf, &f);
}

fn halve<T, F>(data: &mut [T], offset: usize, chunk_len: usize, chunks_a_leaf: usize, f: &F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    let chunks = data.len().div_ceil(chunk_len);
    if chunks <= chunks_a_leaf {
        for (index, chunk) in data.chunks_mut(chunk_len).enumerate() {
            f(offset + index * chunk_len, chunk);
        }
        return;
    }
    let middle = chunks / 2 * chunk_len;
    let (left, right) = data.split_at_mut(middle);
    join(
        || halve(left, offset, chunk_len, chunks_a_leaf, f),
        || halve(right, offset + middle, chunk_len, chunks_a_leaf, f),
    );
}

/// Calls `f(i)` for each `i` in `0..n`, possibly in parallel, and returns the results in order.
///
/// # Panics
///
/// With the panic of a call of `f`; then other indices may be left out.
pub fn map_indices<R, F>(n: usize, f: F) -> Vec<R>
where
    R: Send,
    F: Fn(usize) -> R + Sync,
{
    let mut results: Vec<Option<R>> = std::iter::repeat_with(|| None).take(n).collect();
    let made = contain(|| for_each_chunk(&mut results, 1, |index, slot| slot[0] = Some(f(index))));
    if let Err(panic) = made {
        // What is left beside a panic is dropped before it goes on.
        discard_each(results);
        panic.resume();
    }
    results.into_iter().map(|result| result.expect("every index was visited")).collect()
}
