//! From snarkjs's order of a domain's points to everybody's.

use blstrs::Scalar;
use ff::{Field, PrimeField};

/// snarkjs's root of unity as a power of ours: ω′ = ω^k, with the same odd k for every size of the domain, since both are what is
/// left of a root of order 2^32 after squaring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootRatio(u32);

impl RootRatio {
    /// Of snarkjs's root of unity for BLS12-381, which is a power of 5, the smallest number that is no square.
    pub fn snarkjs() -> Self {
        // (r − 1)/2^32 is odd, and `ROOT_OF_UNITY` is a generator to that power.
        let exponent: [u64; 4] = {
            let minus_one = -Scalar::ONE;
            let bytes = minus_one.to_repr();
            let mut limbs = [0; 5];
            for (limb, chunk) in limbs.iter_mut().zip(bytes.chunks_exact(8)) {
                *limb = chunk.iter().rev().fold(0, |limb: u64, byte| limb << 8 | u64::from(*byte));
            }
            std::array::from_fn(|i| limbs[i] >> 32 | limbs[i + 1] << 32)
        };
        Self::of(&Scalar::from(5).pow_vartime(exponent))
    }

    /// Of a root of order 2^32.
    fn of(root: &Scalar) -> Self {
        // The discrete logarithm, bit by bit: what is left after the lower bits has a lower order exactly if the next is 0.
        let mut exponent = 0_u32;
        for bit in 0..Scalar::S {
            let left = *root * Scalar::ROOT_OF_UNITY_INV.pow_vartime([u64::from(exponent)]);
            if left.pow_vartime([1_u64 << (Scalar::S - 1 - bit)]) != Scalar::ONE {
                exponent |= 1 << bit;
            }
        }
        Self(exponent)
    }

    /// k: constraint i is at our point k·i mod n.
    pub fn stride(self) -> u32 {
        self.0
    }

    /// The place in our order of snarkjs's odd point `index` of a domain of `n` points: its point 2·index + 1 of the domain of twice
    /// the size is our point 2·place + 1.
    pub(crate) fn odd_place(self, index: usize, n: usize) -> usize {
        let point = (2 * index + 1).wrapping_mul(self.0 as usize) & (2 * n - 1);
        point / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_makes_one_root_of_the_other() {
        for exponent in [1, 3, 0x1234_5677, u32::MAX] {
            let root = Scalar::ROOT_OF_UNITY.pow_vartime([u64::from(exponent)]);
            assert_eq!(RootRatio::of(&root), RootRatio(exponent));
        }
        let ratio = RootRatio::snarkjs();
        let root = Scalar::ROOT_OF_UNITY.pow_vartime([u64::from(ratio.stride())]);
        assert_eq!(root.pow_vartime([1_u64 << 31]), -Scalar::ONE);
        // What wasmcurves computes for this field: 5 to (r − 1)/2^32, so its 2^32nd power is one, and 5's quotient by it has odd order.
        assert_eq!(ratio.stride() % 2, 1);
    }

    #[test]
    fn every_place_is_taken_once() {
        let ratio = RootRatio::snarkjs();
        for n in [1, 2, 8, 1024] {
            let mut taken = vec![false; n];
            for index in 0..n {
                assert!(!std::mem::replace(&mut taken[ratio.odd_place(index, n)], true), "n = {n}");
            }
        }
    }
}
