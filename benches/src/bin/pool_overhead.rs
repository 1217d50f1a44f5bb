//! Task overhead of the pool against rayon's, in the same run: `cargo run --release -p plimsoll-benches --bin
//! pool_overhead`.
//!
//! Each case runs alternately on both, so that whatever else the machine does hits both alike. The table shows the
//! best times and their ratio, which other load disturbs least, and the ratio of the medians.

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll::pool::{self, Pool, PoolConfig};

const ROUNDS: usize = 301;

/// The same work, forked through either executor.
struct Case {
    name: &'static str,
    ours: fn(),
    rayons: fn(),
}

const CASES: [Case; 4] = [
    Case { name: "join: fib(20)", ours: || _ = black_box(fib(20)), rayons: || _ = black_box(fib_rayon(20)) },
    Case {
        name: "join: quicksort of 2^13",
        ours: || quicksort(&mut shuffled(1 << 13)),
        rayons: || quicksort_rayon(&mut shuffled(1 << 13)),
    },
    Case { name: "scope: 2^12 spawns", ours: spawns, rayons: spawns_rayon },
    Case { name: "parallel for: 2^16 in chunks of 64", ours: chunks, rayons: chunks_rayon },
];

fn main() {
    println!("{:<36} {:>7} {:>12} {:>12} {:>7} {:>7}", "case", "threads", "plimsoll", "rayon", "best", "median");
    for threads in [1, 2] {
        let ours = Pool::new(PoolConfig { threads, ..PoolConfig::default() }).expect("threads");
        let rayons = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        for case in &CASES {
            let (mut our_times, mut rayon_times) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                our_times.push(timed(|| ours.install(case.ours)));
                rayon_times.push(timed(|| rayons.install(case.rayons)));
            }
            our_times.sort_unstable();
            rayon_times.sort_unstable();
            let (ours, rayons) = (our_times[0], rayon_times[0]);
            let [best, median] = [0, ROUNDS / 2].map(|at| our_times[at].as_secs_f64() / rayon_times[at].as_secs_f64());
            println!("{:<36} {threads:>7} {ours:>12.2?} {rayons:>12.2?} {best:>7.2} {median:>7.2}", case.name);
        }
    }
}

fn timed(run: impl FnOnce()) -> Duration {
    let started = Instant::now();
    run();
    started.elapsed()
}

fn fib(n: u32) -> u32 {
    if n < 2 {
        return n;
    }
    let (a, b) = pool::join(|| fib(n - 1), || fib(n - 2));
    a + b
}

fn fib_rayon(n: u32) -> u32 {
    if n < 2 {
        return n;
    }
    let (a, b) = rayon::join(|| fib_rayon(n - 1), || fib_rayon(n - 2));
    a + b
}

fn shuffled(len: usize) -> Vec<u64> {
    let mut state = 1u64;
    let step = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state
    };
    std::iter::repeat_with(step).take(len).collect()
}

fn quicksort(data: &mut [u64]) {
    if data.len() > 1 {
        let (left, right) = partition(data);
        pool::join(|| quicksort(left), || quicksort(right));
    }
}

fn quicksort_rayon(data: &mut [u64]) {
    if data.len() > 1 {
        let (left, right) = partition(data);
        rayon::join(|| quicksort_rayon(left), || quicksort_rayon(right));
    }
}

/// Moves the last element to its place; what is smaller is left of it, the rest right.
fn partition(data: &mut [u64]) -> (&mut [u64], &mut [u64]) {
    let last = data.len() - 1;
    let mut place = 0;
    for i in 0..last {
        if data[i] < data[last] {
            data.swap(i, place);
            place += 1;
        }
    }
    data.swap(place, last);
    let (left, right) = data.split_at_mut(place);
    (left, &mut right[1..])
}

fn spawns() {
    pool::scope(|s| (0..1 << 12).for_each(|i| s.spawn(move || _ = black_box(i))));
}

fn spawns_rayon() {
    rayon::scope(|s| (0..1 << 12).for_each(|i| s.spawn(move |_| _ = black_box(i))));
}

fn add_one(chunk: &mut [u64]) {
    chunk.iter_mut().for_each(|x| *x = x.wrapping_add(1));
}

fn chunks() {
    let mut data = vec![0u64; 1 << 16];
    pool::for_each_chunk(&mut data, 64, |_, chunk| add_one(chunk));
    black_box(data);
}

fn chunks_rayon() {
    use rayon::iter::ParallelIterator;
    use rayon::slice::ParallelSliceMut;
    let mut data = vec![0u64; 1 << 16];
    data.par_chunks_mut(64).for_each(add_one);
    black_box(data);
}
