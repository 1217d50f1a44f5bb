//! `plimsoll inspect --contents`: what is behind the headers, as far as a person can read it. Nothing of a witness.

use std::fmt::Display;
use std::path::Path;

use blstrs::{G1Affine, G2Affine, Scalar};
use plimsoll_circom::ReadError;
use plimsoll_circom::container::Kind;
use plimsoll_circom::json::{VerificationKey, read_proof, read_public};
use plimsoll_circom::map::{MappedFile, Pages};
use plimsoll_circom::ptau::PtauFile;
use plimsoll_circom::r1cs::R1csFile;
use plimsoll_circom::zkey::ZkeyFile;
use plimsoll_groth16::Proof;
use plimsoll_groth16::keys::{KeyHeader, Section, VerifyingKey};

use super::JSON_BYTES_MAX;
use crate::circom::explain::{constraints as constraints_of, sym_beside};
use crate::key_cache::Trailer;
use crate::proof_file::ProofReader;

/// What there is to say, each with what it is about.
pub(super) type Lines = Vec<(String, String)>;

/// The first `most` elements of a file, which was found to be one of those that are known. Points are shown as everybody writes them who
/// does not write decimals: compressed, in hexadecimal.
pub(super) fn contents(path: &Path, map: &MappedFile, most: usize) -> Result<Lines, String> {
    let lines = match Kind::of(map) {
        Some(Kind::R1cs) => constraints(path, map, most),
        Some(Kind::Zkey) => key(map, most),
        Some(Kind::Ptau) => powers(map, most),
        Some(Kind::Wtns) => return Err("the values of a witness are secrets and not shown".to_owned()),
        None if super::looks_like_json(map) => return json(path, map, most),
        None => return encoded(map, most),
    };
    lines.map_err(|e| e.to_string())
}

/// Powers of tau, and who contributed to them.
fn powers(map: &MappedFile, most: usize) -> Result<Lines, ReadError> {
    let file = PtauFile::parse(map)?;
    let (in_g1, in_g2) = file.powers(most)?;
    let [by_alpha, by_beta] = file.scaled_powers(most)?;
    let mut lines = Lines::new();
    g1(&mut lines, "tau^", &in_g1);
    for (i, point) in in_g2.iter().enumerate() {
        lines.push((format!("tau^{i} in G2"), hex::encode(point.to_compressed())));
    }
    g1(&mut lines, "alpha * tau^", &by_alpha);
    g1(&mut lines, "beta * tau^", &by_beta);
    contributors(&mut lines, &file.contributors()?, most);
    Ok(lines)
}

fn contributors(lines: &mut Lines, all: &[plimsoll_circom::Contribution], most: usize) {
    for (index, contribution) in all.iter().enumerate().take(most) {
        let name = contribution.name.as_deref().unwrap_or("without a name");
        let kind = if contribution.beacon { "beacon" } else { "contribution" };
        lines.push((format!("{kind} {}", index + 1), name.to_owned()));
    }
}

fn g1(lines: &mut Lines, name: &str, points: &[G1Affine]) {
    for (i, point) in points.iter().enumerate() {
        lines.push((format!("{name}{i}"), hex::encode(point.to_compressed())));
    }
}

fn proof(proof: &Proof) -> Lines {
    vec![
        ("A".to_owned(), hex::encode(proof.a.to_compressed())),
        ("B".to_owned(), hex::encode(proof.b.to_compressed())),
        ("C".to_owned(), hex::encode(proof.c.to_compressed())),
    ]
}

/// A proof, a verification key or public inputs of snarkjs's, or a proof of a file's.
fn json(path: &Path, map: &MappedFile, most: usize) -> Result<Lines, String> {
    if let Ok(mut reader) = ProofReader::open(path) {
        let mut lines = Lines::new();
        for partition in 0..most {
            let Some(record) = reader.next_record().map_err(|e| e.to_string())? else { break };
            let states = (hex::encode(record.start.to_bytes()), hex::encode(record.end.to_bytes()));
            lines.push((
                format!("partition {partition}"),
                format!("{} blocks, from {} to {}", record.blocks, states.0, states.1),
            ));
            lines.push((format!("proof {partition}"), hex::encode(record.proof)));
        }
        return Ok(lines);
    }
    if map.len() as u64 > JSON_BYTES_MAX {
        return Err("it is too long for what is known here".to_owned());
    }
    if let Ok(found) = read_proof(map) {
        return Ok(proof(&found));
    }
    if let Ok(key) = VerificationKey::read(map) {
        let mut lines = vec![("alpha in G1".to_owned(), hex::encode(key.alpha_g1.to_compressed()))];
        for (name, point) in [("beta", key.beta_g2), ("gamma", key.gamma_g2), ("delta", key.delta_g2)] {
            lines.push((format!("{name} in G2"), hex::encode(point.to_compressed())));
        }
        g1(&mut lines, "IC ", &key.ic[..most.min(key.ic.len())]);
        return Ok(lines);
    }
    let inputs: Vec<Scalar> = read_public(map).map_err(|e| e.to_string())?;
    let decimal = |input: &Scalar| plimsoll_circom::json::write_public(std::slice::from_ref(input));
    let number = |text: String| text.chars().filter(char::is_ascii_digit).collect();
    let shown = inputs.iter().take(most).enumerate();
    Ok(shown.map(|(i, input)| (format!("input {i}"), number(decimal(input)))).collect())
}

