//! A cached file: a payload that other programs read from the start, and a trailer of ours that says what it is.
//!
//! | bytes | trailer |
//! |---|---|
//! | 48 | what the set-up is worth, in words, padded with spaces |
//! | 32 | digest of the circuit's shape |
//! | 8 | length of the payload, little-endian |
//! | 32 | SHA-256 of the payload and of the three fields above |
//! | 16 | [`MAGIC`] |
//!
//! A file gets its name only when it is complete and durable, so a crash leaves the old file or none. The digest catches whatever
//! happens to it later.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

const MAGIC: &[u8; 16] = b"plimsoll key v1\n";
const WORTH_BYTES: usize = 48;
const TRAILER_BYTES: u64 = (WORTH_BYTES + 32 + 8 + 32 + 16) as u64;

/// What stands in the trailer of a development key.
pub const INSECURE: &str = "INSECURE development key: not for real use";

/// Why a cached file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The system's reading failed.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// There is no trailer.
    #[error("it has no trailer: cut short, half-written, or not a key of this program")]
    NoTrailer,
    /// The payload has another length than the trailer says.
    #[error("its payload has {found} bytes instead of {expected}: cut short or added to")]
    Length {
        /// The trailer's.
        expected: u64,
        /// The file's.
        found: u64,
    },
    /// The trailer speaks of another set-up.
    #[error("its set-up is not the development one")]
    OtherSetup,
    /// The trailer speaks of another circuit.
    #[error("it is for another circuit ({found}, not {expected})")]
    OtherCircuit {
        /// The trailer's digest, its first digits.
        found: String,
        /// The digest of the circuit at hand, its first digits.
        expected: String,
    },
    /// The bytes are not those that were written.
    #[error("its digest is wrong: bytes in it have changed")]
    Digest,
    /// The payload is no key. The digest would tell as well; this is found first.
    #[error("it is damaged: {0}")]
    Payload(String),
}

/// A cached file whose trailer fits.
#[derive(Debug)]
pub struct Container {
    file: File,
    payload_bytes: u64,
    fields: Vec<u8>,
    digest: [u8; 32],
}

/// What a trailer says, without any claim that it is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// What the set-up is worth, in words.
    pub worth: String,
    /// Digest of the circuit's shape.
    pub circuit: [u8; 32],
    /// Bytes before the trailer.
    pub payload_bytes: usize,
}

impl Trailer {
    /// The trailer at the end of a file, if it has one.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let payload_bytes = bytes.len().checked_sub(TRAILER_BYTES as usize)?;
        let fields = bytes[payload_bytes..].strip_suffix(MAGIC)?;
        let (worth, rest) = fields.split_at(WORTH_BYTES);
        let worth = String::from_utf8_lossy(worth).trim_end().chars().filter(|c| !c.is_control()).collect();
        Some(Self { worth, circuit: *rest.first_chunk()?, payload_bytes })
    }
}

fn fields(circuit: &[u8; 32], payload_bytes: u64) -> Vec<u8> {
    let mut fields = format!("{INSECURE:<WORTH_BYTES$}").into_bytes();
    fields.extend_from_slice(circuit);
    fields.extend_from_slice(&payload_bytes.to_le_bytes());
    fields
}

/// Opens a file for reading, but nothing that could keep the reader waiting: opening a pipe waits for its other end.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(path)
}

