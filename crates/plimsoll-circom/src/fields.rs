//! A cursor over bytes: numbers and slices that are there, or `None`.

/// A place in a slice.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    /// At the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// How many bytes were taken.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// The next `len` bytes, if there are as many; otherwise nothing is taken.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes[self.position..].get(..len)?;
        self.position += len;
        Some(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A 32-bit number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A 64-bit number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
