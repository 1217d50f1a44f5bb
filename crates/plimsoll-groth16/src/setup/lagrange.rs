//! The Lagrange polynomials of a domain, evaluated at one point.

use blstrs::Scalar;
use ff::Field;
use plimsoll::pool;

use crate::domain::Domain;

/// L_i(x) for each point ω^i of the domain, or `None` when x is a point of the domain:
/// L_i(x) = (xⁿ − 1)/n · ωⁱ/(x − ωⁱ), with one inversion a chunk.
pub(super) fn lagrange_at(domain: &Domain, x: &Scalar) -> Option<Vec<Scalar>> {
    let factor = domain.vanishing_at(x) * domain.size_inverse();
    if factor.is_zero_vartime() {
        return None;
    }
    let mut values = vec![Scalar::ZERO; domain.size()];
    let chunk = domain.size().div_ceil(4 * pool::current_threads()).max(1);
    pool::for_each_chunk(&mut values, chunk, |first, values| {
        let start = domain.omega().pow_vartime([first as u64]);
        // Products of the differences so far, then back through the inverse of all (Montgomery's trick).
        let (mut product, mut power) = (Scalar::ONE, start);
        for value in values.iter_mut() {
            *value = product;
            product *= *x - power;
            power *= domain.omega();
        }
        // No difference is zero, since x is not in the domain.
        let mut inverse = Option::<Scalar>::from(product.invert()).unwrap_or(Scalar::ZERO);
        for value in values.iter_mut().rev() {
            power *= domain.omega_inverse();
            *value *= inverse * power * factor;
            inverse *= *x - power;
        }
    });
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_interpolate() {
        let x = Scalar::from(0xdead_beef);
        for log_size in [0, 1, 2, 5, 10] {
            let domain = Domain::with_log_size(log_size).expect("small");
            let values = lagrange_at(&domain, &x).expect("not a point of the domain");
            // Degree below n: Σ f(ωⁱ)·Lᵢ(x) = f(x), here for f = y^k.
            for degree in [0, 1, domain.size() / 2, domain.size() - 1] {
                let degree = (degree % domain.size()) as u64;
                let sum: Scalar = (0_u64..)
                    .zip(&values)
                    .map(|(i, value)| domain.omega().pow_vartime([i * degree % domain.size() as u64]) * value)
                    .sum();
                assert_eq!(sum, x.pow_vartime([degree]), "2^{log_size}, degree {degree}");
            }
            assert_eq!(lagrange_at(&domain, &domain.omega()), None);
        }
    }
}
