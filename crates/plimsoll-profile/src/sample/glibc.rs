//! The allocator of glibc: `mallinfo2` and `malloc_trim`.
//!
//! `unsafe` is here because both are C functions. `mallinfo2` is new in glibc 2.33 and is looked up at run time, so that this
//! builds and runs with older ones.

use std::ffi::c_void;
use std::mem;

use super::allocator::{Allocator, AllocatorMemory};

type Mallinfo2 = unsafe extern "C" fn() -> libc::mallinfo2;

/// glibc's allocator.
#[derive(Clone, Copy, Debug)]
pub struct Glibc(Mallinfo2);

impl Glibc {
    /// glibc's allocator, if what this process allocates comes from it.
    pub fn if_in_use() -> Option<Self> {
        // SAFETY: the name ends in a zero byte; the default handle is always valid.
        let address: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if address.is_null() {
            return None;
        }
        // SAFETY: the symbol of this name is glibc's function of this type; no other C library has it.
        let glibc = Self(unsafe { mem::transmute::<*mut c_void, Mallinfo2>(address) });
        // Too small to be mapped, too large to come from a thread's cache.
        let before = glibc.info().uordblks;
        let probe = std::hint::black_box(vec![0_u8; 64 << 10]);
        let used = glibc.info().uordblks.wrapping_sub(before) >= probe.len();
        drop(probe);
        used.then_some(glibc)
    }

    fn info(self) -> libc::mallinfo2 {
        // SAFETY: it takes nothing, returns a plain structure, and locks each arena while it reads it.
        unsafe { (self.0)() }
    }
}

impl Allocator for Glibc {
    fn name(&self) -> &'static str {
        "glibc"
    }

    fn read(&self) -> Option<AllocatorMemory> {
        let info = self.info();
        Some(AllocatorMemory {
            name: "glibc".to_owned(),
            allocated_bytes: (info.uordblks + info.hblkhd) as u64,
            mapped_bytes: Some((info.arena + info.hblkhd) as u64),
            free_bytes: Some(info.fordblks as u64),
            ..AllocatorMemory::default()
        })
    }

    fn purge(&self) -> bool {
        // SAFETY: it takes the bytes to leave at the top of the heap, and locks each arena while it trims it.
        unsafe { libc::malloc_trim(0) };
        true
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let variable = |name: &'static str| std::env::var(name).ok().map(|value| (name, value));
        ["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"]
            .into_iter()
            .filter_map(variable)
            .collect()
    }
}
