//! Points as zkeys and powers of tau hold them: coordinates of 48 bytes, little-endian, in Montgomery's form, zeros for infinity.
//!
//! That is how they lie in memory here, too, so that reading a point is a comparison with the modulus, and not a
//! multiplication.

use blst::blst_fp2;
use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;
use plimsoll_groth16::backend::base_element;
use plimsoll_groth16::keys::PointFault;

use crate::curve::BASE_BYTES;

/// A point of one of the two groups.
pub(crate) trait FilePoint: PrimeCurveAffine + Send + Sync {
    /// Bytes of a point.
    const BYTES: usize;

    /// The point with these coordinates, which may be none of the curve; `None` where one is not below the modulus.
    fn from_coordinates(bytes: &[u8]) -> Option<Self>;

    /// Appends the coordinates.
    #[cfg(any(test, feature = "insecure-setup"))]
    fn write(&self, out: &mut Vec<u8>);

    /// Whether it satisfies the curve's equation.
    fn on_curve(&self) -> bool;

    /// Whether a point of the curve is in the group of prime order.
    fn in_subgroup(&self) -> bool;
}

#[cfg(any(test, feature = "insecure-setup"))]
fn write(coordinate: blst::blst_fp, out: &mut Vec<u8>) {
    for limb in coordinate.l {
        out.extend_from_slice(&limb.to_le_bytes());
    }
}

impl FilePoint for G1Affine {
    const BYTES: usize = 2 * BASE_BYTES;

    fn from_coordinates(bytes: &[u8]) -> Option<Self> {
        let (x, y) = bytes.split_at(BASE_BYTES);
        // With both zero it is blst's point at infinity, as in the file.
        Some(Self::from_raw_unchecked(base_element(x)?.into(), base_element(y)?.into(), false))
    }

    #[cfg(any(test, feature = "insecure-setup"))]
    fn write(&self, out: &mut Vec<u8>) {
        write(self.x().into(), out);
        write(self.y().into(), out);
    }

    fn on_curve(&self) -> bool {
        self.is_on_curve().into()
    }

    fn in_subgroup(&self) -> bool {
        self.is_torsion_free().into()
    }
}

impl FilePoint for G2Affine {
    const BYTES: usize = 4 * BASE_BYTES;

    fn from_coordinates(bytes: &[u8]) -> Option<Self> {
        let part = |index: usize| base_element(&bytes[index * BASE_BYTES..(index + 1) * BASE_BYTES]);
        let (x, y) = (blst_fp2 { fp: [part(0)?, part(1)?] }, blst_fp2 { fp: [part(2)?, part(3)?] });
        Some(Self::from_raw_unchecked(x.into(), y.into(), false))
    }

    #[cfg(any(test, feature = "insecure-setup"))]
    fn write(&self, out: &mut Vec<u8>) {
        for part in [self.x(), self.y()] {
            for part in blst_fp2::from(part).fp {
                write(part, out);
            }
        }
    }

    fn on_curve(&self) -> bool {
        self.is_on_curve().into()
    }

    fn in_subgroup(&self) -> bool {
        self.is_torsion_free().into()
    }
}

/// Whether the bytes stand for the point at infinity.
pub(crate) fn is_infinity(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The point in these bytes, which is on the curve or infinity. Whether it is in the subgroup is another question.
///
/// # Panics
/// When they are not as many as a point takes.
pub(crate) fn point<P: FilePoint>(bytes: &[u8]) -> Result<P, PointFault> {
    assert_eq!(bytes.len(), P::BYTES, "the bytes of one point");
    if is_infinity(bytes) {
        return Ok(P::identity());
    }
    let point = P::from_coordinates(bytes).ok_or(PointFault::NotCanonical)?;
    // blst counts its encoding of infinity, which was dealt with, among the curve's points.
    if point.on_curve() { Ok(point) } else { Err(PointFault::NotOnCurve) }
}

/// The same of bytes that were found to be a point before: nothing is checked but what reading them takes.
pub(crate) fn known_point<P: FilePoint>(bytes: &[u8]) -> Result<P, PointFault> {
    if is_infinity(bytes) { Ok(P::identity()) } else { P::from_coordinates(bytes).ok_or(PointFault::NotCanonical) }
}

/// A point of the curve outside the group of prime order, for tests.
#[cfg(test)]
pub(crate) fn outside_subgroup() -> G1Affine {
    let point = (1_u8..).find_map(|x| {
        // Compressed: a flag, and x.
        let mut bytes = [0; 48];
        (bytes[0], bytes[47]) = (0x80, x);
        Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
    });
    let point = point.expect("half of the numbers are an x");
    assert!(point.on_curve() && !point.in_subgroup());
    point
}

#[cfg(test)]
mod tests {
    use ff::Field;
    use group::{Curve, Group};

    use super::*;

    fn comes_back<P: FilePoint>(point: P) {
        let mut bytes = Vec::new();
        point.write(&mut bytes);
        assert_eq!(bytes.len(), P::BYTES);
        assert!(super::point::<P>(&bytes) == Ok(point));
    }

    #[test]
    fn points_come_back() {
        comes_back(G1Affine::generator());
        comes_back(G1Affine::identity());
        comes_back((blstrs::G1Projective::generator() * blstrs::Scalar::from(77)).to_affine());
        comes_back(G2Affine::generator());
        comes_back(G2Affine::identity());
        comes_back((blstrs::G2Projective::generator() * -blstrs::Scalar::ONE).to_affine());
    }

    #[test]
    fn what_is_no_point_is_told_apart() {
        let mut bytes = Vec::new();
        FilePoint::write(&G1Affine::generator(), &mut bytes);
        let mut off = bytes.clone();
        off[0] ^= 1;
        assert_eq!(point::<G1Affine>(&off).err(), Some(PointFault::NotOnCurve));
        let mut beyond = bytes.clone();
        beyond[48..96].copy_from_slice(&plimsoll_groth16::backend::BASE_MODULUS.map(u64::to_le_bytes).concat());
        assert_eq!(point::<G1Affine>(&beyond).err(), Some(PointFault::NotCanonical));
        // y = 0 with an x is not infinity.
        let mut half = bytes;
        half[48..96].fill(0);
        assert_eq!(point::<G1Affine>(&half).err(), Some(PointFault::NotOnCurve));
    }
}
