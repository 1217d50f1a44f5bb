//! A proof and its 192 bytes.

use std::fmt;

use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;

use crate::keys::PointFault;

/// A Groth16 proof. Its encoding is bellperson's: A (48 bytes), B (96), C (48), compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// A in G1.
    pub a: G1Affine,
    /// B in G2.
    pub b: G2Affine,
    /// C in G1.
    pub c: G1Affine,
}

/// One of a proof's three elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofElement {
    /// A in G1.
    A,
    /// B in G2.
    B,
    /// C in G1.
    C,
}

impl fmt::Display for ProofElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Why bytes are not a proof. (Whether a proof proves anything is the verifier's question.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofDecodeError {
    /// A proof has one length.
    #[error("a proof has {} bytes, not {found}", Proof::BYTES)]
    Length {
        /// The bytes given.
        found: usize,
    },
    /// An element is no point of its group.
    #[error("element {element} of the proof: {fault}")]
    Element {
        /// The element.
        element: ProofElement,
        /// What is wrong with it.
        fault: PointFault,
    },
}

impl Proof {
    /// The length of the encoding.
    pub const BYTES: usize = 192;

    /// The first element that is outside the group of prime order. One that was [decoded](Proof::from_bytes) has none.
    pub fn outside_subgroup(&self) -> Option<ProofElement> {
        let inside = [
            (ProofElement::A, self.a.is_torsion_free()),
            (ProofElement::B, self.b.is_torsion_free()),
            (ProofElement::C, self.c.is_torsion_free()),
        ];
        inside.into_iter().find_map(|(element, inside)| (!bool::from(inside)).then_some(element))
    }

    /// Encodes the proof.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..48].copy_from_slice(&self.a.to_compressed());
        bytes[48..144].copy_from_slice(&self.b.to_compressed());
        bytes[144..].copy_from_slice(&self.c.to_compressed());
        bytes
    }

    /// Decodes a proof. Each element must be canonically encoded, on the curve, in the subgroup and not infinity.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProofDecodeError> {
        let bytes: &[u8; Self::BYTES] =
            bytes.try_into().map_err(|_| ProofDecodeError::Length { found: bytes.len() })?;
        let mut a = [0; 48];
        let mut b = [0; 96];
        let mut c = [0; 48];
        a.copy_from_slice(&bytes[..48]);
        b.copy_from_slice(&bytes[48..144]);
        c.copy_from_slice(&bytes[144..]);
        let element = |element| move |fault| ProofDecodeError::Element { element, fault };
        Ok(Self {
            a: decode_g1(&a).map_err(element(ProofElement::A))?,
            b: decode_g2(&b).map_err(element(ProofElement::B))?,
            c: decode_g1(&c).map_err(element(ProofElement::C))?,
        })
    }
}

macro_rules! decode {
    ($name:ident, $point:ty, $bytes:literal) => {
        fn $name(bytes: &[u8; $bytes]) -> Result<$point, PointFault> {
            let point = Option::<$point>::from(<$point>::from_compressed_unchecked(bytes)).ok_or({
                // The decoder does not say which: an x that is too large, wrong flags, or no y for this x.
                if bytes[0] & 0x80 == 0 { PointFault::NotCanonical } else { PointFault::NotOnCurve }
            })?;
            if point.is_identity().into() {
                return Err(PointFault::Infinity);
            }
            if !bool::from(point.is_on_curve()) {
                return Err(PointFault::NotOnCurve);
            }
            if !bool::from(point.is_torsion_free()) {
                return Err(PointFault::NotInSubgroup);
            }
            Ok(point)
        }
    };
}

decode!(decode_g1, G1Affine, 48);
decode!(decode_g2, G2Affine, 96);

#[cfg(test)]
mod tests;
