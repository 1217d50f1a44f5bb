//! Reading, strictly, line by line, holding one line at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::{FORMAT, Header, PROOF_BYTES, Record, SETUP, TAIL, VERSION, WARNING};
use crate::chain::{FILE_BYTES_MAX, State, partition_count};
use crate::circuit::STATEMENT;

/// No line of a valid file is nearly this long. A longer one is refused before it is held.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// What is wrong, and on which line (from 1).
#[derive(Debug, thiserror::Error)]
#[error("{}{fault}", if *line == 0 { String::new() } else { format!("line {line}: ") })]
pub struct ReadError {
    /// The line; 0 where the file was not opened.
    pub line: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// A fault of a proof file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The system's reading failed.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file ends too soon.
    #[error("the file ends here, it was cut short; get a whole copy, or prove again")]
    Truncated,
    /// The line goes on and on.
    #[error("longer than any line of a proof file")]
    LineTooLong,
    /// Not what stands here in a proof file.
    #[error("not as plimsoll writes it: expected `{expected}`; was the file edited, reformatted or damaged?")]
    Unexpected {
        /// What should stand here.
        expected: &'static str,
    },
    /// Another version of the format.
    #[error("format version {found:?}, this plimsoll reads version {VERSION}")]
    Version {
        /// The version in the file.
        found: String,
    },
    /// Another statement or set-up.
    #[error("{what} {found:?}, this plimsoll knows only {known:?}")]
    Unknown {
        /// Which of them.
        what: &'static str,
        /// What the file says.
        found: String,
        /// What would be understood.
        known: &'static str,
    },
    /// A length that no file has.
    #[error("a file of {0} bytes has no SHA-256 digest")]
    FileTooLong(u64),
    /// Nothing was proved.
    #[error("a proof about an empty file; there is no such proof")]
    FileEmpty,
    /// The file's length does not follow from what it says.
    #[error(
        "the proof file of {file_bytes} bytes must have {expected} bytes and has {found}; it was cut short or added to"
    )]
    Length {
        /// The proved file's length, as the proof file says.
        file_bytes: u64,
        /// The length that follows.
        expected: u64,
        /// The length it has.
        found: u64,
    },
    /// Something stands behind the end.
    #[error("something stands behind the end of the proof")]
    TrailingData,
}

/// A proof file being read: the header is there, the partitions come one by one.
#[derive(Debug)]
pub struct ProofReader<R = BufReader<File>> {
    lines: Lines<R>,
    header: Header,
    left: u64,
    ended: bool,
}

impl ProofReader {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let at_start = |source: io::Error| ReadError { line: 0, fault: Fault::Io(source) };
        let file = File::open(path).map_err(at_start)?;
        let metadata = file.metadata().map_err(at_start)?;
        if metadata.is_dir() {
            return Err(at_start(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let reader = Self::new(BufReader::new(file))?;
        let (expected, found) = (reader.header.file_length(), metadata.len());
        // A pipe has no length; then the end tells.
        if metadata.is_file() && expected != found {
            let file_bytes = reader.header.file_bytes;
            return Err(ReadError { line: 7, fault: Fault::Length { file_bytes, expected, found } });
        }
        Ok(reader)
    }
}

impl<R: BufRead> ProofReader<R> {
    /// Reads the header from `reader`.
    pub fn new(reader: R) -> Result<Self, ReadError> {
        let mut lines = Lines { reader, number: 0, line: String::new() };
        let header = lines.header().map_err(|fault| ReadError { line: lines.number, fault })?;
        let left = partition_count(header.file_bytes);
        Ok(Self { lines, header, left, ended: false })
    }

    /// What stands before the partitions.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next partition, or `None` behind the last one, where the file must end.
    pub fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        let record = if self.left > 0 {
            self.left -= 1;
            self.lines.record(self.left == 0).map(Some)
        } else {
            self.ended = true;
            self.lines.end().map(|()| None)
        };
        record.map_err(|fault| ReadError { line: self.lines.number, fault })
    }
}

#[derive(Debug)]
struct Lines<R> {
    reader: R,
    number: u64,
    line: String,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<(), Fault> {
        self.number += 1;
        self.line.clear();
        let read = (&mut self.reader).take(LINE_BYTES_MAX).read_line(&mut self.line);
        match read {
            Ok(_) if self.line.ends_with('\n') => Ok(()),
            Ok(length) if length as u64 == LINE_BYTES_MAX => Err(Fault::LineTooLong),
            Ok(_) => Err(Fault::Truncated),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Err(Fault::Unexpected { expected: "text" }),
            Err(e) => Err(Fault::Io(e)),
        }
    }

