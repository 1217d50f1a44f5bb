//! Task overhead of the pool against rayon's and tokio's, in the same run: `cargo run --release -p plimsoll-benches --bin
//! pool_overhead`.
//!
//! Each case runs on all in turn, so that whatever else the machine does hits all alike. The table shows the best times
//! and the ratio of ours to each peer's best, which other load disturbs least, and the ratio of the medians to rayon's.
//! Tokio has no fork and join for borrowed closures: there the same number of closures is spawned and awaited. A word behind
//! the command picks the cases that have it in their names (`-- fib`).
//!
//! With two threads a case has two modes, for every executor: either the second worker gets a core in time and steals, or the
//! first has done all by then. Empty closures are done sooner alone, so on a machine with anything else to do the medians say
//! which mode came more often, and the best times may be of different modes. `chrt -f 1` before the command gives it the cores
//! for the few seconds that it takes; then the medians are of the same mode.

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll::pool::{self, Pool, PoolConfig};

const ROUNDS: usize = 301;

/// The same work, forked through each executor.
struct Case {
    name: &'static str,
    ours: fn(),
    rayons: fn(),
    tokios: Option<fn(&tokio::runtime::Runtime)>,
}

const CASES: [Case; 6] = [
    Case {
        name: "join: fib(20)",
        ours: || _ = black_box(fib(20)),
        rayons: || _ = black_box(fib_rayon(20)),
        tokios: None,
    },
    Case {
        name: "join: quicksort of 2^13",
        ours: || quicksort(&mut shuffled(1 << 13)),
        rayons: || quicksort_rayon(&mut shuffled(1 << 13)),
        tokios: None,
    },
    Case { name: "scope: 2^12 spawns", ours: spawns, rayons: spawns_rayon, tokios: Some(spawns_tokio) },
    Case { name: "scope: 2^6 spawns of 2^6", ours: nested, rayons: nested_rayon, tokios: Some(nested_tokio) },
    Case { name: "parallel for: 2^16 in chunks of 64", ours: chunks, rayons: chunks_rayon, tokios: None },
    Case { name: "parallel for: 2^12 in chunks of 1", ours: ones, rayons: ones_rayon, tokios: None },
];

fn main() {
    let columns = ["plimsoll", "rayon", "tokio", "/ rayon", "median", "/ tokio"];
    print!("| {:<34} | threads |", "case");
    columns.iter().for_each(|column| print!(" {column:>9} |"));
    println!("\n|---|--:|--:|--:|--:|--:|--:|--:|");
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for threads in [1, 2] {
        let ours = Pool::new(PoolConfig { threads, ..PoolConfig::default() }).expect("threads");
        let rayons = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let tokios = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().expect("threads");
        for case in CASES.iter().filter(|case| case.name.contains(&wanted)) {
            let (mut our_times, mut rayon_times, mut tokio_times) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                our_times.push(timed(|| ours.install(case.ours)));
                rayon_times.push(timed(|| rayons.install(case.rayons)));
                if let Some(run) = case.tokios {
                    tokio_times.push(timed(|| run(&tokios)));
                }
            }
            let sorted = |times: &mut Vec<Duration>| {
                times.sort_unstable();
                [0, times.len() / 2].map(|at| times.get(at).copied())
            };
            let [ours, rayons, tokios] = [&mut our_times, &mut rayon_times, &mut tokio_times].map(sorted);
            let time = |time: Option<Duration>| time.map_or(String::new(), |time| format!("{time:.1?}"));
            let ratio = |of: Option<Duration>, to: Option<Duration>| match (of, to) {
                (Some(of), Some(to)) => format!("{:.2}", of.as_secs_f64() / to.as_secs_f64()),
                _ => String::new(),
            };
            let cells = [
                time(ours[0]),
                time(rayons[0]),
                time(tokios[0]),
                ratio(ours[0], rayons[0]),
                ratio(ours[1], rayons[1]),
                ratio(ours[0], tokios[0]),
            ];
            print!("| {:<34} | {threads:>7} |", case.name);
            cells.iter().for_each(|cell| print!(" {cell:>9} |"));
            println!();
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

async fn spawn_all(n: usize) {
    let tasks: Vec<_> = (0..n).map(|i| tokio::spawn(async move { black_box(i) })).collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

fn spawns_tokio(on: &tokio::runtime::Runtime) {
    // From a worker, as the others do: spawning from outside costs more.
    on.block_on(on.spawn(spawn_all(1 << 12))).expect("no panic");
}

fn nested() {
    pool::scope(|s| {
        (0..1 << 6).for_each(|_| s.spawn(|| (0..1 << 6).for_each(|i| s.spawn(move || _ = black_box(i)))));
    });
}

fn nested_rayon() {
    rayon::scope(|s| {
        (0..1 << 6).for_each(|_| s.spawn(|s| (0..1 << 6).for_each(|i| s.spawn(move |_| _ = black_box(i)))));
    });
}

fn nested_tokio(on: &tokio::runtime::Runtime) {
    let all = async {
        let tasks: Vec<_> = (0..1 << 6).map(|_| tokio::spawn(spawn_all(1 << 6))).collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    };
    on.block_on(on.spawn(all)).expect("no panic");
}

fn ones() {
    let mut data = vec![0u64; 1 << 12];
    pool::for_each_chunk(&mut data, 1, |_, chunk| add_one(chunk));
    black_box(data);
}

fn ones_rayon() {
    use rayon::iter::ParallelIterator;
    use rayon::slice::ParallelSliceMut;
    let mut data = vec![0u64; 1 << 12];
    data.par_chunks_mut(1).for_each(add_one);
    black_box(data);
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
