//! Heap profiles: who allocated what is in use now, as jemalloc samples it, as pprof and as a flame graph.
//!
//! jemalloc must be the program's allocator, built with profiling (the feature `heap-profiles` does that), and started with
//! `prof:true` in its configuration, for example by `_RJEM_MALLOC_CONF=prof:true`. Stacks are resolved in this process, so its
//! debug information should be there.

use std::fs::{self, DirBuilder, File};
use std::io::BufReader;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use pprof_util::{FlamegraphOptions, StackProfile};

use crate::sample::allocator::Jemalloc;

/// What is in use now, as a gzipped profile for pprof.
///
/// # Errors
///
/// In words: what is missing.
pub fn pprof() -> Result<Vec<u8>, String> {
    Ok(profile()?.to_pprof(("inuse_space", "bytes"), ("space", "bytes"), None))
}

/// The same as a flame graph: a picture in SVG.
///
/// # Errors
///
/// In words: what is missing.
pub fn flame_graph() -> Result<Vec<u8>, String> {
    let mut options = FlamegraphOptions::default();
    options.title = "Heap in use".to_owned();
    options.count_name = "bytes".to_owned();
    profile()?.to_flamegraph(&mut options).map_err(|error| error.to_string())
}

/// Whether profiles can be made.
///
/// # Errors
///
/// In words: what is missing.
pub fn check() -> Result<(), String> {
    let jemalloc = Jemalloc::if_in_use().ok_or("jemalloc is not this program's allocator")?;
    if jemalloc.is_profiling() {
        return Ok(());
    }
    Err("the heap is not profiled; start the program with _RJEM_MALLOC_CONF=prof:true".to_owned())
}

fn profile() -> Result<StackProfile, String> {
    check()?;
    let jemalloc = Jemalloc::if_in_use().ok_or("jemalloc is not this program's allocator")?;
    let folder = Private::new()?;
    let path = folder.0.join("heap");
    jemalloc.dump_profile(&path)?;
    let file = File::open(&path).map_err(|error| error.to_string())?;
    let mappings = mappings::MAPPINGS.as_deref();
    pprof_util::parse_jeheap(BufReader::new(file), mappings).map_err(|error| error.to_string())
}

/// A folder that nobody else can look into, gone when it is dropped: jemalloc makes its file readable for all.
struct Private(PathBuf);

impl Private {
    fn new() -> Result<Private, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("plimsoll-heap-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Private(path))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // Whatever is left there is nobody's.
        let _ = fs::remove_dir_all(&self.0);
    }
}
