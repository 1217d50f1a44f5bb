//! The quotient where only one vector of the domain's size is held: a lies on the coset as a whole, b and c are made a piece at a time.
//!
//! Let n = k·m. On every k-th point of the domain, from the j-th, a polynomial's m values have an inverse transform of m points; it is
//! the polynomial modulo x^m − ω^(jm), up to powers of ω^j. From the k of them follows, by interpolation in x^m, what it is modulo
//! x^m − (g·ω^l)^m, coefficient by coefficient: and the transform of that has its values on every k-th point of the coset, from the
//! l-th. So b goes to the coset in pieces of m values, for k times the rows and the small transforms where one piece is made at a time;
//! [`TOGETHER`] of them are, for a fraction of that.
//!
//! c need not go to the coset where coefficients are wanted: the k inverse transforms are added to those of a·b as they come.

use blstrs::Scalar;
use ff::Field;
use plimsoll::{Grant, Reservation, pool};

use super::{ProveError, Prover};
use crate::backend::{Transform, for_each_element};
use crate::domain::Domain;
use crate::footprint::PROVERS;
use crate::keys::HBasis;
use crate::r1cs::Values;
use crate::secret::SecretVec;

/// Into how many pieces a vector is cut.
const PIECES: usize = 8;
/// How many of them are made in one pass through the rows.
const TOGETHER: usize = 4;
/// How many elements a task takes.
const ELEMENTS_PER_TASK: usize = 1 << 12;

/// The sizes of the pieces of a domain.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// How many there are; a power of two, as the others.
    pieces: usize,
    together: usize,
    len: usize,
}

impl Layout {
    fn of(n: usize) -> Self {
        let pieces = PIECES.min(n);
        Self { pieces, together: TOGETHER.min(pieces), len: n / pieces }
    }

    /// The pieces that are made together, and one from which they are made.
    fn buffer_len(&self) -> usize {
        (self.together + 1) * self.len
    }
}

/// What the pieces take for a domain of `n` points.
pub(crate) fn buffer_bytes(n: usize) -> u64 {
    (Layout::of(n).buffer_len() * size_of::<Scalar>()) as u64
}

/// Makes the quotient in the place of a's evaluations on the domain, in the basis of the key.
pub(super) fn quotient(
    prover: &Prover,
    grant: &mut Grant,
    assignment: &[Scalar],
    a: &mut [Scalar],
    scratch: &mut Reservation,
) -> Result<(), ProveError> {
    let layout = Layout::of(a.len());
    let mut buffer = SecretVec::zeroed(grant, PROVERS, layout.buffer_len())?;
    let mut making = Making { prover, domain: &prover.domain, layout, assignment, scratch };
    making.transform(&prover.domain, a, Transform::Inverse)?;
    making.transform(&prover.domain, a, Transform::CosetForward)?;
    making.on_coset(Values::Right, &mut buffer, a, |a, b| *a *= b)?;
    match prover.key.h.basis {
        HBasis::PowersOfTau => {
            making.transform(&prover.domain, a, Transform::CosetInverse)?;
            making.subtract_products(&mut buffer, a)?;
            let factor = prover.domain.vanishing_on_coset_inverse();
            for_each_element(a, |_, value| *value *= factor);
        }
        HBasis::OddCosetLagrange => making.on_coset(Values::Product, &mut buffer, a, |a, c| *a -= c)?,
    }
    Ok(())
}

struct Making<'a> {
    prover: &'a Prover,
    domain: &'a Domain,
    layout: Layout,
    assignment: &'a [Scalar],
    scratch: &'a mut Reservation,
}

