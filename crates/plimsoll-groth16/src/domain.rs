//! The evaluation domain: the powers of a 2^k-th root of unity ω, on which constraint i is the point ω^i.
//!
//! A [`Domain`] is a handful of constants. Whoever transforms vectors over it makes the twiddle factors from `omega`.

use blstrs::Scalar;
use ff::{Field, PrimeField};

/// The multiplicative subgroup of order 2^k of the scalar field, and the coset g·⟨ω⟩ on which the vanishing polynomial
/// t(x) = x^n − 1 is a non-zero constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    log_size: u32,
    omega: Scalar,
    omega_inverse: Scalar,
    size_inverse: Scalar,
    coset_shift: Scalar,
    coset_shift_inverse: Scalar,
    vanishing_on_coset_inverse: Scalar,
}

/// Why there is no domain for so many points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// The scalar field has roots of unity up to order 2^32, and bellperson stops one short of that.
    #[error("{points} constraints need a larger domain than 2^{max_log_size}; split the circuit")]
    TooLarge {
        /// The points that were asked for.
        points: usize,
        /// The largest supported exponent.
        max_log_size: u32,
    },
}

impl Domain {
    /// The largest supported exponent (31 for BLS12-381: as bellperson, which makes keys of this shape).
    pub const MAX_LOG_SIZE: u32 = Scalar::S - 1;

    /// The smallest domain with at least `points` points (and at least one).
    pub fn new(points: usize) -> Result<Self, DomainError> {
        let too_large = DomainError::TooLarge { points, max_log_size: Self::MAX_LOG_SIZE };
        let log_size = points.max(1).checked_next_power_of_two().ok_or(too_large)?.trailing_zeros();
        Self::with_log_size(log_size).ok_or(too_large)
    }

    /// The domain with 2^`log_size` points, or `None` above [`Domain::MAX_LOG_SIZE`].
    pub fn with_log_size(log_size: u32) -> Option<Self> {
        if log_size > Self::MAX_LOG_SIZE {
            return None;
        }
        let (mut omega, mut omega_inverse) = (Scalar::ROOT_OF_UNITY, Scalar::ROOT_OF_UNITY_INV);
        for _ in log_size..Scalar::S {
            omega = omega.square();
            omega_inverse = omega_inverse.square();
        }
        let size = 1_u64 << log_size;
        let coset_shift = Scalar::MULTIPLICATIVE_GENERATOR;
        let invert = |value: Scalar| Option::<Scalar>::from(value.invert());
        Some(Self {
            log_size,
            omega,
            omega_inverse,
            size_inverse: invert(Scalar::from(size))?,
            coset_shift,
            coset_shift_inverse: invert(coset_shift)?,
            vanishing_on_coset_inverse: invert(coset_shift.pow_vartime([size]) - Scalar::ONE)?,
        })
    }

    /// This domain with another coset: the odd points of the domain of twice the size, where t(x) = −2. snarkjs's keys hold
    /// the quotient by its values there.
    pub fn with_odd_coset(mut self) -> Self {
        let (mut shift, mut shift_inverse) = (Scalar::ROOT_OF_UNITY, Scalar::ROOT_OF_UNITY_INV);
        for _ in self.log_size + 1..Scalar::S {
            shift = shift.square();
            shift_inverse = shift_inverse.square();
        }
        self.coset_shift = shift;
        self.coset_shift_inverse = shift_inverse;
        self.vanishing_on_coset_inverse = -Scalar::TWO_INV;
        self
    }

    /// The number of points, n = 2^k.
    pub fn size(&self) -> usize {
        1 << self.log_size
    }

    /// k, the binary logarithm of the number of points.
    pub fn log_size(&self) -> u32 {
        self.log_size
    }

    /// ω, which generates the domain.
    pub fn omega(&self) -> Scalar {
        self.omega
    }

    /// 1/ω.
    pub fn omega_inverse(&self) -> Scalar {
        self.omega_inverse
    }

    /// 1/n, the factor of the inverse transform.
    pub fn size_inverse(&self) -> Scalar {
        self.size_inverse
    }

    /// g, which shifts the domain to the coset: the field's multiplicative generator, unless
    /// [`Domain::with_odd_coset`] said otherwise.
    pub fn coset_shift(&self) -> Scalar {
        self.coset_shift
    }

    /// 1/g.
    pub fn coset_shift_inverse(&self) -> Scalar {
        self.coset_shift_inverse
    }

    /// 1/(g^n − 1): what a product on the coset is multiplied by to divide it by the vanishing polynomial.
    pub fn vanishing_on_coset_inverse(&self) -> Scalar {
        self.vanishing_on_coset_inverse
    }

    /// t(x) = x^n − 1.
    pub fn vanishing_at(&self, x: &Scalar) -> Scalar {
        x.pow_vartime([1_u64 << self.log_size]) - Scalar::ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omega_has_exactly_the_order_of_the_domain() {
        for log_size in 0..=Domain::MAX_LOG_SIZE {
            let domain = Domain::with_log_size(log_size).expect("supported");
            assert_eq!(domain.vanishing_at(&domain.omega()), Scalar::ZERO, "2^{log_size}");
            if log_size > 0 {
                assert_ne!(domain.omega().pow_vartime([1_u64 << (log_size - 1)]), Scalar::ONE, "2^{log_size}");
            }
            assert_eq!(domain.omega() * domain.omega_inverse(), Scalar::ONE);
            assert_eq!(domain.size_inverse() * Scalar::from(1_u64 << log_size), Scalar::ONE);
            assert_eq!(domain.vanishing_at(&domain.coset_shift()) * domain.vanishing_on_coset_inverse(), Scalar::ONE);
            assert_eq!(domain.coset_shift() * domain.coset_shift_inverse(), Scalar::ONE);
            let odd = domain.clone().with_odd_coset();
            assert_eq!(odd.coset_shift().square(), domain.omega(), "2^{log_size}");
            assert_eq!(odd.vanishing_at(&odd.coset_shift()), -Scalar::from(2));
            assert_eq!(odd.vanishing_at(&odd.coset_shift()) * odd.vanishing_on_coset_inverse(), Scalar::ONE);
            assert_eq!(odd.coset_shift() * odd.coset_shift_inverse(), Scalar::ONE);
        }
    }

    #[test]
    fn a_domain_holds_at_least_the_points_asked_for() {
        for (points, size) in [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (65_535, 65_536), (65_537, 131_072)] {
            assert_eq!(Domain::new(points).expect("small").size(), size, "{points} points");
        }
    }

    #[test]
    fn a_domain_beyond_the_largest_is_an_error() {
        assert!(Domain::new(1 << 31).is_ok());
        for points in [(1_usize << 31) + 1, 1 << 32, usize::MAX] {
            assert_eq!(Domain::new(points), Err(DomainError::TooLarge { points, max_log_size: 31 }));
        }
    }
}
