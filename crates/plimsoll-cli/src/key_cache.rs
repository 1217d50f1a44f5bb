//! Where proving keys are kept between runs: `keys/` in the user's cache directory, one file a statement and set-up.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy;

use crate::circuit::STATEMENT;
use crate::proof_file::SETUP;

mod container;

pub use container::{Container, Damage, INSECURE, Payload, Trailer, open_regular, store};

/// How often the lock is asked for while another process makes the key.
const LOCK_POLL: Duration = Duration::from_millis(50);

/// The cache directory of a user, or one named by a test.
#[derive(Clone, Debug)]
pub struct KeyCache {
    directory: PathBuf,
}

/// Why there is no place for keys.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The system knows no home directory.
    #[error("there is no home directory to keep the key in; set XDG_CACHE_HOME")]
    NoHome,
    /// The directory or its lock cannot be made.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was to be made.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Held while a key is made, so that two processes do not make the same one. Released when dropped, and by the system when the
/// process dies.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl KeyCache {
    /// `plimsoll/keys` in the user's cache directory: `$XDG_CACHE_HOME`, or `~/.cache`.
    pub fn of_user() -> Result<Self, CacheError> {
        let strategy = etcetera::choose_base_strategy().map_err(|_| CacheError::NoHome)?;
        Ok(Self::at(strategy.cache_dir().join("plimsoll").join("keys")))
    }

    /// Keys in `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The file of the key. Its name says what the key is worth.
    pub fn path(&self) -> PathBuf {
        self.directory.join(format!("{STATEMENT}.{SETUP}.params"))
    }

    /// Takes the lock, making the directory where needed. `while_waiting` is asked again and again while another process holds
    /// it: `false` gives up, with `None`.
    pub fn lock(&self, mut while_waiting: impl FnMut() -> bool) -> Result<Option<Lock>, CacheError> {
        let error = |path: &Path| {
            let path = path.to_owned();
            move |source| CacheError::Io { path, source }
        };
        fs::create_dir_all(&self.directory).map_err(error(&self.directory))?;
        let path = self.directory.join(format!("{STATEMENT}.{SETUP}.lock"));
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(error(&path))?;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                // Polled, because waiting for a file's lock cannot be broken off by a signal.
                Err(fs::TryLockError::WouldBlock) if while_waiting() => std::thread::sleep(LOCK_POLL), // tidy: sleep, a file lock has no event
                Err(fs::TryLockError::WouldBlock) => return Ok(None),
                // A file system without locks: two processes may both make a key then, and the last one's stays.
                Err(fs::TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => break,
                Err(fs::TryLockError::Error(e)) => return Err(error(&path)(e)),
            }
        }
        container::remove_partial(&self.directory).map_err(error(&self.directory))?;
        Ok(Some(Lock(file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_held_by_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let cache = KeyCache::at(directory.path().join("not/yet/there"));
        let held = cache.lock(|| panic!("nobody holds it")).unwrap().unwrap();
        let mut asked = 0;
        let given_up = cache.lock(|| {
            asked += 1;
            asked < 2
        });
        assert!(given_up.unwrap().is_none());
        assert_eq!(asked, 2);
        drop(held);
        assert!(cache.lock(|| false).unwrap().is_some());
    }

    #[test]
    fn the_name_says_that_it_is_insecure() {
        assert!(KeyCache::at("/k").path().to_string_lossy().contains("insecure"));
    }

    #[test]
    fn a_place_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let error = KeyCache::at(file.join("keys")).lock(|| true).unwrap_err().to_string();
        assert!(error.contains(&file.display().to_string()), "{error}");
    }
}
