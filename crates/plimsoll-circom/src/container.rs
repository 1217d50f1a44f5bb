//! The binary container that all of circom's and snarkjs's files are: a magic word, a version, and sections.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | the kind of file: `r1cs`, `wtns`, `zkey`, `ptau` |
//! | 4 | version, little-endian, as every number in these files |
//! | 4 | number of sections |
//! | 4 + 8 + n | each section: its type, its length n, its bytes |
//!
//! [`Container::parse`] walks from section to section and checks that each lies within the file. It looks at 12 bytes a section and
//! allocates nothing but the table of sections, of which there are 64 at most: whatever a section claims to hold is
//! compared with its length before anybody allocates for it ([`crate::fields::Fields`]).

use std::fmt;
use std::ops::Range;

use crate::fields::Fields;
use crate::map::{InMemory, Pages};

/// Bytes before the first section.
const HEADER_BYTES: usize = 12;
/// Bytes before a section's contents.
const SECTION_HEADER_BYTES: usize = 12;
/// The most sections that a file may have: circom and snarkjs write 15 at most. Without a limit, a file of empty sections would
/// cost more than its size as a table.
const SECTIONS_MAX: u32 = 64;

/// No header that is known here is longer.
pub(crate) const HEAD_BYTES: usize = 2048;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A circuit's constraints, from circom.
    R1cs,
    /// A witness.
    Wtns,
    /// A proving key.
    Zkey,
    /// Powers of tau.
    Ptau,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::R1cs, Self::Wtns, Self::Zkey, Self::Ptau];

    /// The four bytes at a file's start.
    pub fn magic(self) -> &'static [u8; 4] {
        match self {
            Self::R1cs => b"r1cs",
            Self::Wtns => b"wtns",
            Self::Zkey => b"zkey",
            Self::Ptau => b"ptau",
        }
    }

    /// The latest version that is understood.
    pub fn version_max(self) -> u32 {
        match self {
            Self::Wtns => 2,
            Self::R1cs | Self::Zkey | Self::Ptau => 1,
        }
    }

    /// What a section of this type holds.
    pub fn section_name(self, id: u32) -> &'static str {
        let names: &[&str] = match self {
            Self::R1cs => &["header", "constraints", "labels of wires", "custom gates", "uses of custom gates"],
            Self::Wtns => &["header", "values"],
            Self::Zkey => &[
                "proof system",
                "header and constants",
                "IC",
                "coefficients of A and B",
                "A",
                "B in G1",
                "B in G2",
                "C",
                "H",
                "contributions",
            ],
            Self::Ptau => &[
                "header",
                "tau in G1",
                "tau in G2",
                "alpha tau in G1",
                "beta tau in G1",
                "beta in G2",
                "contributions",
                "",
                "",
                "",
                "",
                "Lagrange tau in G1",
                "Lagrange tau in G2",
                "Lagrange alpha tau in G1",
                "Lagrange beta tau in G1",
            ],
        };
        let name = (id as usize).checked_sub(1).and_then(|index| names.get(index));
        name.copied().filter(|name| !name.is_empty()).unwrap_or("unknown")
    }

    /// The kind that a file's first bytes say.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| bytes.starts_with(kind.magic()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::R1cs => "r1cs",
            Self::Wtns => "wtns",
            Self::Zkey => "zkey",
            Self::Ptau => "ptau",
        })
    }
}

/// What is wrong with a file's frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// The first bytes are another file's.
    #[error("it is not a {expected} file: it begins with {found}")]
    Magic {
        /// What was wanted.
        expected: Kind,
        /// What there is, printable.
        found: String,
    },
    /// A version that is newer than this program.
    #[error("its version is {found}; this program knows {kind} files up to version {max}")]
    Version {
        /// The kind of file.
        kind: Kind,
        /// The version in it.
        found: u32,
        /// The latest that is understood.
        max: u32,
    },
    /// The file ends before its sections do.
    #[error(
        "section {section} of type {id} needs {needed} bytes but {available} are left; the file is cut short or damaged"
    )]
    Truncated {
        /// Which, in the order of the file.
        section: u32,
        /// Its type; 0 where not even that is there.
        id: u32,
        /// The bytes that it asks for.
        needed: u64,
        /// The bytes that there are.
        available: u64,
    },
    /// More sections than any of these files has.
    #[error("it says that it has {found} sections, and {kind} files have {max} at most; the file is damaged")]
    TooManySections {
        /// The kind of file.
        kind: Kind,
        /// How many it says.
        found: u32,
        /// How many are looked at.
        max: u32,
    },
    /// Bytes that belong to no section.
    #[error("{extra} bytes follow the last section; the file is damaged")]
    Trailing {
        /// How many.
        extra: u64,
    },
    /// A section that must be there once is there more often.
    #[error("it has several sections of type {id} ({name}); it must have one")]
    Repeated {
        /// The type.
        id: u32,
        /// What it is for.
        name: &'static str,
    },
    /// A section that must be there is not.
    #[error("it has no section of type {id} ({name}); {hint}")]
    Missing {
        /// The type.
        id: u32,
        /// What it is for.
        name: &'static str,
        /// Why that may be.
        hint: &'static str,
    },
    /// The system does not give the bytes: the disk fails, or the file was cut short meanwhile.
    #[error("it cannot be read: {kind}")]
    Unreadable {
        /// What the system says.
        kind: std::io::ErrorKind,
    },
}

