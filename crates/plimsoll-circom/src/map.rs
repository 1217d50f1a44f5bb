//! A file in memory without being read into memory.
//!
//! Its pages come when they are looked at, and count as the process's resident memory until they are released. Readers look at one
//! window after the other and release each ([`Pages`]), so that a mapped file of any size costs no more than a window.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::{Advice, Mmap, UncheckedAdvice};

/// What can be told that a part of a file is no longer looked at.
pub trait Pages: Sync + std::fmt::Debug {
    /// The bytes in `range` have been read. They may be looked at again, at the price of fetching them again.
    fn release(&self, range: Range<usize>);
}

/// Memory that stays anyway.
#[derive(Clone, Copy, Debug, Default)]
pub struct InMemory;

impl Pages for InMemory {
    fn release(&self, _range: Range<usize>) {}
}

/// A mapped file.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    /// Maps a regular file for reading.
    ///
    /// Nobody may shorten the file while it is mapped: reading beyond its new end would end the process (SIGBUS).
    ///
    /// # Errors
    /// What the system says, and that it is no regular file: a pipe or a device cannot be mapped.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Asked before it is opened, because opening a pipe waits for its other end.
        if !path.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file; copy what is in it to a file"));
        }
        let file = File::open(path)?;
        // SAFETY: the bytes are only ever read as bytes, and each is used once or compared with what a digest vouches for
        // (`zkey::load`), so that a file that somebody changes meanwhile gives other numbers, which are checked as
        // all numbers are. That it is not shortened is the caller's part, as said above.
        let map = unsafe { Mmap::map(&file)? };
        if !map.is_empty() {
            // A hint only: without it reading is slower.
            let _ = map.advise(Advice::Sequential);
        }
        Ok(Self { map })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl Pages for MappedFile {
    fn release(&self, range: Range<usize>) {
        if range.is_empty() || range.end > self.map.len() {
            return;
        }
        // SAFETY: the mapping is of a file and never written to, so that its pages hold again what they held when they are next
        // looked at.
        let released = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
        // A kernel that does not take the hint keeps the pages: more is resident, nothing is wrong.
        let _ = released;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_pages_are_the_same_again() {
        let path = std::env::temp_dir().join(format!("plimsoll-map-{}", std::process::id()));
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).expect("a temporary file");
        let map = MappedFile::open(&path).expect("mapped");
        std::fs::remove_file(&path).expect("there");
        assert!(map[..] == bytes[..]);
        for range in [0..bytes.len(), 5000..5001, 4095..8193, 7..7, 0..usize::MAX] {
            map.release(range);
            assert!(map[..] == bytes[..]);
        }
    }

    #[test]
    fn only_a_regular_file_is_mapped() {
        assert!(MappedFile::open(Path::new("/")).is_err());
        assert!(MappedFile::open(Path::new("/dev/zero")).is_err());
    }
}
