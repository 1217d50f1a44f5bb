//! What a file is and what is in it, from its headers: nothing is loaded, and no value of a witness is looked at.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use plimsoll_circom::container::{Container, Kind};
use plimsoll_circom::json::{VerificationKey, read_proof, read_public};
use plimsoll_circom::map::MappedFile;
use plimsoll_circom::ptau::PtauFile;
use plimsoll_circom::r1cs::R1csFile;
use plimsoll_circom::wtns::WtnsFile;
use plimsoll_circom::zkey::ZkeyFile;
use plimsoll_circom::{ReadError, json::JsonError};
use plimsoll_groth16::Proof;
use plimsoll_groth16::keys::KeyHeader;
use serde_json::{Map, Value, json};

use crate::exit::{Exit, Failure};
use crate::key_cache::{Trailer, open_regular};
use crate::proof_file::ProofReader;

mod contents;

/// JSON files beyond this are none of those that are known here: a key of a hundred thousand public inputs takes 25 MiB. What is made of
/// one can take several times its length.
pub(crate) const JSON_BYTES_MAX: u64 = 64 << 20;

/// What was found.
#[derive(Debug)]
pub struct Inspection {
    /// What the file is.
    pub format: &'static str,
    /// Names and values, in order.
    pub facts: Vec<(&'static str, Value)>,
    /// Sections, where the format has them.
    pub sections: Vec<Section>,
    /// What is in them, where it was asked for.
    pub contents: Vec<(String, String)>,
}

/// A section of a file.
#[derive(Debug)]
pub struct Section {
    /// Its type.
    pub id: u32,
    /// What it holds.
    pub name: &'static str,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

impl Inspection {
    fn new(format: &'static str) -> Self {
        Self { format, facts: Vec::new(), sections: Vec::new(), contents: Vec::new() }
    }

    fn fact(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.facts.push((name, value.into()));
        self
    }

