//! Scalars as the files hold them: 32 bytes, little-endian, as they are or in Montgomery's form.

use blst::blst_fr;
use blstrs::Scalar;

use crate::curve::SCALAR_BYTES;

/// r, the order of the groups, in 64-bit limbs.
pub(crate) const MODULUS: [u64; 4] =
    [0xffff_ffff_0000_0001, 0x53bd_a402_fffe_5bfe, 0x3339_d808_09a1_d805, 0x73ed_a753_299d_7d48];

/// The scalar in 32 bytes, unless they are not below the modulus or not 32.
pub(crate) fn scalar(bytes: &[u8]) -> Option<Scalar> {
    Scalar::from_bytes_le(bytes.try_into().ok()?).into()
}

/// The scalar c of a zkey's coefficient, which holds c·R² for R = 2^256: as Montgomery's form, c·R.
pub(crate) fn coefficient(bytes: &[u8]) -> Option<Scalar> {
    // Read as Montgomery's form the bytes stand for c·R.
    Some(from_montgomery(bytes)? * r_inverse())
}

/// The bytes of a coefficient.
#[cfg(any(test, feature = "insecure-setup"))]
pub(crate) fn to_coefficient(scalar: &Scalar) -> [u8; SCALAR_BYTES] {
    let twice = *scalar * r();
    let mut bytes = [0; SCALAR_BYTES];
    for (chunk, limb) in bytes.chunks_exact_mut(8).zip(blst_fr::from(twice).l) {
        chunk.copy_from_slice(&limb.to_le_bytes());
    }
    bytes
}

/// The scalar whose representation in Montgomery's form is these bytes.
fn from_montgomery(bytes: &[u8]) -> Option<Scalar> {
    let mut limbs = [0_u64; 4];
    if bytes.len() != SCALAR_BYTES {
        return None;
    }
    for (limb, chunk) in limbs.iter_mut().zip(bytes.chunks_exact(8)) {
        *limb = u64::from_le_bytes(chunk.try_into().ok()?);
    }
    limbs.iter().rev().lt(MODULUS.iter().rev()).then(|| Scalar::from(blst_fr { l: limbs }))
}

/// R = 2^256 as a scalar.
#[cfg(any(test, feature = "insecure-setup"))]
fn r() -> Scalar {
    use ff::Field;
    Scalar::from(2).pow_vartime([256])
}

fn r_inverse() -> Scalar {
    // 1 in Montgomery's form read as a plain number's representation.
    Scalar::from(blst_fr { l: [1, 0, 0, 0] })
}

#[cfg(test)]
mod tests {
    use ff::{Field, PrimeField};

    use super::*;

    #[test]
    fn coefficients_come_back() {
        for value in [Scalar::ZERO, Scalar::ONE, -Scalar::ONE, Scalar::from(12345), Scalar::ROOT_OF_UNITY] {
            assert_eq!(coefficient(&to_coefficient(&value)), Some(value));
        }
        // c·R² for c = 1, from the definition.
        assert_eq!(to_coefficient(&Scalar::ONE), Scalar::from(2).pow_vartime([512]).to_repr());
        assert_eq!(r() * r_inverse(), Scalar::ONE);
    }

    #[test]
    fn numbers_beyond_the_modulus_are_none() {
        let modulus: Vec<u8> = MODULUS.iter().flat_map(|limb| limb.to_le_bytes()).collect();
        assert_eq!((scalar(&modulus), coefficient(&modulus)), (None, None));
        assert_eq!((scalar(&[0xff; 32]), coefficient(&[0xff; 32])), (None, None));
        assert_eq!((scalar(&[0; 31]), coefficient(&[0; 33])), (None, None));
        let mut below = modulus;
        below[0] -= 1;
        assert_eq!(scalar(&below), Some(-Scalar::ONE));
        assert!(coefficient(&below).is_some());
    }
}
