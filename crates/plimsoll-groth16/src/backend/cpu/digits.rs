//! Signed digits of scalars: Booth's recoding, in which every digit depends on its own bits and the one below alone.

use blst::blst_fr;
use blstrs::Scalar;
use ff::PrimeField;

/// A number below 2^255, little-endian. Words of 32 bits, so that it packs tightly beside an index.
pub(crate) type Limbs = [u32; 8];

/// The scalar as a number.
#[inline]
pub(crate) fn limbs(scalar: &Scalar) -> Limbs {
    let bytes = scalar.to_repr();
    let mut limbs = Limbs::default();
    for (limb, bytes) in limbs.iter_mut().zip(bytes.chunks_exact(4)) {
        *limb = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    limbs
}

/// The number that [`to_number`] left in a scalar's place.
#[inline]
pub(crate) fn number_in(place: &Scalar) -> Limbs {
    let words = blst_fr::from(*place).l;
    std::array::from_fn(|i| (words[i / 2] >> (32 * (i % 2))) as u32)
}

/// Puts a number in a scalar's place, as it is: until [`to_scalar`] undoes it the place holds no scalar.
#[inline]
pub(crate) fn to_number(place: &mut Scalar, number: &Limbs) {
    let words = std::array::from_fn(|i| u64::from(number[2 * i]) | u64::from(number[2 * i + 1]) << 32);
    *place = Scalar::from(blst_fr { l: words });
}

/// Makes a scalar of the number in its place again.
#[inline]
pub(crate) fn to_scalar(place: &mut Scalar) {
    let words = blst_fr::from(*place).l;
    // Numbers are below the order; a half of it, to be exact.
    *place = Option::from(Scalar::from_u64s_le(&words)).unwrap_or(*place);
}

/// The opposite of a number below the order, as another; zero's is the order.
#[inline]
pub(crate) fn opposite(number: &Limbs) -> Limbs {
    let mut opposite = Limbs::default();
    let mut borrow = false;
    for i in 0..8 {
        let (difference, first) = ORDER[i].overflowing_sub(number[i]);
        let (difference, second) = difference.overflowing_sub(u32::from(borrow));
        (opposite[i], borrow) = (difference, first | second);
    }
    opposite
}

/// The order of the scalars, r.
const ORDER: Limbs =
    [0x0000_0001, 0xffff_ffff, 0xfffe_5bfe, 0x53bd_a402, 0x09a1_d805, 0x3339_d808, 0x299d_7d48, 0x73ed_a753];

/// The scalar as a number of at most 254 bits and its sign: the nearer of s and s − r to zero.
#[inline]
pub(crate) fn signed_limbs(scalar: &Scalar) -> (Limbs, bool) {
    let number = limbs(scalar);
    let opposite = opposite(&number);
    // r is below 2^255, so one of the two is below 2^254, and comparing the highest words tells which nearly always.
    if opposite.iter().rev().lt(number.iter().rev()) { (opposite, true) } else { (number, false) }
}

/// The position of the highest bit that is set, plus one; 0 for zero.
#[inline]
pub(crate) fn bit_length(number: &Limbs) -> usize {
    (0..8).rev().find(|i| number[*i] != 0).map_or(0, |i| 32 * (i + 1) - number[i].leading_zeros() as usize)
}

/// How many signed digits of `bits` bits a number of `number_bits` bits has.
pub(crate) const fn digit_count(number_bits: usize, bits: usize) -> usize {
    (number_bits + 1).div_ceil(bits)
}

/// The signed digit that starts at bit `first`, from −2^(bits−1) to 2^(bits−1): number = Σ digit(i·bits) · 2^(i·bits).
#[inline]
pub(crate) fn digit(number: &Limbs, first: usize, bits: usize) -> i32 {
    let window = if first == 0 { u64::from(number[0]) << 1 } else { bits_from(number, first - 1) } & ((2 << bits) - 1);
    let rounded = window.div_ceil(2) as i32;
    rounded - (((window >> bits) as i32) << bits)
}

/// At least 32 bits of the number from `first` up.
#[inline]
fn bits_from(number: &Limbs, first: usize) -> u64 {
    let limb = first / 32;
    let low = number.get(limb).map_or(0, |limb| u64::from(*limb));
    let high = number.get(limb + 1).map_or(0, |limb| u64::from(*limb));
    (low | high << 32) >> (first % 32)
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

    #[test]
    fn a_number_in_a_scalars_place_is_undone() {
        let two = Scalar::from(2);
        let half = two.invert().expect("not zero");
        for scalar in [Scalar::ZERO, Scalar::ONE, -Scalar::ONE, half, half - Scalar::ONE, two.pow_vartime([200])] {
            let (number, negative) = signed_limbs(&scalar);
            let mut place = scalar;
            to_number(&mut place, &number);
            assert_eq!(number_in(&place), number);
            to_scalar(&mut place);
            assert_eq!(place, if negative { -scalar } else { scalar });
        }
    }

    #[test]
    fn signed_numbers_are_the_nearest() {
        let half = Scalar::from(2).invert().expect("not zero");
        for (scalar, length, negative) in [
            (Scalar::ZERO, 0, false),
            (Scalar::ONE, 1, false),
            (-Scalar::ONE, 1, true),
            (Scalar::from(255), 8, false),
            (-Scalar::from(256), 9, true),
            (half, 254, true),
            (half - Scalar::ONE, 254, false),
            (Scalar::from(2).pow_vartime([200]), 201, false),
        ] {
            let (number, is_negative) = signed_limbs(&scalar);
            let expected = limbs(&if negative { -scalar } else { scalar });
            assert_eq!((number, is_negative), (expected, negative), "{scalar:?}");
            assert_eq!(bit_length(&number), length, "{scalar:?}");
        }
    }
}