/// A key or a proof in bellperson's encoding.
fn encoded(bytes: &[u8], most: usize) -> Result<Lines, String> {
    if bytes.len() == Proof::BYTES {
        return Proof::from_bytes(bytes).map(|found| proof(&found)).map_err(|e| e.to_string());
    }
    let payload = Trailer::of(bytes).map_or(bytes, |trailer| &bytes[..trailer.payload_bytes]);
    let Ok(header) = KeyHeader::scan(&mut std::io::Cursor::new(payload)) else {
        let key = VerifyingKey::read(std::io::Cursor::new(payload)).map_err(|e| e.to_string())?;
        let mut lines = constants(payload)?;
        g1(&mut lines, "ic ", &key.ic[..most.min(key.ic.len())]);
        return Ok(lines);
    };
    let mut lines = constants(payload)?;
    for (section, start, count) in header.queries() {
        for i in 0..most.min(count as usize) {
            let point = match section {
                Section::BG2 => in_g2(payload, start as usize + 192 * i),
                _ => in_g1(payload, start as usize + 96 * i),
            };
            lines.push((format!("{section} {i}"), point.map_err(|()| damaged(&section, i))?));
        }
    }
    Ok(lines)
}

/// α, β, γ, δ at the start of a key.
fn constants(payload: &[u8]) -> Result<Lines, String> {
    let mut at = 0;
    let named = [("alpha", 1), ("beta", 1), ("beta", 2), ("gamma", 2), ("delta", 1), ("delta", 2)];
    let constants = named.into_iter().enumerate().map(|(index, (name, group))| {
        let point = if group == 1 { in_g1(payload, at) } else { in_g2(payload, at) };
        at += 96 * group;
        Ok((format!("{name} in G{group}"), point.map_err(|()| damaged(&Section::Constants, index))?))
    });
    constants.collect()
}

fn damaged(section: &dyn Display, index: usize) -> String {
    format!("point {index} of {section} is none of the curve")
}

/// The point whose uncompressed encoding is at a place, compressed.
fn in_g1(bytes: &[u8], at: usize) -> Result<String, ()> {
    let encoding = bytes.get(at..at + 96).and_then(|bytes| <&[u8; 96]>::try_from(bytes).ok()).ok_or(())?;
    Option::<G1Affine>::from(G1Affine::from_uncompressed(encoding)).map(|p| hex::encode(p.to_compressed())).ok_or(())
}

fn in_g2(bytes: &[u8], at: usize) -> Result<String, ()> {
    let encoding = bytes.get(at..at + 192).and_then(|bytes| <&[u8; 192]>::try_from(bytes).ok()).ok_or(())?;
    Option::<G2Affine>::from(G2Affine::from_uncompressed(encoding)).map(|p| hex::encode(p.to_compressed())).ok_or(())
}

/// How many terms the matrices have, and the first constraints, by the signals' names if there is a `.sym` file beside.
fn constraints(path: &Path, map: &MappedFile, most: usize) -> Result<Lines, ReadError> {
    let file = R1csFile::parse_in(map, map)?;
    let (mut terms, mut longest) = ([0_u64; 3], 0_u64);
    let mut at = (u32::MAX, 0_u64);
    file.for_each_term::<ReadError>(|matrix, row, _, _| {
        terms[matrix] += 1;
        at = if at.0 == row { (row, at.1 + 1) } else { (row, 1) };
        longest = longest.max(at.1);
        Ok(())
    })?;
    let mut lines: Lines = ["terms in A", "terms in B", "terms in C"]
        .into_iter()
        .zip(terms)
        .map(|(name, count)| (name.to_owned(), count.to_string()))
        .collect();
    lines.push(("terms of the longest constraint".to_owned(), longest.to_string()));
    let sym = sym_beside(path);
    let shown = constraints_of(&file, 0..most.min(file.header().constraints as usize), sym.as_deref())?;
    lines.extend(shown.into_iter().enumerate().map(|(index, text)| (format!("constraint {index}"), text)));
    Ok(lines)
}

/// The matrices' sizes, the verifying key, and who contributed.
fn key(map: &MappedFile, most: usize) -> Result<Lines, ReadError> {
    let file = ZkeyFile::parse_in(map, map)?;
    let [in_a, in_b] = file.coefficient_counts(map as &dyn Pages)?;
    let mut lines = vec![("terms in A".to_owned(), in_a.to_string()), ("terms in B".to_owned(), in_b.to_string())];
    let vk = file.read_verifying_key(map)?;
    lines.push(("alpha in G1".to_owned(), hex::encode(vk.alpha_g1.to_compressed())));
    lines.push(("beta in G1".to_owned(), hex::encode(vk.beta_g1.to_compressed())));
    lines.push(("delta in G1".to_owned(), hex::encode(vk.delta_g1.to_compressed())));
    for (name, point) in [("beta", vk.beta_g2), ("gamma", vk.gamma_g2), ("delta", vk.delta_g2)] {
        lines.push((format!("{name} in G2"), hex::encode(point.to_compressed())));
    }
    g1(&mut lines, "IC ", &vk.ic[..most.min(vk.ic.len())]);
    contributors(&mut lines, &file.contributors()?, most);
    Ok(lines)
}
