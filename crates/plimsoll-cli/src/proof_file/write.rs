//! Writing, to a file that takes the target's name only when it is complete.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::unfinished::Unfinished;
use super::{Header, Record, TAIL};
use crate::chain::partition_count;

/// Why a proof file could not be written. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot write the proof: {source}{}", path.display(), advice(source))]
pub struct WriteError {
    /// The file that was to be written.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or choose another place with --output"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "; choose another place with --output",
        io::ErrorKind::NotFound => "; the directory must exist",
        _ => "",
    }
}

/// A proof file in the making. Dropped before [`finish`](Self::finish), it leaves nothing behind.
#[derive(Debug)]
pub struct ProofWriter {
    path: PathBuf,
    file: BufWriter<Unfinished>,
    file_bytes: u64,
    header_length: usize,
    length: u64,
    written: u64,
}

impl ProofWriter {
    /// Begins the file that will become `path`, for a proof about `file_bytes` with a key of `verifying_key_bytes`. Asks the file
    /// system for the whole length at once, so that a full disk is known before the work and not after.
    pub fn create(path: &Path, file_bytes: u64, verifying_key_bytes: usize) -> Result<Self, WriteError> {
        let error = |source| WriteError { path: path.to_owned(), source };
        let file = Unfinished::create(path).map_err(error)?;
        // Digest and key come last; zeros hold their place.
        let header = Header { file_bytes, digest: [0; 32], key: [0; 32], verifying_key: vec![0; verifying_key_bytes] };
        let (text, length) = (header.render(), header.file_length());
        reserve(file.as_file(), length).map_err(error)?;
        let file = BufWriter::new(file);
        let mut writer =
            Self { path: path.to_owned(), file, file_bytes, header_length: text.len(), length, written: 0 };
        writer.write(text.as_bytes())?;
        Ok(writer)
    }

    /// Adds the next partition.
    pub fn push(&mut self, record: &Record) -> Result<(), WriteError> {
        self.written += 1;
        let last = self.written == partition_count(self.file_bytes);
        self.write(record.render(last).as_bytes())
    }

    /// Fills in the header, makes the bytes durable and gives the file its name.
    ///
    /// # Panics
    /// If not all partitions were pushed, or the header is not about the file and key that the writer was made for: that is a
    /// fault of the caller, and the file would be invalid.
    pub fn finish(mut self, header: &Header) -> Result<(), WriteError> {
        assert_eq!(self.written, partition_count(self.file_bytes), "every partition is written exactly once");
        let text = header.render();
        assert_eq!(
            (header.file_bytes, text.len()),
            (self.file_bytes, self.header_length),
            "the header keeps its length"
        );
        self.write(TAIL.as_bytes())?;
        let Self { path, file, length, .. } = self;
        let error = |source| WriteError { path: path.clone(), source };
        let mut file = file.into_inner().map_err(|e| error(e.into_error()))?;
        file.seek(SeekFrom::Start(0)).map_err(error)?;
        file.write_all(text.as_bytes()).map_err(error)?;
        // What was asked for at the start is what was written: the reader relies on it.
        assert_eq!(file.as_file().metadata().map_err(error)?.len(), length, "length of the proof file");
        file.publish().map_err(error)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.file.write_all(bytes).map_err(|source| WriteError { path: self.path.clone(), source })
    }
}

/// Takes `length` bytes of disk for `file`. File systems that cannot do it are written to as they are.
fn reserve(file: &File, length: u64) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, length) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
