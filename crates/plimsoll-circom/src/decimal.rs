//! Numbers as snarkjs's JSON files have them: decimal digits in quotes.

use blstrs::Scalar;
use num_bigint::BigUint;
use plimsoll_groth16::backend::base_element;

use crate::curve::BASE_BYTES;

/// Digits of the largest number that occurs, a coordinate of 381 bits.
const DIGITS_MAX: usize = 115;

/// The number, little-endian in `N` bytes, unless it is none or needs more.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let canonical = text == "0" || !text.starts_with('0');
    if text.is_empty() || text.len() > DIGITS_MAX || !canonical || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = BigUint::parse_bytes(text.as_bytes(), 10)?.to_bytes_le();
    let mut bytes = [0; N];
    bytes.get_mut(..digits.len())?.copy_from_slice(&digits);
    Some(bytes)
}

/// A coordinate's part in 48 bytes, big-endian, as points are encoded. Below the modulus, which has 381 bits.
pub(crate) fn coordinate(text: &str) -> Option<[u8; BASE_BYTES]> {
    let mut bytes: [u8; BASE_BYTES] = bytes(text)?;
    base_element(&bytes)?;
    bytes.reverse();
    Some(bytes)
}

/// A scalar, below the modulus.
pub(crate) fn scalar(text: &str) -> Option<Scalar> {
    // Most are small, and a long array of them is not worth large numbers' arithmetic.
    if text.len() < 20 && text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0')) {
        return text.parse().ok().map(|number: u64| Scalar::from(number));
    }
    Scalar::from_bytes_le(&bytes(text)?).into()
}

/// The digits of a coordinate's part, big-endian.
pub(crate) fn of_coordinate(bytes: &[u8]) -> String {
    BigUint::from_bytes_be(bytes).to_string()
}

/// The digits of a scalar.
pub(crate) fn of_scalar(scalar: &Scalar) -> String {
    BigUint::from_bytes_le(&scalar.to_bytes_le()).to_string()
}

#[cfg(test)]
mod tests {
    use ff::Field;

    use super::*;

    #[test]
    fn numbers_come_back() {
        let (nineteen, twenty) = (Scalar::from(9_999_999_999_999_999_999), Scalar::from(10_000_000_000_000_000_000));
        for value in [Scalar::ZERO, Scalar::ONE, -Scalar::ONE, Scalar::from(u64::MAX), nineteen, twenty] {
            assert_eq!(scalar(&of_scalar(&value)), Some(value));
        }
        let mut modulus = plimsoll_groth16::backend::BASE_MODULUS.map(u64::to_le_bytes).concat();
        modulus.reverse();
        let mut largest: [u8; BASE_BYTES] = modulus[..].try_into().unwrap();
        largest[47] -= 1;
        assert_eq!(coordinate(&of_coordinate(&largest)), Some(largest));
        assert!(of_coordinate(&largest).len() <= DIGITS_MAX);
        assert_eq!(coordinate(&of_coordinate(&modulus)), None);
    }

    #[test]
    fn what_is_no_canonical_number_is_refused() {
        let order = "52435875175126190479447740508185965837690552500527637822603658699938581184513";
        let long = "1".repeat(1_000_000);
        for text in ["", "-1", "+1", " 1", "1 ", "0x1", "01", "00", "1e3", "1.0", "\u{661}", order, &long] {
            assert_eq!(scalar(text), None, "{text:.20}");
        }
    }
}
