//! `plimsoll inspect --contents`: what is behind the headers, as far as a person can read it. Nothing of a witness.

use std::path::Path;

use plimsoll_circom::ReadError;
use plimsoll_circom::container::Kind;
use plimsoll_circom::map::{MappedFile, Pages};
use plimsoll_circom::r1cs::R1csFile;
use plimsoll_circom::zkey::ZkeyFile;

use crate::circom::explain::{constraints as constraints_of, sym_beside};

/// What there is to say, each with what it is about.
pub(super) type Lines = Vec<(String, String)>;

/// The first `most` elements of a file.
pub(super) fn contents(path: &Path, map: &MappedFile, most: usize) -> Result<Lines, String> {
    let lines = match Kind::of(map) {
        Some(Kind::R1cs) => constraints(path, map, most),
        Some(Kind::Zkey) => key(map, most),
        Some(Kind::Wtns) => return Err("the values of a witness are secrets and not shown".to_owned()),
        _ => {
            return Err(
                "--contents shows constraints of an r1cs file and matrices and contributions of a zkey".to_owned()
            );
        }
    };
    lines.map_err(|e| e.to_string())
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

/// Who contributed, and the matrices' sizes; that a shape can be made of them is found on the way.
fn key(map: &MappedFile, most: usize) -> Result<Lines, ReadError> {
    let file = ZkeyFile::parse_in(map, map)?;
    let [in_a, in_b] = file.coefficient_counts(map as &dyn Pages)?;
    let mut lines = vec![("terms in A".to_owned(), in_a.to_string()), ("terms in B".to_owned(), in_b.to_string())];
    for (index, contribution) in file.contributors()?.iter().enumerate().take(most) {
        let name = contribution.name.as_deref().unwrap_or("without a name");
        let kind = if contribution.beacon { "beacon" } else { "contribution" };
        lines.push((format!("{kind} {}", index + 1), name.to_owned()));
    }
    Ok(lines)
}