impl Container {
    /// Opens a file and compares its trailer; the payload is not read yet. `None` where there is no file.
    pub fn open(path: &Path, circuit: &[u8; 32]) -> Result<Option<Self>, Damage> {
        let mut file = match open_regular(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Damage::Io(e)),
        };
        let length = file.metadata()?.len();
        let payload_bytes = length.checked_sub(TRAILER_BYTES).ok_or(Damage::NoTrailer)?;
        file.seek(SeekFrom::Start(payload_bytes))?;
        let mut trailer = Vec::with_capacity(TRAILER_BYTES as usize);
        (&mut file).take(TRAILER_BYTES).read_to_end(&mut trailer)?;
        let rest = trailer.strip_suffix(MAGIC).ok_or(Damage::NoTrailer)?;
        let (found, digest) = rest.split_last_chunk::<32>().ok_or(Damage::NoTrailer)?;
        let expected = fields(circuit, payload_bytes);
        if found != expected {
            return Err(difference(found, circuit, payload_bytes));
        }
        file.rewind()?;
        Ok(Some(Self { file, payload_bytes, fields: expected, digest: *digest }))
    }

    /// The payload as a file of its own, for looking around in it. What is read here is not checked against the digest.
    pub fn payload(&mut self) -> Payload<'_> {
        Payload { file: &mut self.file, length: self.payload_bytes, position: 0 }
    }

    /// Gives the payload to `read`, from its start, and compares the digest afterwards.
    pub fn read<T, E: std::fmt::Display>(
        mut self,
        read: impl FnOnce(&mut dyn Read) -> Result<T, E>,
    ) -> Result<T, Damage> {
        self.file.rewind()?;
        let reader = BufReader::with_capacity(1 << 16, self.file.take(self.payload_bytes));
        let mut reader = HashingReader { reader, hash: Sha256::new() };
        let value = read(&mut reader).map_err(|e| Damage::Payload(e.to_string()))?;
        // Whatever `read` left is part of the digest, too.
        io::copy(&mut reader, &mut io::sink())?;
        if <[u8; 32]>::from(reader.hash.chain_update(&self.fields).finalize()) == self.digest {
            Ok(value)
        } else {
            Err(Damage::Digest)
        }
    }
}

/// Says which field of the trailer is not as expected.
fn difference(found: &[u8], circuit: &[u8; 32], payload_bytes: u64) -> Damage {
    let short = |digest: &[u8]| hex::encode(&digest[..4]);
    let (worth, rest) = found.split_at(WORTH_BYTES);
    let (other_circuit, length) = rest.split_at(32);
    if worth != format!("{INSECURE:<WORTH_BYTES$}").as_bytes() {
        Damage::OtherSetup
    } else if other_circuit != circuit {
        Damage::OtherCircuit { found: short(other_circuit), expected: short(circuit) }
    } else {
        let expected = length.try_into().map(u64::from_le_bytes).unwrap_or(0);
        Damage::Length { expected, found: payload_bytes }
    }
}

/// Writes a file in `directory` that holds what `write` writes, and gives it the name `path` when it is complete and durable.
pub fn store<E: From<io::Error>>(
    path: &Path,
    circuit: &[u8; 32],
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let temporary = tempfile::Builder::new().prefix(PARTIAL_PREFIX).suffix(PARTIAL_SUFFIX).tempfile_in(directory)?;
    let mut writer =
        HashingWriter { writer: BufWriter::with_capacity(1 << 16, temporary), hash: Sha256::new(), bytes: 0 };
    write(&mut writer)?;
    let HashingWriter { mut writer, hash, bytes } = writer;
    let fields = fields(circuit, bytes);
    let digest: [u8; 32] = hash.chain_update(&fields).finalize().into();
    writer.write_all(&fields)?;
    writer.write_all(&digest)?;
    writer.write_all(MAGIC)?;
    let temporary: NamedTempFile = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|e| e.error)?;
    // The name is durable only when the directory is.
    File::open(directory)?.sync_all()?;
    Ok(())
}

const PARTIAL_PREFIX: &str = ".key.";
const PARTIAL_SUFFIX: &str = ".partial";

/// Removes what a killed process left half-written. Only for whoever holds the cache's lock: another one may be writing.
pub(super) fn remove_partial(directory: &Path) -> io::Result<()> {
    for entry in directory.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PARTIAL_PREFIX) && name.ends_with(PARTIAL_SUFFIX) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The payload alone, as if the file ended behind it.
