//! Keys whose points were checked before, known again by digest: `checked/` in the user's cache directory, an empty file each.

use std::fs;
use std::io;
use std::path::PathBuf;

use etcetera::BaseStrategy;
use plimsoll_circom::zkey::KeyDigest;

/// The directory.
#[derive(Clone, Debug)]
pub struct KnownKeys {
    directory: PathBuf,
}

impl KnownKeys {
    /// `plimsoll/checked` in the user's cache directory, if there is a home.
    pub fn of_user() -> Option<Self> {
        let strategy = etcetera::choose_base_strategy().ok()?;
        Some(Self::at(strategy.cache_dir().join("plimsoll").join("checked")))
    }

    /// Those in `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Whether a key was checked before.
    pub fn contains(&self, digest: KeyDigest) -> bool {
        self.directory.join(digest.to_string()).is_file()
    }

    /// Remembers that a key was checked.
    ///
    /// # Errors
    /// What the system says. The key is as good; it will be checked again.
    pub fn remember(&self, digest: KeyDigest) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        fs::write(self.directory.join(digest.to_string()), "")
    }
}
