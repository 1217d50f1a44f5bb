//! A simulation takes no more memory for being long.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_sim::{End, Options, Workload, simulate};

/// Counts what is allocated now, and the most that ever was.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it passes everything on to the system's allocator, and only counts beside.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the same promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the same promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that a run of so many proofs allocates beyond what there was.
fn peak(workload: &Workload, proofs: u64) -> usize {
    let mut workload = workload.clone();
    workload.streams.iter_mut().for_each(|stream| stream.proofs = proofs);
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let outcome = simulate(&workload, Options::default());
    assert_eq!((outcome.end, outcome.proofs), (End::Done, proofs * workload.streams.len() as u64));
    MOST.load(Ordering::Relaxed) - before
}

#[test]
fn memory_does_not_grow_with_the_length_of_a_run() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/workloads/porep32.toml");
    let workload = Workload::read(&path).unwrap_or_else(|error| panic!("{error}"));
    // Whatever is only made once is made.
    peak(&workload, 2);
    let (short, long) = (peak(&workload, 20), peak(&workload, 400));
    println!("20 proofs: {short} bytes, 400 proofs: {long} bytes");
    assert!(long <= short + short / 4 + 4096, "20 proofs take {short} bytes, 400 take {long}");
}
