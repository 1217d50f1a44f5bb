//! Keys whose points were checked before, known again by digest: `checked/` in the user's cache directory, a mark each.
//!
//! Who can plant a mark can have a key used unchecked, and points outside their groups tell something about the witness. So a mark
//! counts only if it and its directory are this user's, and nobody else may write to them. (What is proved with a key that is known
//! is looked at again: a proof outside its groups is not written.)

use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use etcetera::BaseStrategy;
use plimsoll_circom::zkey::KeyDigest;

/// Others may not even look.
const DIRECTORY_MODE: u32 = 0o700;
const MARK_MODE: u32 = 0o600;
/// Who else may write.
const OTHERS_WRITE: u32 = 0o022;

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

    /// Whether a key was checked before, by this user.
    pub fn contains(&self, digest: KeyDigest) -> bool {
        let user = rustix::process::geteuid().as_raw();
        // Links are not followed: what they lead to was not made as a mark.
        let directory = fs::symlink_metadata(&self.directory);
        let mark = fs::symlink_metadata(self.directory.join(digest.to_string()));
        directory.is_ok_and(|found| found.is_dir() && is_of(&found, user))
            && mark.is_ok_and(|found| found.is_file() && is_of(&found, user))
    }

    /// Remembers that a key was checked.
    ///
    /// # Errors
    /// What the system says, and that the directory is not this user's alone. The key is as good; it will be checked again.
    pub fn remember(&self, digest: KeyDigest) -> io::Result<()> {
        let user = rustix::process::geteuid().as_raw();
        if let Some(parent) = self.directory.parent() {
            fs::create_dir_all(parent)?;
        }
        match DirBuilder::new().mode(DIRECTORY_MODE).create(&self.directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let found = fs::symlink_metadata(&self.directory)?;
        if !found.is_dir() || found.uid() != user {
            let text = format!("{} is not a directory of this user's", self.directory.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        if found.mode() & OTHERS_WRITE != 0 {
            fs::set_permissions(&self.directory, Permissions::from_mode(DIRECTORY_MODE))?;
        }
        // In the place of one that does not count.
        let mark = self.directory.join(digest.to_string());
        match fs::remove_file(&mark) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        File::options().write(true).create_new(true).mode(MARK_MODE).open(mark).map(drop)
    }
}

/// Whether something is this user's, and nobody else may write to it.
fn is_of(found: &Metadata, user: u32) -> bool {
    mutant!("anybodys-mark-counts") || (found.uid() == user && found.mode() & OTHERS_WRITE == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use plimsoll_circom::map::InMemory;
    use plimsoll_circom::zkey::ZkeyFile;

    use super::*;

    fn digest() -> KeyDigest {
        let zkey = ZkeyFile::parse(include_bytes!("../../../plimsoll-circom/tests/fixtures/small.zkey")).unwrap();
        zkey.read_key(&zkey.shape(None, &InMemory).unwrap(), &InMemory).unwrap().1
    }

    #[test]
    fn only_a_mark_that_nobody_else_can_have_made_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (path, digest) = (folder.path().join("new/checked"), digest());
        let known = KnownKeys::at(&path);
        assert!(!known.contains(digest));
        known.remember(digest).unwrap();
        assert!(known.contains(digest));
        let mark = path.join(digest.to_string());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, DIRECTORY_MODE);
        let mode = |path: &PathBuf, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for (place, others, own) in
            [(&path, 0o770, 0o700), (&path, 0o702, 0o700), (&mark, 0o620, 0o600), (&mark, 0o606, 0o600)]
        {
            mode(place, others);
            assert!(!known.contains(digest), "{} with {others:o}", place.display());
            mode(place, own);
            assert!(known.contains(digest));
        }
        // Somebody else's.
        let found = fs::metadata(&mark).unwrap();
        assert!(is_of(&found, found.uid()) && !is_of(&found, found.uid() + 1));
        // Remembering mends what does not count.
        mode(&path, 0o777);
        mode(&mark, 0o666);
        known.remember(digest).unwrap();
        assert!(known.contains(digest));
        // A link is no mark, nor to a directory.
        fs::rename(&mark, path.join("other")).unwrap();
        symlink(path.join("other"), &mark).unwrap();
        assert!(!known.contains(digest));
        symlink(&path, folder.path().join("link")).unwrap();
        fs::rename(path.join("other"), &mark).unwrap();
        assert!(known.contains(digest) && !KnownKeys::at(folder.path().join("link")).contains(digest));
        assert!(KnownKeys::at(folder.path().join("link")).remember(digest).is_err());
    }
}
