//! snarkjs's JSON files: `proof.json`, `public.json`, `verification_key.json`.
//!
//! A point is its projective coordinates in decimal, with 1 (or 0 for infinity) as the last. What is read here is checked as
//! proofs in bytes are: canonical, on the curve, in the subgroup, not infinity.

use std::io::{self, Write};

use blstrs::{G1Affine, G2Affine, Scalar};
use group::prime::PrimeCurveAffine;
use plimsoll_groth16::keys::PointFault;
use plimsoll_groth16::{PreparedVerifyingKey, Proof};
use serde::{Deserialize, Serialize};

use crate::curve::BASE_BYTES;
use crate::decimal;
use crate::points::FilePoint;

mod error;
mod sequences;

pub use error::JsonError;
use sequences::Sequence;

/// snarkjs's name of the proof system.
const PROTOCOL: &str = "groth16";
/// snarkjs's name of the curve.
const CURVE: &str = "bls12381";

type G1Text = [String; 3];
type G2Text = [[String; 2]; 3];

#[derive(Serialize, Deserialize)]
struct ProofText {
    pi_a: G1Text,
    pi_b: G2Text,
    pi_c: G1Text,
    protocol: String,
    curve: String,
}

#[derive(Serialize, Deserialize)]
struct KeyText<Ic> {
    protocol: String,
    curve: String,
    #[serde(rename = "nPublic")]
    public: u64,
    vk_alpha_1: G1Text,
    vk_beta_2: G2Text,
    vk_gamma_2: G2Text,
    vk_delta_2: G2Text,
    #[serde(rename = "IC")]
    ic: Ic,
}

/// What a verifier needs, and all that `verification_key.json` has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationKey {
    /// α in G1.
    pub alpha_g1: G1Affine,
    /// β in G2.
    pub beta_g2: G2Affine,
    /// γ in G2.
    pub gamma_g2: G2Affine,
    /// δ in G2.
    pub delta_g2: G2Affine,
    /// A point for each public input, the constant one first.
    pub ic: Vec<G1Affine>,
}

/// Reads a `proof.json`.
///
/// # Errors
/// See [`JsonError`].
pub fn read_proof(text: &[u8]) -> Result<Proof, JsonError> {
    let proof: ProofText = parse(text)?;
    check_names(&proof.protocol, &proof.curve)?;
    let fault = |element| move |fault| JsonError::Point { element, index: None, fault };
    Ok(Proof {
        a: g1(&proof.pi_a).map_err(fault("pi_a"))?,
        b: g2(&proof.pi_b).map_err(fault("pi_b"))?,
        c: g1(&proof.pi_c).map_err(fault("pi_c"))?,
    })
}

/// Writes a `proof.json`, laid out as snarkjs does.
pub fn write_proof(proof: &Proof) -> String {
    pretty(&ProofText {
        pi_a: g1_text(&proof.a),
        pi_b: g2_text(&proof.b),
        pi_c: g1_text(&proof.c),
        protocol: PROTOCOL.to_owned(),
        curve: CURVE.to_owned(),
    })
}

/// Reads a `public.json`.
///
/// # Errors
/// See [`JsonError`].
pub fn read_public(text: &[u8]) -> Result<Vec<Scalar>, JsonError> {
    let Sequence { elements, first_bad } = parse(text)?;
    match first_bad {
        Some((index, ())) => Err(JsonError::Number { index }),
        None => Ok(elements),
    }
}

/// Writes a `public.json`, laid out as snarkjs does.
pub fn write_public(inputs: &[Scalar]) -> String {
    let mut out = Vec::new();
    match write_public_to(inputs, &mut out).map(|()| String::from_utf8(out)) {
        Ok(Ok(text)) => text,
        _ => unreachable!("digits are written to memory"),
    }
}

/// Writes a `public.json` number by number, so that it is nowhere in memory.
///
/// # Errors
/// What the writer reports.
pub fn write_public_to<W: Write>(inputs: &[Scalar], mut writer: W) -> io::Result<()> {
    let mut separator = "[\n";
    for input in inputs {
        write!(writer, "{separator} \"{}\"", decimal::of_scalar(input))?;
        separator = ",\n";
    }
    writer.write_all(if inputs.is_empty() { b"[]" } else { b"\n]" })
}

impl VerificationKey {
    /// Reads a `verification_key.json`.
    ///
    /// # Errors
    /// See [`JsonError`].
    pub fn read(text: &[u8]) -> Result<Self, JsonError> {
        let key: KeyText<Sequence<G1Affine>> = parse(text)?;
        check_names(&key.protocol, &key.curve)?;
        let fault = |element, index| move |fault| JsonError::Point { element, index, fault };
        let Sequence { elements: ic, first_bad } = key.ic;
        if let Some((index, bad)) = first_bad {
            return Err(fault("IC", Some(index))(bad));
        }
        if Some(ic.len() as u64) != key.public.checked_add(1) {
            return Err(JsonError::InputCount { public: key.public, points: ic.len() });
        }
        Ok(Self {
            alpha_g1: g1(&key.vk_alpha_1).map_err(fault("vk_alpha_1", None))?,
            beta_g2: g2(&key.vk_beta_2).map_err(fault("vk_beta_2", None))?,
            gamma_g2: g2(&key.vk_gamma_2).map_err(fault("vk_gamma_2", None))?,
            delta_g2: g2(&key.vk_delta_2).map_err(fault("vk_delta_2", None))?,
            ic,
        })
    }

