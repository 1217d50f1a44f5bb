//! The digest of what a key was loaded from, by which one that was checked before is known again.

use std::fmt;

use sha2::{Digest, Sha256};

/// SHA-256 of the sections that a key was loaded from: exactly of the bytes that were used, which matters where somebody can
/// write to the file meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    pub(super) fn start() -> Sha256 {
        Sha256::new_with_prefix(b"plimsoll zkey sections 1\0")
    }

    pub(super) fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