impl Making<'_> {
    fn transform(&mut self, domain: &Domain, data: &mut [Scalar], transform: Transform) -> Result<(), ProveError> {
        self.prover.check_stop()?;
        let backend = &self.prover.backend;
        backend.ntt(domain, data, transform, self.scratch).map_err(self.prover.backend_error())
    }

    /// Combines each element of `a`, which lie on the coset, with the value there of what the rows come to.
    fn on_coset(
        &mut self,
        values: Values,
        buffer: &mut [Scalar],
        a: &mut [Scalar],
        combine: impl Fn(&mut Scalar, &Scalar) + Sync,
    ) -> Result<(), ProveError> {
        let Layout { pieces, together, len } = self.layout;
        let small = subdomain(self.domain, pieces);
        let (shift, omega, omega_inverse) =
            (self.domain.coset_shift(), self.domain.omega(), self.domain.omega_inverse());
        let weights = weights(self.domain, pieces);
        let (sums, source) = buffer.split_at_mut(together * len);
        for first in (0..pieces).step_by(together) {
            sums.fill(Scalar::ZERO);
            for j in 0..pieces {
                self.prover.r1cs.evaluate_every(values, self.assignment, j, pieces, source);
                self.transform(&small, source, Transform::Inverse)?;
                scale_by_powers(source, &Scalar::ONE, &(shift * omega_inverse.pow_vartime([j as u64])));
                let weights: [Scalar; TOGETHER] = std::array::from_fn(|l| weights[(first + l + pieces - j) % pieces]);
                add_multiples(sums, source, &weights);
            }
            for (l, sum) in sums.chunks_exact_mut(len).enumerate() {
                scale_by_powers(sum, &Scalar::ONE, &omega.pow_vartime([(first + l) as u64]));
                self.transform(&small, sum, Transform::Forward)?;
            }
            pool::for_each_chunk(a, ELEMENTS_PER_TASK.max(pieces), |offset, a| {
                for (i, a) in a.chunks_exact_mut(pieces).enumerate() {
                    for (l, a) in a[first..first + together].iter_mut().enumerate() {
                        combine(a, &sums[l * len + offset / pieces + i]);
                    }
                }
            });
        }
        Ok(())
    }

    /// Subtracts from a's coefficients those of the products, in as few pieces as the buffer has room for.
    fn subtract_products(&mut self, buffer: &mut [Scalar], a: &mut [Scalar]) -> Result<(), ProveError> {
        let pieces = self.layout.pieces / self.layout.together;
        let len = a.len() / pieces;
        let source = &mut buffer[..len];
        let small = subdomain(self.domain, pieces);
        let omega_inverse = self.domain.omega_inverse();
        // −1/k.
        let first: Scalar = -(self.domain.size_inverse() * Scalar::from(len as u64));
        for j in 0..pieces {
            self.prover.r1cs.evaluate_every(Values::Product, self.assignment, j, pieces, source);
            self.transform(&small, source, Transform::Inverse)?;
            let root = omega_inverse.pow_vartime([j as u64]);
            scale_by_powers(source, &first, &root);
            let turn = root.pow_vartime([len as u64]);
            let weights: [Scalar; PIECES] = std::array::from_fn(|q| turn.pow_vartime([q as u64]));
            add_multiples(a, source, &weights);
        }
        Ok(())
    }
}

/// The domain of every so many points, from the first.
fn subdomain(domain: &Domain, every: usize) -> Domain {
    Domain::with_log_size(domain.log_size() - every.trailing_zeros()).unwrap_or_else(|| unreachable!("it is smaller"))
}

/// The Lagrange polynomials of the k-th roots of unity at the points x^m of the coset, from their difference: L_j at (g·ω^l)^m is number
/// l − j. It is (y^k − 1) / (k·(y − 1)) for y = (g·ω^(l − j))^m.
fn weights(domain: &Domain, pieces: usize) -> Vec<Scalar> {
    let len = domain.size() / pieces;
    let one_by_pieces = domain.size_inverse() * Scalar::from(len as u64);
    let numerator = domain.vanishing_at(&domain.coset_shift()) * one_by_pieces;
    let weight = |difference: usize| {
        let y = (domain.coset_shift() * domain.omega().pow_vartime([difference as u64])).pow_vartime([len as u64]);
        let inverse: Option<Scalar> = (y - Scalar::ONE).invert().into();
        // The coset has no point of the domain.
        numerator * inverse.unwrap_or_else(|| unreachable!("y^k is not 1"))
    };
    (0..pieces).map(weight).collect()
}

/// Multiplies value i by `first` · `ratio`^i.
fn scale_by_powers(values: &mut [Scalar], first: &Scalar, ratio: &Scalar) {
    pool::for_each_chunk(values, ELEMENTS_PER_TASK, |offset, values| {
        let mut power = *first * ratio.pow_vartime([offset as u64]);
        for value in values {
            *value *= power;
            power *= ratio;
        }
    });
}

/// Adds `source`, multiplied by a weight each, to the vectors of its length that `sums` is made of.
fn add_multiples(sums: &mut [Scalar], source: &[Scalar], weights: &[Scalar]) {
    // Both are powers of two, so that no task has parts of two vectors.
    pool::for_each_chunk(sums, ELEMENTS_PER_TASK.min(source.len()), |offset, sums| {
        let (vector, first) = (offset / source.len(), offset % source.len());
        for (sum, value) in sums.iter_mut().zip(&source[first..]) {
            *sum += *value * weights[vector];
        }
    });
}