    /// Writes a `verification_key.json` that snarkjs verifies with. (Its own have `vk_alphabeta_12` besides, which follows from the
    /// rest, and which nothing reads.)
    pub fn write(&self) -> String {
        pretty(&KeyText {
            protocol: PROTOCOL.to_owned(),
            curve: CURVE.to_owned(),
            public: (self.ic.len() - 1) as u64,
            vk_alpha_1: g1_text(&self.alpha_g1),
            vk_beta_2: g2_text(&self.beta_g2),
            vk_gamma_2: g2_text(&self.gamma_g2),
            vk_delta_2: g2_text(&self.delta_g2),
            ic: self.ic.iter().map(g1_text).collect::<Vec<_>>(),
        })
    }

    /// Makes it ready to verify.
    pub fn prepare(self) -> PreparedVerifyingKey {
        PreparedVerifyingKey::from_elements(self.alpha_g1, self.beta_g2, self.gamma_g2, self.delta_g2, self.ic)
    }
}

impl From<&plimsoll_groth16::keys::VerifyingKey> for VerificationKey {
    fn from(key: &plimsoll_groth16::keys::VerifyingKey) -> Self {
        Self {
            alpha_g1: key.alpha_g1,
            beta_g2: key.beta_g2,
            gamma_g2: key.gamma_g2,
            delta_g2: key.delta_g2,
            ic: key.ic.clone(),
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, JsonError> {
    // serde_json's messages quote words of the file: enough to find the place is its line and column.
    serde_json::from_slice(text).map_err(|e| JsonError::Form { line: e.line(), column: e.column() })
}

fn check_names(protocol: &str, curve: &str) -> Result<(), JsonError> {
    if protocol != PROTOCOL {
        return Err(JsonError::Protocol { found: printable(protocol) });
    }
    match curve {
        CURVE => Ok(()),
        "bn128" | "bn254" => Err(JsonError::Curve { found: "BN254".to_owned() }),
        other => Err(JsonError::Curve { found: printable(other) }),
    }
}

/// The start of a word from a file, for a message.
fn printable(word: &str) -> String {
    word.chars().take(24).flat_map(char::escape_default).collect()
}

/// Indented by one space, as `JSON.stringify(x, null, 1)` does.
fn pretty<T: Serialize>(value: &T) -> String {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    match value.serialize(&mut serializer).map(|()| String::from_utf8(out)) {
        Ok(Ok(text)) => text,
        _ => unreachable!("strings and numbers are written to memory"),
    }
}

/// The point of an uncompressed encoding whose coordinates are below the modulus.
fn checked<P: FilePoint>(point: Option<P>) -> Result<P, PointFault> {
    match point {
        None => Err(PointFault::NotOnCurve),
        // Two zeros are no point of the curve, and infinity to blst.
        Some(point) if point.is_identity().into() || !point.on_curve() => Err(PointFault::NotOnCurve),
        Some(point) if !point.in_subgroup() => Err(PointFault::NotInSubgroup),
        Some(point) => Ok(point),
    }
}

fn g1([x, y, z]: &G1Text) -> Result<G1Affine, PointFault> {
    match z.as_str() {
        "1" => {}
        "0" => return Err(PointFault::Infinity),
        _ => return Err(PointFault::NotCanonical),
    }
    let mut bytes = [0; 2 * BASE_BYTES];
    for (place, text) in bytes.chunks_exact_mut(BASE_BYTES).zip([x, y]) {
        place.copy_from_slice(&decimal::coordinate(text).ok_or(PointFault::NotCanonical)?);
    }
    checked(G1Affine::from_uncompressed_unchecked(&bytes).into())
}

fn g2([x, y, z]: &G2Text) -> Result<G2Affine, PointFault> {
    match [z[0].as_str(), z[1].as_str()] {
        ["1", "0"] => {}
        ["0", "0"] => return Err(PointFault::Infinity),
        _ => return Err(PointFault::NotCanonical),
    }
    let mut bytes = [0; 4 * BASE_BYTES];
    // The encoding has the imaginary part first.
    for (place, text) in bytes.chunks_exact_mut(BASE_BYTES).zip([&x[1], &x[0], &y[1], &y[0]]) {
        place.copy_from_slice(&decimal::coordinate(text).ok_or(PointFault::NotCanonical)?);
    }
    checked(G2Affine::from_uncompressed_unchecked(&bytes).into())
}

fn g1_text(point: &G1Affine) -> G1Text {
    if point.is_identity().into() {
        // As snarkjs writes infinity.
        return ["0", "1", "0"].map(str::to_owned);
    }
    let bytes = point.to_uncompressed();
    let (x, y) = bytes.split_at(BASE_BYTES);
    [decimal::of_coordinate(x), decimal::of_coordinate(y), "1".to_owned()]
}

fn g2_text(point: &G2Affine) -> G2Text {
    let constants = |words: [&str; 2]| words.map(str::to_owned);
    if point.is_identity().into() {
        return [constants(["0", "0"]), constants(["1", "0"]), constants(["0", "0"])];
    }
    let bytes = point.to_uncompressed();
    let part = |index: usize| decimal::of_coordinate(&bytes[index * BASE_BYTES..(index + 1) * BASE_BYTES]);
    [[part(1), part(0)], [part(3), part(2)], constants(["1", "0"])]
}

#[cfg(test)]
mod tests;