    fn framed(mut self, container: &Container<'_>) -> Self {
        let section = |section: &plimsoll_circom::container::Section| Section {
            id: section.id,
            name: container.kind().section_name(section.id),
            offset: section.range.start as u64,
            bytes: section.range.len() as u64,
        };
        self.sections = container.sections().iter().map(section).collect();
        self.fact("version", container.version())
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let facts: Map<String, Value> = self.facts.iter().map(|(name, value)| (key_of(name), value.clone())).collect();
        let section = |s: &Section| json!({"type": s.id, "name": s.name, "offset": s.offset, "bytes": s.bytes});
        let sections: Vec<Value> = self.sections.iter().map(section).collect();
        let mut found = json!({"format": self.format, "facts": facts, "sections": sections});
        if !self.contents.is_empty() {
            let pair = |(name, text): &(String, String)| json!({"name": name, "text": text});
            found["contents"] = self.contents.iter().map(pair).collect();
        }
        found
    }
}

/// A name as scripts like it.
fn key_of(name: &str) -> String {
    name.replace([' ', '-'], "_")
}

/// Looks at a file, and with `most` at the first elements in it.
///
/// # Errors
/// It cannot be read, is damaged, or is none of the formats that are known; or has no contents that are shown.
pub fn inspect(path: &Path, most: Option<usize>) -> Result<Inspection, Failure> {
    let failure = |e: &dyn std::fmt::Display| Failure::new(Exit::BadInput, format!("{}: {e}", path.display()));
    let map = MappedFile::open(path).map_err(|e| failure(&e))?;
    let found = match Kind::of(&map) {
        Some(kind) => inspect_binary(kind, &map).map_err(|e| failure(&e))?,
        None if looks_like_json(&map) => inspect_json(path, &map).map_err(|e| failure(&e))?,
        None => inspect_key(path, &map).map_err(|e| failure(&e))?,
    };
    let mut found = found.fact("bytes", map.len() as u64);
    if let Some(most) = most {
        found.contents = contents::contents(path, &map, most).map_err(|e| failure(&e))?;
    }
    Ok(found)
}

fn inspect_binary(kind: Kind, bytes: &[u8]) -> Result<Inspection, ReadError> {
    Ok(match kind {
        Kind::R1cs => {
            let file = R1csFile::parse(bytes)?;
            let header = *file.header();
            Inspection::new("constraints of a circuit (circom's r1cs)")
                .fact("curve", "BLS12-381")
                .fact("constraints", header.constraints)
                .fact("wires", header.wires)
                .fact("public outputs", header.public_outputs)
                .fact("public inputs", header.public_inputs)
                .fact("private inputs", header.private_inputs)
                .fact("labels", header.labels)
                .framed(file.container())
        }
        Kind::Wtns => {
            let file = WtnsFile::parse(bytes)?;
            Inspection::new("a witness (circom's wtns); its values are secrets and not shown")
                .fact("curve", "BLS12-381")
                .fact("values", file.len() as u64)
                .framed(file.container())
        }
        Kind::Zkey => {
            let file = ZkeyFile::parse(bytes)?;
            let header = *file.header();
            let mut inspection = Inspection::new("a proving key for Groth16 (snarkjs's zkey)")
                .fact("curve", "BLS12-381")
                .fact("signals", header.signals)
                .fact("public signals", header.public)
                .fact("domain", header.domain)
                .fact("coefficients", header.coefficients)
                .fact("basis of h", "odd-coset Lagrange")
                .fact("memory at most", header.resident_bytes_max());
            if let Some(contributions) = file.contributions() {
                inspection = inspection.fact("contributions", contributions);
            }
            inspection.framed(file.container())
        }
        Kind::Ptau => {
            let file = PtauFile::parse(bytes)?;
            let header = file.header();
            Inspection::new("powers of tau (snarkjs's ptau)")
                .fact("curve", "BLS12-381")
                .fact("power", header.power)
                .fact("constraints at most", 1_u64 << header.power)
                .fact("power of the ceremony", header.ceremony_power)
                .fact("contributions", header.contributions)
                .fact("prepared for keys", header.prepared)
                .framed(file.container())
        }
    })
}

fn looks_like_json(bytes: &[u8]) -> bool {
    let start = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(start, Some(b'{' | b'['))
}

fn inspect_json(path: &Path, bytes: &[u8]) -> Result<Inspection, String> {
    match ProofReader::open(path) {
        Ok(mut reader) => return inspect_proof_file(&mut reader).map_err(|e| e.to_string()),
        // It is one by its second line, and what is wrong with it is behind that.
        Err(e) if e.line > 2 => return Err(format!("it is a proof file of plimsoll's, but {e}")),
        Err(_) => {}
    }
    if bytes.len() as u64 > JSON_BYTES_MAX {
        return Err("it is JSON, but too long for any file that is known here".to_owned());
    }
    let errors = [
        match read_proof(bytes) {
            Ok(_) => {
                return Ok(Inspection::new("a proof (snarkjs's proof.json)")
                    .fact("curve", "BLS12-381")
                    .fact("points", "all on the curve and in the subgroup"));
            }
            Err(e) => e,
        },
        match VerificationKey::read(bytes) {
            Ok(key) => {
                return Ok(Inspection::new("a verification key (snarkjs's verification_key.json)")
                    .fact("curve", "BLS12-381")
                    .fact("public signals", key.ic.len() as u64 - 1)
                    .fact("points", "all on the curve and in the subgroup"));
            }
            Err(e) => e,
        },
        match read_public(bytes) {
            Ok(inputs) => {
                return Ok(Inspection::new("public inputs (snarkjs's public.json)").fact("inputs", inputs.len() as u64));
            }
            Err(e) => e,
        },
    ];
    // The one that says more than that the form is another's.
    let telling = errors.iter().find(|e| !matches!(e, JsonError::Form { .. }));
    Err(telling.map_or("it is JSON, but neither a proof nor a verification key nor public inputs".to_owned(), |e| {
        e.to_string()
    }))
}

fn inspect_proof_file<R: std::io::BufRead>(
    reader: &mut ProofReader<R>,
) -> Result<Inspection, crate::proof_file::ReadError> {
    let header = reader.header().clone();
    let mut partitions = 0_u64;
    while reader.next_record()?.is_some() {
        partitions += 1;
    }
    Ok(Inspection::new("a proof of knowing a file (plimsoll prove)")
        .fact("file bytes", header.file_bytes)
        .fact("SHA-256", hex::encode(header.digest))
        .fact("key", hex::encode(header.key))
        .fact("set-up", crate::proof_file::SETUP)
        .fact("partitions", partitions))
}

/// What has no magic word: keys and proofs in bellperson's encoding.
fn inspect_key(path: &Path, bytes: &[u8]) -> Result<Inspection, String> {
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    if bytes.len() == Proof::BYTES {
        let proof = Proof::from_bytes(bytes);
        proof.map_err(|e| format!("it is as long as a proof of bellperson's, but {e}"))?;
        return Ok(Inspection::new("a proof (bellperson's encoding)")
            .fact("curve", "BLS12-381")
            .fact("points", "all on the curve and in the subgroup"));
    }
    let trailer = Trailer::of(bytes);
    let payload = trailer.as_ref().map_or(bytes, |trailer| &bytes[..trailer.payload_bytes]);
    let unknown = |e: &dyn std::fmt::Display| {
        format!("it is none of the known formats; as a key of bellperson's it would be damaged: {e}")
    };
    let mut file = open_regular(path).map_err(|e| e.to_string())?;
    let header = KeyHeader::scan(&mut std::io::Cursor::new(payload));
    let header = match header {
        Ok(header) => header,
        Err(e) => {
            // A verifying key is the start of a proving key.
            return match verifying_key(&mut file, bytes.len() as u64) {
                Some(inputs) => Ok(Inspection::new("a verifying key (bellperson's)")
                    .fact("curve", "BLS12-381")
                    .fact("public inputs", inputs as u64)
                    .fact("points", "all on the curve and in the subgroup")),
                None => Err(unknown(&e)),
            };
        }
    };
    let inspection = Inspection::new("a proving key (bellperson's parameters)")
        .fact("curve", "BLS12-381")
        .fact("public inputs", header.ic - 1)
        .fact("private variables", header.l)
        .fact("h points", header.h)
        .fact("a points", header.a)
        .fact("b points in G1", header.b_g1)
        .fact("b points in G2", header.b_g2)
        .fact("basis of h", "powers of tau")
        .fact("memory", header.resident_bytes());
    Ok(match trailer {
        Some(trailer) => inspection.fact("set-up", trailer.worth).fact("circuit", hex::encode(trailer.circuit)),
        None => inspection,
    })
}

fn verifying_key(file: &mut File, len: u64) -> Option<usize> {
    let mut bytes = Vec::new();
    // No verifying key is longer; a proving key was found before.
    BufReader::new(file).take(len.min(JSON_BYTES_MAX)).read_to_end(&mut bytes).ok()?;
    let key = plimsoll_groth16::keys::VerifyingKey::read(std::io::Cursor::new(bytes)).ok()?;
    Some(key.ic.len() - 1)
}

#[cfg(test)]
mod tests;