#[derive(Debug)]
pub struct Payload<'a> {
    file: &'a mut File,
    length: u64,
    position: u64,
}

impl Read for Payload<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.length.saturating_sub(self.position);
        let read = self.file.take(left).read(buffer)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for Payload<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        let position = position.ok_or(io::ErrorKind::InvalidInput)?;
        self.position = self.file.seek(SeekFrom::Start(position))?;
        Ok(self.position)
    }
}

struct HashingReader<R> {
    reader: R,
    hash: Sha256,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}

struct HashingWriter<W> {
    writer: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const CIRCUIT: [u8; 32] = [3; 32];

    fn stored() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.params");
        store(&path, &CIRCUIT, |writer| writer.write_all(b"a payload of points")).unwrap();
        (directory, path)
    }

    fn load(path: &Path) -> Result<Option<Vec<u8>>, Damage> {
        let Some(container) = Container::open(path, &CIRCUIT)? else { return Ok(None) };
        let read = |reader: &mut dyn Read| {
            let mut payload = Vec::new();
            reader.read_to_end(&mut payload).map(|_| payload)
        };
        container.read(read).map(Some)
    }

    #[test]
    fn what_is_stored_is_loaded_and_stands_at_the_start() {
        let (directory, path) = stored();
        assert_eq!(load(&path).unwrap().unwrap(), b"a payload of points");
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"a payload of points"));
        assert!(bytes.windows(INSECURE.len()).any(|window| window == INSECURE.as_bytes()), "marked in the file");
        let trailer = Trailer { worth: INSECURE.to_owned(), circuit: CIRCUIT, payload_bytes: 19 };
        assert_eq!(
            (Trailer::of(&bytes), Trailer::of(&bytes[1..]).is_some(), Trailer::of(&bytes[..40])),
            (Some(trailer), true, None)
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_file_is_no_damage() {
        let (directory, _) = stored();
        assert!(load(&directory.path().join("b.params")).unwrap().is_none());
    }

    #[test]
    fn a_pipe_in_its_place_is_damage_and_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.params");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        // With another end, so that opening it would not wait and this test could not hang.
        let _other_end = fs::File::options().read(true).write(true).open(&path).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let (_directory, path) = stored();
        let bytes = fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, damaged).unwrap();
            assert!(load(&path).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            assert!(load(&path).is_err(), "cut to {length}");
        }
    }

    #[test]
    fn faults_are_told_apart() {
        let (_directory, path) = stored();
        let bytes = fs::read(&path).unwrap();
        let check = |bytes: Vec<u8>, message: &str| {
            fs::write(&path, bytes).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        };
        check(bytes[..bytes.len() / 2].to_vec(), "no trailer");
        check(Vec::new(), "no trailer");
        check([&b"x"[..], &bytes].concat(), "20 bytes instead of 19");
        check([&b"A"[..], &bytes[1..]].concat(), "digest is wrong");
        assert!(
            Container::open(&path, &[4; 32])
                .unwrap_err()
                .to_string()
                .contains("another circuit (03030303, not 04040404)")
        );
    }

    #[test]
    fn payload_can_be_looked_around_in() {
        let (_directory, path) = stored();
        let mut container = Container::open(&path, &CIRCUIT).unwrap().unwrap();
        let mut payload = container.payload();
        assert_eq!(payload.seek(SeekFrom::End(0)).unwrap(), 19);
        payload.seek(SeekFrom::Start(2)).unwrap();
        let mut rest = String::new();
        payload.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "payload of points");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let (directory, path) = stored();
        let failed = store(&path, &CIRCUIT, |writer| {
            writer.write_all(b"half of")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert!(failed.is_err());
        assert_eq!(load(&path).unwrap().unwrap(), b"a payload of points");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn leftovers_of_a_killed_process_are_removed() {
        let (directory, path) = stored();
        fs::write(directory.path().join(".key.Ab12.partial"), b"half").unwrap();
        remove_partial(directory.path()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(path.exists());
    }
}
