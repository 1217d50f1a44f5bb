//! Signed digits of scalars: Booth's recoding, in which every digit depends on its own bits and the one below alone.

use blstrs::Scalar;
use ff::PrimeField;

/// A number below 2^255, little-endian.
pub(crate) type Limbs = [u64; 4];

/// The scalar as a number.
#[inline]
pub(crate) fn limbs(scalar: &Scalar) -> Limbs {
    let bytes = scalar.to_repr();
    let mut limbs = Limbs::default();
    for (limb, bytes) in limbs.iter_mut().zip(bytes.chunks_exact(8)) {
        *limb = u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]);
    }
    limbs
}

/// How many signed digits of `bits` bits a number of `number_bits` bits has.
pub(crate) const fn digit_count(number_bits: usize, bits: usize) -> usize {
    (number_bits + 1).div_ceil(bits)
}

/// The signed digit that starts at bit `first`, from −2^(bits−1) to 2^(bits−1): number = Σ digit(i·bits) · 2^(i·bits).
#[inline]
pub(crate) fn digit(number: &Limbs, first: usize, bits: usize) -> i32 {
    let window = if first == 0 { number[0] << 1 } else { bits_from(number, first - 1) } & ((2 << bits) - 1);
    let rounded = window.div_ceil(2) as i32;
    rounded - (((window >> bits) as i32) << bits)
}

/// At least 32 bits of the number from `first` up.
#[inline]
fn bits_from(number: &Limbs, first: usize) -> u64 {
    let (limb, shift) = (first / 64, first % 64);
    let low = number.get(limb).map_or(0, |limb| limb >> shift);
    let high = number.get(limb + 1).map_or(0, |limb| limb << 1 << (63 - shift));
    low | high
}

#[cfg(test)]
mod tests {
    use ff::Field;

    use super::*;

    #[test]
    fn digits_make_the_number_again() {
        let two = Scalar::from(2);
        let mut numbers = vec![Scalar::ZERO, Scalar::ONE, -Scalar::ONE, two.invert().expect("not zero")];
        numbers
            .extend((1..255).step_by(3).flat_map(|bit| [two.pow_vartime([bit]), two.pow_vartime([bit]) - Scalar::ONE]));
        for bits in [1, 2, 3, 7, 8, 13, 16, 20] {
            for number in &numbers {
                let mut sum = Scalar::ZERO;
                for i in (0..digit_count(255, bits)).rev() {
                    let digit = digit(&limbs(number), i * bits, bits);
                    assert!(digit.unsigned_abs() <= 1 << (bits - 1), "{number:?} in {bits} bits");
                    let absolute = Scalar::from(u64::from(digit.unsigned_abs()));
                    sum = sum * two.pow_vartime([bits as u64]) + if digit < 0 { -absolute } else { absolute };
                }
                assert_eq!(sum, *number, "{number:?} in {bits} bits");
            }
        }
    }
}
