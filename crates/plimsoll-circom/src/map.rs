//! A file in memory without being read into memory.
//!
//! Its pages come when they are looked at, and count as the process's resident memory until they are released. Readers look at one
//! window after the other and release each ([`Pages`]), so that a mapped file of any size costs no more than a window and what the
//! kernel maps around it: since Linux 6.18 all of a folio, which is up to 2 MiB, when one page of it is looked at.
//!
//! Whoever needs a copy of a window anyway has it read ([`Pages::copy`]), which maps nothing.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::{Advice, Mmap, UncheckedAdvice};

/// What can be told that a part of a file is no longer looked at.
pub trait Pages: Sync + std::fmt::Debug {
    /// The bytes in `range` have been read. They may be looked at again, at the price of fetching them again.
    fn release(&self, range: Range<usize>);

    /// Copies what `bytes`, all of the file, have from `start` on.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// When there are not as many.
    fn copy(&self, bytes: &[u8], start: usize, out: &mut [u8]) -> io::Result<()> {
        let range = start..start + out.len();
        out.copy_from_slice(&bytes[range.clone()]);
        self.release(range);
        Ok(())
    }
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
    file: File,
}

/// The largest folio of a file's pages, and what it is aligned to.
const FOLIO_BYTES: usize = 2 << 20;

impl MappedFile {
    /// Maps a regular file for reading.
    ///
    /// Nobody may shorten the file while it is looked at in the map: reading beyond its new end would end the process (SIGBUS). What
    /// is copied ([`Pages::copy`]) cannot do that.
    ///
    /// # Errors
    /// What the system says, and that it is no regular file: a pipe or a device cannot be mapped.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Asked before it is opened, because opening a pipe waits for its other end.
        if !path.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file; copy what is in it to a file"));
        }
        let file = File::open(path)?;
        // SAFETY: the bytes are only ever read as bytes. A file that somebody changes meanwhile gives other bytes from one look to
        // the next, and every reader takes each byte once, from a copy, or holds no conclusion over two looks: what it finds
        // is checked as everything in files is. (Strictly, memory that changes behind a shared reference is outside of what Rust
        // promises; there is no way to map a file without that.) That it is not shortened is the caller's part, as said above.
        let map = unsafe { Mmap::map(&file)? };
        if !map.is_empty() {
            // A hint only: without it reading is slower.
            let _ = map.advise(Advice::Sequential);
        }
        Ok(Self { map, file })
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
        // Whole folios: looking at the end of one may have brought back what was released at its start.
        let start = range.start / FOLIO_BYTES * FOLIO_BYTES;
        let range = start..range.end.next_multiple_of(FOLIO_BYTES).min(self.map.len());
        // SAFETY: the mapping is of a file and never written to, so that its pages hold again what they held when they are next
        // looked at.
        let released = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
        // A kernel that does not take the hint keeps the pages: more is resident, nothing is wrong.
        let _ = released;
    }

    fn copy(&self, bytes: &[u8], start: usize, out: &mut [u8]) -> io::Result<()> {
        assert!(start.checked_add(out.len()).is_some_and(|end| end <= bytes.len()), "so many bytes are there");
        self.file.read_exact_at(out, start as u64)
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

    /// What of this file's mapping is resident, as the kernel counts it.
    #[cfg(target_os = "linux")]
    fn resident_kib(name: &str) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
        let mapping = smaps.split_once(name).expect("mapped").1;
        let rss = mapping.lines().find_map(|line| line.strip_prefix("Rss:")).expect("counted");
        rss.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn windows_that_were_released_or_copied_are_not_resident() {
        let name = format!("plimsoll-windows-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let bytes: Vec<u8> = (0..4 << 20_u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).expect("a temporary file");
        let map = MappedFile::open(&path).expect("mapped");
        let window = 300_000;
        let mut copy = vec![0; window];
        for start in (0..bytes.len() - window).step_by(window) {
            map.copy(&map, start, &mut copy).expect("read");
            assert!(copy == bytes[start..start + window]);
        }
        assert_eq!(resident_kib(&name), 0, "nothing was looked at");
        for start in (0..bytes.len()).step_by(window) {
            let range = start..(start + window).min(bytes.len());
            assert!(map[range.clone()] == bytes[range.clone()]);
            map.release(range);
        }
        assert_eq!(resident_kib(&name), 0, "all was released");
        std::fs::remove_file(&path).expect("there");
    }

    #[test]
    fn a_file_that_is_cut_short_is_unreadable_and_ends_nobody() {
        use crate::ReadError;
        use crate::r1cs::R1csFile;
        use crate::wtns::WtnsFile;
        use crate::zkey::ZkeyFile;
        use blstrs::Scalar;

        let cut = |name: &str, bytes: &[u8], read: &dyn Fn(&MappedFile, &dyn Fn()) -> ReadError| {
            let path = std::env::temp_dir().join(format!("plimsoll-cut-{name}-{}", std::process::id()));
            std::fs::write(&path, bytes).expect("a temporary file");
            let map = MappedFile::open(&path).expect("mapped");
            let shorten =
                || File::options().write(true).open(&path).and_then(|file| file.set_len(0)).expect("shortened");
            let error = read(&map, &shorten);
            std::fs::remove_file(&path).expect("there");
            assert_eq!(error, ReadError::Unreadable { kind: io::ErrorKind::UnexpectedEof }, "{name}");
        };
        let wtns = include_bytes!("../tests/fixtures/small.wtns");
        let r1cs = include_bytes!("../tests/fixtures/small.r1cs");
        let zkey = include_bytes!("../tests/fixtures/small.zkey");
        cut("wtns", wtns, &|map, shorten| {
            let file = WtnsFile::parse_in(map, map).expect("sound");
            shorten();
            file.read(0, &mut [Scalar::from(0); 7]).expect_err("cut short")
        });
        cut("header", wtns, &|map, shorten| {
            shorten();
            WtnsFile::parse_in(map, map).expect_err("cut short")
        });
        cut("r1cs", r1cs, &|map, shorten| {
            let file = R1csFile::parse_in(map, map).expect("sound");
            shorten();
            assert_eq!(file.label(0), None);
            file.for_each_term::<ReadError>(|_, _, _, _| Ok(())).expect_err("cut short")
        });
        cut("zkey", zkey, &|map, shorten| {
            let file = ZkeyFile::parse_in(map, map).expect("sound");
            let shape = file.shape(None, map).expect("sound");
            shorten();
            assert!(file.shape(None, map).is_err());
            assert!(file.read_verifying_key(map).is_err());
            file.read_key(&shape, map).expect_err("cut short")
        });
    }

    #[test]
    fn only_a_regular_file_is_mapped() {
        assert!(MappedFile::open(Path::new("/")).is_err());
        assert!(MappedFile::open(Path::new("/dev/zero")).is_err());
    }
}
