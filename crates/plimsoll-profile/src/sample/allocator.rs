//! What the allocator holds: handed out, kept in pages, kept for later.
//!
//! ```text
//! allocated  ≤  active  ≤  resident  ≤  mapped
//!   bytes that the program has
//!               pages in which it has some: the difference is fragmentation
//!                          and pages that are free and still in memory (dirty), and the allocator's own: retention
//!                                       and addresses without memory
//! ```
//!
//! jemalloc tells all of it, with the feature `jemalloc`. glibc tells what is handed out and what it keeps free, not how much
//! of that is in memory. Others tell nothing.

use std::fmt;

use serde::Serialize;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub use super::glibc::Glibc;
#[cfg(feature = "jemalloc")]
pub use super::jemalloc::Jemalloc;

/// What an allocator holds. `None`: it does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AllocatorMemory {
    /// Which allocator: `jemalloc`, `glibc`.
    pub name: String,
    /// Handed out to the program.
    pub allocated_bytes: u64,
    /// In pages of which the program has at least a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_bytes: Option<u64>,
    /// In memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Addresses with or without memory behind them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapped_bytes: Option<u64>,
    /// Addresses kept for later, without memory behind them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retained_bytes: Option<u64>,
    /// The allocator's own books.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_bytes: Option<u64>,
    /// Free pages that are still in memory, and would go with a purge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_bytes: Option<u64>,
    /// Free pages that the kernel may take, but has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub muzzy_bytes: Option<u64>,
    /// Free inside the allocator, in memory or not: what glibc tells instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// How many arenas there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arenas: Option<u64>,
}

impl AllocatorMemory {
    /// Free pages that it keeps in memory; `None` where it does not tell.
    pub fn kept_bytes(&self) -> Option<u64> {
        let (resident, active) = (self.resident_bytes?, self.active_bytes?);
        Some(resident.saturating_sub(active).saturating_sub(self.metadata_bytes.unwrap_or(0)))
    }

    /// What is lost in pages of which the program has only a part; `None` where it does not tell.
    pub fn fragmented_bytes(&self) -> Option<u64> {
        Some(self.active_bytes?.saturating_sub(self.allocated_bytes))
    }
}

/// An allocator that can be asked what it holds.
pub trait Allocator: fmt::Debug + Send + Sync {
    /// Its name, as in [`AllocatorMemory::name`].
    fn name(&self) -> &'static str;

    /// What it holds now; `None` if it cannot tell.
    fn read(&self) -> Option<AllocatorMemory>;

    /// Gives free pages back to the kernel now. Says whether it could be asked to.
    fn purge(&self) -> bool;

    /// Settings that decide how much it keeps, by name, as it says them.
    fn settings(&self) -> Vec<(&'static str, String)>;
}

/// The allocator of this process, if it is one that tells something.
pub fn detect() -> Option<Box<dyn Allocator>> {
    #[cfg(feature = "jemalloc")]
    if let Some(jemalloc) = Jemalloc::if_in_use() {
        return Some(Box::new(jemalloc));
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if let Some(glibc) = Glibc::if_in_use() {
        return Some(Box::new(glibc));
    }
    None
}