/// A section: its type and where its contents are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its type.
    pub id: u32,
    /// Where its contents are in the file.
    pub range: Range<usize>,
}

/// A file's sections.
#[derive(Clone, Debug)]
pub struct Container<'a> {
    bytes: &'a [u8],
    pages: &'a dyn Pages,
    kind: Kind,
    version: u32,
    sections: Vec<Section>,
}

impl<'a> Container<'a> {
    /// Finds the sections of a file of this kind, in memory.
    ///
    /// # Errors
    /// See [`ContainerError`].
    pub fn parse(bytes: &'a [u8], kind: Kind) -> Result<Self, ContainerError> {
        Self::parse_in(bytes, &InMemory, kind)
    }

    /// The same in a file, `pages` having its `bytes`: whatever is looked at is [copied](Pages::copy), so that a file that somebody
    /// shortens meanwhile is an error.
    ///
    /// # Errors
    /// See [`ContainerError`].
    pub fn parse_in(bytes: &'a [u8], pages: &'a dyn Pages, kind: Kind) -> Result<Self, ContainerError> {
        let copied = |start: usize, len: usize| -> Result<Vec<u8>, ContainerError> {
            let mut copy = vec![0; len.min(bytes.len() - start)];
            pages.copy(bytes, start, &mut copy).map_err(|e| ContainerError::Unreadable { kind: e.kind() })?;
            Ok(copy)
        };
        let frame = copied(0, HEADER_BYTES)?;
        if !frame.starts_with(kind.magic()) {
            let start = &frame[..frame.len().min(4)];
            let found = if start.is_empty() { "nothing".to_owned() } else { format!("\"{}\"", start.escape_ascii()) };
            return Err(ContainerError::Magic { expected: kind, found });
        }
        let truncated = |section, id, needed: u64, available: usize| ContainerError::Truncated {
            section,
            id,
            needed,
            available: available as u64,
        };
        let mut fields = Fields::new(&frame);
        let short = truncated(0, 0, HEADER_BYTES as u64, bytes.len());
        let (_, Some(version), Some(count)) = (fields.take(4), fields.u32(), fields.u32()) else { return Err(short) };
        if version == 0 || version > kind.version_max() {
            return Err(ContainerError::Version { kind, found: version, max: kind.version_max() });
        }
        if count > SECTIONS_MAX {
            return Err(ContainerError::TooManySections { kind, found: count, max: SECTIONS_MAX });
        }
        // No more than there can be, whatever the header says.
        let mut at = HEADER_BYTES;
        let mut sections = Vec::with_capacity((count as usize).min((bytes.len() - at) / SECTION_HEADER_BYTES));
        for section in 0..count {
            let header = copied(at, SECTION_HEADER_BYTES)?;
            let mut fields = Fields::new(&header);
            let (Some(id), Some(len)) = (fields.u32(), fields.u64()) else {
                return Err(truncated(section, 0, SECTION_HEADER_BYTES as u64, bytes.len() - at));
            };
            let start = at + SECTION_HEADER_BYTES;
            let available = bytes.len() - start;
            let Some(len) = usize::try_from(len).ok().filter(|len| *len <= available) else {
                return Err(truncated(section, id, len, available));
            };
            at = start + len;
            sections.push(Section { id, range: start..at });
        }
        if at < bytes.len() {
            return Err(ContainerError::Trailing { extra: (bytes.len() - at) as u64 });
        }
        Ok(Self { bytes, pages, kind, version, sections })
    }

    /// A copy of the start of a section, at most so many bytes of it.
    ///
    /// # Errors
    /// [`ContainerError::Unreadable`].
    pub fn head(&self, section: &Range<usize>, most: usize) -> Result<Vec<u8>, ContainerError> {
        let mut copy = vec![0; section.len().min(most)];
        self.copy(section.start, &mut copy)?;
        Ok(copy)
    }

    /// Copies what the file has from `start` on.
    ///
    /// # Errors
    /// [`ContainerError::Unreadable`].
    ///
    /// # Panics
    /// When there are not as many bytes.
    pub fn copy(&self, start: usize, out: &mut [u8]) -> Result<(), ContainerError> {
        let copied = self.pages.copy(self.bytes, start, out);
        copied.map_err(|e| ContainerError::Unreadable { kind: e.kind() })
    }

    /// The kind of file.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The file's version.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// All sections, in the file's order.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The whole file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The section of this type, if there is one.
    ///
    /// # Errors
    /// There are several.
    pub fn find(&self, id: u32, name: &'static str) -> Result<Option<Range<usize>>, ContainerError> {
        let mut found = self.sections.iter().filter(|section| section.id == id);
        match (found.next(), found.next()) {
            (Some(section), None) => Ok(Some(section.range.clone())),
            (None, _) => Ok(None),
            (Some(_), Some(_)) => Err(ContainerError::Repeated { id, name }),
        }
    }

    /// The one section of this type.
    ///
    /// # Errors
    /// There is none, or several.
    pub fn require(&self, id: u32, name: &'static str, hint: &'static str) -> Result<Range<usize>, ContainerError> {
        self.find(id, name)?.ok_or(ContainerError::Missing { id, name, hint })
    }
}

#[cfg(test)]
mod tests;
