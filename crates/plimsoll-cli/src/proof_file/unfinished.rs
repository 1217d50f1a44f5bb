//! A file in the making. It has no name where the file system can do that, so that nothing is left of it however the process
//! ends: by a second Ctrl-C, a closed terminal, the out-of-memory killer.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use tempfile::{Builder, NamedTempFile};

/// Where a nameless file can be reached to give it a name.
const DESCRIPTORS: &str = "/proc/self/fd";
/// As any new file: readable by whom the umask lets.
const MODE: u32 = 0o666;
const SUFFIX: &str = ".partial";

/// A file that takes its name when it is complete.
#[derive(Debug)]
pub(crate) struct Unfinished {
    kind: Kind,
    path: PathBuf,
}

#[derive(Debug)]
enum Kind {
    Nameless(File),
    /// Where there are no nameless files: hidden beside the target, removed when dropped.
    Named(NamedTempFile),
}

impl Unfinished {
    /// Begins what will become `path`. A finished file takes the place of an older file, and of nothing else: not of a device, nor of
    /// a pipe. Through a link, the file that it leads to is replaced: the link is somebody else's, `/dev/stdout` for one.
    ///
    /// # Errors
    /// What is there is no regular file; what the system says.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        match path.metadata() {
            Ok(there) if there.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
            Ok(there) if !there.is_file() => return Err(io::Error::other("not a regular file")),
            _ => {}
        }
        let path = &if path.is_symlink() { path.canonicalize()? } else { path.to_owned() };
        let directory = directory_of(path);
        let kind = match nameless(directory) {
            Some(file) => Kind::Nameless(file),
            // Whatever hinders a nameless one, either hinders this one too, and is told, or does not matter.
            None => Kind::Named(
                Builder::new()
                    .prefix(&prefix(path)?)
                    .suffix(SUFFIX)
                    .permissions(Permissions::from_mode(MODE))
                    .tempfile_in(directory)?,
            ),
        };
        Ok(Self { kind, path: path.to_owned() })
    }

    /// Where it will be: behind a link, what that leads to.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself.
    pub(super) fn as_file(&self) -> &File {
        match &self.kind {
            Kind::Nameless(file) => file,
            Kind::Named(file) => file.as_file(),
        }
    }

    /// Makes its bytes durable, and gives it its name in place of what has that name now.
    pub(crate) fn publish(self) -> io::Result<()> {
        self.as_file().sync_all()?;
        let Self { kind, path } = self;
        match kind {
            // A link cannot take another file's place; renaming can. In between, the name is a hidden one for a moment.
            Kind::Nameless(file) => {
                let from = Path::new(DESCRIPTORS).join(file.as_raw_fd().to_string());
                let link = |to: &Path| Ok(linkat(CWD, &from, CWD, to, AtFlags::SYMLINK_FOLLOW)?);
                let linked =
                    Builder::new().prefix(&prefix(&path)?).suffix(SUFFIX).make_in(directory_of(&path), link)?;
                linked.into_temp_path().persist(&path).map_err(|e| e.error)
            }
            Kind::Named(file) => file.persist(&path).map(drop).map_err(|e| e.error),
        }
    }
}

impl io::Write for Unfinished {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.as_file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.as_file().flush()
    }
}

impl io::Seek for Unfinished {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.as_file().seek(to)
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// `.NAME.` before the random part of a temporary name.
fn prefix(path: &Path) -> io::Result<OsString> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    Ok(prefix)
}

fn nameless(directory: &Path) -> Option<File> {
    if !Path::new(DESCRIPTORS).is_dir() {
        return None;
    }
    let file = open(directory, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(MODE)).ok()?;
    Some(File::from(file))
}
