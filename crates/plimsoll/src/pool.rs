//! Fork-join inside a stage: free functions that use the current worker's pool, and run inline on any other thread.
//! (First version: everything inline. The work-stealing pool replaces the bodies, not the signatures.)

/// How many threads can work on what the current stage forks; 1 outside a pool.
pub fn current_threads() -> usize {
    1
}

/// Runs both closures, possibly in parallel, and returns both results.
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    (a(), b())
}

/// Calls `f(offset, chunk)` for each chunk of `chunk_len` elements (the last may be shorter).
pub fn for_each_chunk<T, F>(data: &mut [T], chunk_len: usize, f: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    for (index, chunk) in data.chunks_mut(chunk_len).enumerate() {
        f(index * chunk_len, chunk);
    }
}

/// Calls `f(i)` for each `i` in `0..n`, possibly in parallel, and returns the results in order.
pub fn map_indices<R, F>(n: usize, f: F) -> Vec<R>
where
    R: Send,
    F: Fn(usize) -> R + Sync,
{
    (0..n).map(f).collect()
}