    fn literal(&mut self, text: &'static str) -> Result<(), Fault> {
        self.next()?;
        if self.line == text { Ok(()) } else { Err(Fault::Unexpected { expected: text.trim_ascii() }) }
    }

    /// The value of the line `  "name": value,`.
    fn value(&mut self, name: &'static str) -> Result<&str, Fault> {
        self.next()?;
        self.line
            .strip_prefix("  \"")
            .and_then(|rest| rest.strip_prefix(name))
            .and_then(|rest| rest.strip_prefix("\": "))
            .and_then(|rest| rest.strip_suffix(",\n"))
            .ok_or(Fault::Unexpected { expected: name })
    }

    fn string(&mut self, name: &'static str) -> Result<&str, Fault> {
        unquote(self.value(name)?).ok_or(Fault::Unexpected { expected: name })
    }

    fn known(&mut self, what: &'static str, known: &'static str) -> Result<(), Fault> {
        let found = self.string(what)?;
        if found == known { Ok(()) } else { Err(Fault::Unknown { what, found: found.to_owned(), known }) }
    }

    fn header(&mut self) -> Result<Header, Fault> {
        self.literal("{\n")?;
        self.known("format", FORMAT)?;
        let version = self.value("version")?;
        if version != VERSION.to_string() {
            return Err(Fault::Version { found: version.to_owned() });
        }
        self.known("statement", STATEMENT)?;
        self.known("setup", SETUP)?;
        self.known("warning", WARNING)?;
        let file_bytes =
            number(self.value("bytes")?).ok_or(Fault::Unexpected { expected: "the length of the file" })?;
        match file_bytes {
            0 => return Err(Fault::FileEmpty),
            1..=FILE_BYTES_MAX => {}
            _ => return Err(Fault::FileTooLong(file_bytes)),
        }
        let digest = array(self.string("digest")?).ok_or(Fault::Unexpected { expected: "64 lower-case hex digits" })?;
        let key = array(self.string("key")?).ok_or(Fault::Unexpected { expected: "64 lower-case hex digits" })?;
        let verifying_key =
            unhex(self.string("verifying_key")?).ok_or(Fault::Unexpected { expected: "lower-case hex digits" })?;
        self.literal("  \"partitions\": [\n")?;
        Ok(Header { file_bytes, digest, key, verifying_key })
    }

    fn record(&mut self, last: bool) -> Result<Record, Fault> {
        self.next()?;
        let end = if last { "\"}\n" } else { "\"},\n" };
        parse_record(&self.line, end).ok_or(Fault::Unexpected { expected: "a partition: blocks, start, end, proof" })
    }

    fn end(&mut self) -> Result<(), Fault> {
        for line in TAIL.split_inclusive('\n') {
            self.literal(line)?;
        }
        self.number += 1;
        if self.reader.fill_buf()?.is_empty() { Ok(()) } else { Err(Fault::TrailingData) }
    }
}

fn parse_record(line: &str, end_of_line: &str) -> Option<Record> {
    let (blocks, rest) = line.strip_prefix("    {\"blocks\":")?.split_once(",\"start\":\"")?;
    let (start, rest) = rest.split_once("\",\"end\":\"")?;
    let (end, rest) = rest.split_once("\",\"proof\":\"")?;
    let proof = rest.strip_suffix(end_of_line)?;
    Some(Record {
        blocks: number(blocks).and_then(|blocks| u8::try_from(blocks).ok())?,
        start: State::from_bytes(array(start)?),
        end: State::from_bytes(array(end)?),
        proof: array::<PROOF_BYTES>(proof)?,
    })
}

fn unquote(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"')
}

/// A number as it is printed: no sign, no leading zeros.
fn number(text: &str) -> Option<u64> {
    text.parse::<u64>().ok().filter(|number| number.to_string() == text)
}

/// Lower-case hex digits only: upper-case ones would be a second spelling of the same proof.
fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) { None } else { hex::decode(text).ok() }
}

fn array<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() == 2 * N { unhex(text)?.try_into().ok() } else { None }
}
