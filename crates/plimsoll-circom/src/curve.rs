//! Which curve a file is for: the primes in its header, by name.

use num_bigint::BigUint;

use crate::error::ReadError;

/// Bytes of a scalar.
pub const SCALAR_BYTES: usize = 32;
/// Bytes of a coordinate's part.
pub const BASE_BYTES: usize = 48;

/// No curve that is known here has a longer modulus.
const PRIME_BYTES_MAX: usize = 64;

/// The orders of the groups, which are the fields of circuits: circom's `--prime` and the curve it stands for.
const SCALAR_FIELDS: [(&str, &str); 7] = [
    (BLS12_381_SCALARS, "BLS12-381"),
    (
        "21888242871839275222246405745257275088548364400416034343698204186575808495617",
        "BN254 (circom's default, bn128)",
    ),
    ("21888242871839275222246405745257275088696311157297823662689037894645226208583", "Grumpkin"),
    ("18446744069414584321", "Goldilocks, a field without a curve"),
    ("28948022309329048855892746252171976963363056481941560715954676764349967630337", "Pallas"),
    ("28948022309329048855892746252171976963363056481941647379679742748393362948097", "Vesta"),
    ("115792089210356248762697446949407573530086143415290314195533631308867097853951", "secq256r1"),
];

/// The fields of coordinates.
const BASE_FIELDS: [(&str, &str); 2] = [
    (BLS12_381_BASE, "BLS12-381"),
    ("21888242871839275222246405745257275088696311157297823662689037894645226208583", "BN254 (snarkjs's bn128)"),
];

const BLS12_381_SCALARS: &str = "52435875175126190479447740508185965837690552500527637822603658699938581184513";
const BLS12_381_BASE: &str = "4002409555221667393417789825735904156556882819939007885332058136124031650490837864442687629129015664037894272559787";

/// Fails unless `prime`, little-endian, is the order of BLS12-381's groups.
pub(crate) fn require_scalars(prime: &[u8]) -> Result<(), ReadError> {
    require(prime, &SCALAR_FIELDS)
}

/// Fails unless `prime`, little-endian, is the field of BLS12-381's coordinates.
pub(crate) fn require_base(prime: &[u8]) -> Result<(), ReadError> {
    require(prime, &BASE_FIELDS)
}

fn require(prime: &[u8], fields: &[(&str, &'static str)]) -> Result<(), ReadError> {
    // A file may claim a modulus as long as itself: that is no reason to compute with it.
    if prime.len() > PRIME_BYTES_MAX {
        return Err(ReadError::UnknownField { bits: 8 * prime.len() as u64 });
    }
    let prime = BigUint::from_bytes_le(prime);
    let known =
        fields.iter().find(|(decimal, _)| BigUint::parse_bytes(decimal.as_bytes(), 10).as_ref() == Some(&prime));
    match known {
        Some((decimal, _)) if *decimal == fields[0].0 => Ok(()),
        Some((_, curve)) => Err(ReadError::OtherCurve { curve }),
        // A prime of a hundred digits helps nobody, and one of a million would be a way to fill a terminal.
        None => Err(ReadError::UnknownField { bits: prime.bits() }),
    }
}

#[cfg(test)]
mod tests {
    use blstrs::Scalar;
    use ff::PrimeField;
    use plimsoll_groth16::backend::BASE_MODULUS;

    use super::*;

    fn little_endian(decimal: &str) -> Vec<u8> {
        BigUint::parse_bytes(decimal.as_bytes(), 10).expect("decimal").to_bytes_le()
    }

    #[test]
    fn the_table_knows_our_fields() {
        let modulus = Scalar::MODULUS.strip_prefix("0x").expect("hex");
        let modulus = BigUint::parse_bytes(modulus.as_bytes(), 16).expect("hex");
        assert_eq!(modulus.to_string(), BLS12_381_SCALARS);
        assert!(require_scalars(&modulus.to_bytes_le()).is_ok());
        assert_eq!(little_endian(BLS12_381_BASE), BASE_MODULUS.map(u64::to_le_bytes).concat());
        assert!(require_base(&little_endian(BLS12_381_BASE)).is_ok());
    }

    #[test]
    fn other_curves_are_named() {
        let error = require_scalars(&little_endian(SCALAR_FIELDS[1].0)).expect_err("BN254").to_string();
        assert!(error.contains("BN254") && error.contains("--prime bls12381"), "{error}");
        let error = require_base(&little_endian(BASE_FIELDS[1].0)).expect_err("BN254").to_string();
        assert!(error.contains("BN254"), "{error}");
        let error = require_scalars(&[0xff; 32]).expect_err("no prime").to_string();
        assert!(error.contains("256 bits"), "{error}");
        assert!(require_scalars(&[]).is_err());
        let error = require_scalars(&vec![1; 1 << 20]).expect_err("no prime").to_string();
        assert!(error.contains("8388608 bits"), "{error}");
    }
}
