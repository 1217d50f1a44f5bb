//! At which point of the domain each constraint is.

/// Constraint i is at point k·i mod n, for an odd k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    stride: u32,
    /// 1/k mod 2^32, and so modulo every domain's size.
    inverse: u32,
}

impl Places {
    /// # Panics
    /// When `stride` is even.
    pub(crate) fn new(stride: u32) -> Self {
        assert!(stride % 2 == 1, "an even stride misses half of the domain");
        // Newton's iteration: k is its own inverse modulo 8, and each step doubles the bits that are right.
        let mut inverse = stride;
        for _ in 0..4 {
            inverse = inverse.wrapping_mul(2_u32.wrapping_sub(stride.wrapping_mul(inverse)));
        }
        Self { stride, inverse }
    }

    pub(crate) fn are_in_order(self) -> bool {
        self.stride == 1
    }

    /// `n` is a power of two, up to 2^31.
    pub(crate) fn place_of(self, constraint: usize, n: usize) -> usize {
        (constraint as u32).wrapping_mul(self.stride) as usize & (n - 1)
    }

    pub(crate) fn constraint_at(self, place: usize, n: usize) -> usize {
        (place as u32).wrapping_mul(self.inverse) as usize & (n - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_constraint_and_the_other_way() {
        for stride in [1, 3, 5, 0x8000_0001, 0x1234_5677, u32::MAX] {
            let places = Places::new(stride);
            for n in [1, 2, 4, 1024] {
                for i in 0..n {
                    assert_eq!(places.constraint_at(places.place_of(i, n), n), i, "{stride}");
                    assert_eq!(places.place_of(i, n), (i * stride as usize) % n);
                }
            }
        }
    }
}
