//! Powers of tau for development: made in seconds from secrets that this process knows, where a ceremony takes hours.
//!
//! Whoever knows the secrets can forge proofs under every key that is made from such a file. It is for tests, and for trying a
//! circuit before its ceremony. `snarkjs groth16 setup` takes it as it takes any that is prepared for phase 2.

use std::io::{self, Write};

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::{BatchInverter, Field, PrimeField};
use group::{Curve, Group};
use plimsoll_groth16::backend::BASE_MODULUS;
use plimsoll_groth16::fixed_base::{FixedBase, FixedBasePlan};

use crate::container::Kind;
use crate::curve::BASE_BYTES;
use crate::points::FilePoint;
use crate::zkey::RootRatio;

/// The largest that is made: its points fit into a few hundred MiB.
pub const POWER_MAX: u32 = 18;

/// The most that a table of multiples takes.
const TABLE_BYTES_MAX: u64 = 9 << 19;
/// Points made before they are written.
const POINTS_TOGETHER: usize = 8192;

/// The secrets. Erased when dropped.
struct Secrets {
    tau: Scalar,
    alpha: Scalar,
    beta: Scalar,
}

impl Drop for Secrets {
    fn drop(&mut self) {
        for scalar in [&mut self.tau, &mut self.alpha, &mut self.beta] {
            erase(std::slice::from_mut(scalar));
        }
    }
}

/// Scalars that tell the secrets. Erased when dropped.
struct Secret(Vec<Scalar>);

impl Drop for Secret {
    fn drop(&mut self) {
        erase(&mut self.0);
    }
}

/// Overwrites the scalars, in a way that the compiler may not leave out.
fn erase(scalars: &mut [Scalar]) {
    scalars.fill(Scalar::ZERO);
    zeroize::optimization_barrier(scalars);
}

/// Writes powers of tau for up to 2^`power` constraints, prepared for phase 2, from secrets that `random` draws. Runs on all threads
/// of the current pool.
///
/// # Errors
/// What the writer reports.
///
/// # Panics
/// When `power` is above [`POWER_MAX`].
pub fn write_powers<W: Write>(power: u32, mut random: impl FnMut() -> Scalar, mut writer: W) -> io::Result<()> {
    assert!(power <= POWER_MAX, "at most 2^{POWER_MAX}");
    let secrets = Secrets { tau: random(), alpha: random(), beta: random() };
    let n = 1_usize << power;
    let (g1, g2) = (G1Affine::BYTES as u64, G2Affine::BYTES as u64);
    let points = 12 * n;
    let table_g1 =
        FixedBase::new(&G1Projective::generator().to_affine(), FixedBasePlan::new::<G1Affine>(points, TABLE_BYTES_MAX));
    let table_g2 =
        FixedBase::new(&G2Projective::generator().to_affine(), FixedBasePlan::new::<G2Affine>(3 * n, TABLE_BYTES_MAX));

    writer.write_all(Kind::Ptau.magic())?;
    writer.write_all(&1_u32.to_le_bytes())?;
    writer.write_all(&11_u32.to_le_bytes())?;
    let section = |writer: &mut W, id: u32, bytes: u64| {
        writer.write_all(&id.to_le_bytes())?;
        writer.write_all(&bytes.to_le_bytes())
    };
    section(&mut writer, 1, 4 + BASE_BYTES as u64 + 8)?;
    writer.write_all(&(BASE_BYTES as u32).to_le_bytes())?;
    writer.write_all(&BASE_MODULUS.map(u64::to_le_bytes).concat())?;
    writer.write_all(&power.to_le_bytes())?;
    writer.write_all(&power.to_le_bytes())?;

    let one = Scalar::ONE;
    section(&mut writer, 2, (2 * n as u64 - 1) * g1)?;
    write_multiples(&mut writer, &table_g1, &powers(&secrets.tau, &one, 2 * n - 1))?;
    section(&mut writer, 3, n as u64 * g2)?;
    write_multiples(&mut writer, &table_g2, &powers(&secrets.tau, &one, n))?;
    section(&mut writer, 4, n as u64 * g1)?;
    write_multiples(&mut writer, &table_g1, &powers(&secrets.tau, &secrets.alpha, n))?;
    section(&mut writer, 5, n as u64 * g1)?;
    write_multiples(&mut writer, &table_g1, &powers(&secrets.tau, &secrets.beta, n))?;
    section(&mut writer, 6, g2)?;
    write_multiples(&mut writer, &table_g2, &Secret(vec![secrets.beta]))?;
    section(&mut writer, 7, 4)?;
    writer.write_all(&0_u32.to_le_bytes())?;
    // The Lagrange bases of all domains up to the largest, one behind the other; that of tau in G1 has one domain more.
    section(&mut writer, 12, (4 * n as u64 - 1) * g1)?;
    for log_size in 0..=power + 1 {
        write_multiples(&mut writer, &table_g1, &lagrange(log_size, &secrets.tau, &one))?;
    }
    section(&mut writer, 13, (2 * n as u64 - 1) * g2)?;
    for log_size in 0..=power {
        write_multiples(&mut writer, &table_g2, &lagrange(log_size, &secrets.tau, &one))?;
    }
    for (id, factor) in [(14, &secrets.alpha), (15, &secrets.beta)] {
        section(&mut writer, id, (2 * n as u64 - 1) * g1)?;
        for log_size in 0..=power {
            write_multiples(&mut writer, &table_g1, &lagrange(log_size, &secrets.tau, factor))?;
        }
    }
    writer.flush()
}

/// factor · τⁱ, in one piece of memory from the beginning: a vector that grows leaves copies behind.
fn powers(tau: &Scalar, factor: &Scalar, count: usize) -> Secret {
    let mut powers = Secret(vec![*factor; count]);
    for i in 1..count {
        powers.0[i] = powers.0[i - 1] * tau;
    }
    powers
}

/// factor · Lᵢ(τ) in the order of snarkjs's domain of 2^`log_size` points: (τⁿ − 1)/n · ωⁱ/(τ − ωⁱ).
fn lagrange(log_size: u32, tau: &Scalar, factor: &Scalar) -> Secret {
    let n = 1_u64 << log_size;
    let root = Scalar::ROOT_OF_UNITY.pow_vartime([u64::from(RootRatio::snarkjs().stride())]);
    let omega = root.pow_vartime([1_u64 << (Scalar::S - log_size)]);
    let points = powers(&omega, &Scalar::ONE, n as usize);
    let mut values = Secret(points.0.iter().map(|point| *tau - point).collect());
    let mut scratch = Secret(vec![Scalar::ZERO; values.0.len()]);
    BatchInverter::invert_with_external_scratch(&mut values.0, &mut scratch.0);
    let n_inverse: Scalar = Option::from(Scalar::from(n).invert()).unwrap_or(Scalar::ZERO);
    let all = (tau.pow_vartime([n]) - Scalar::ONE) * n_inverse * factor;
    values.0.iter_mut().zip(&points.0).for_each(|(value, point)| *value *= all * point);
    values
}

fn write_multiples<W: Write, P>(writer: &mut W, table: &FixedBase<P>, scalars: &Secret) -> io::Result<()>
where
    P: FilePoint + plimsoll_groth16::backend::AffineCurve,
{
    let mut bytes = Vec::with_capacity(POINTS_TOGETHER * P::BYTES);
    for scalars in scalars.0.chunks(POINTS_TOGETHER) {
        let mut points = vec![<P as group::prime::PrimeCurveAffine>::identity(); scalars.len()];
        table.multiply_each(scalars, &mut points);
        bytes.clear();
        points.iter().for_each(|point| point.write(&mut bytes));
        writer.write_all(&bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::point;
    use crate::ptau::PtauFile;

    #[test]
    fn the_powers_are_those_of_one_secret_in_every_basis() {
        let mut secret = 41_u64;
        let mut bytes = Vec::new();
        let random = || {
            secret += 1;
            Scalar::from(secret)
        };
        write_powers(3, random, &mut bytes).expect("a vector takes everything");
        let file = PtauFile::parse(&bytes).expect("sound");
        assert_eq!((file.header().power, file.header().prepared, file.header().contributions), (3, true, 0));
        let section = |id| &bytes[file.container().require(id, "", "").expect("there")];
        let g1 = |id, index: usize| point::<G1Affine>(&section(id)[index * 96..(index + 1) * 96]).expect("sound");
        let times = |scalar: Scalar| (G1Projective::generator() * scalar).to_affine();
        let tau = Scalar::from(42);
        assert_eq!(g1(2, 14), times(tau.pow_vartime([14])));
        assert_eq!(g1(4, 3), times(tau.pow_vartime([3]) * Scalar::from(43)));
        assert_eq!(g1(5, 0), times(Scalar::from(44)));
        // Lagrange polynomials add up to one, and weighted with the points to x.
        let root = Scalar::ROOT_OF_UNITY.pow_vartime([u64::from(RootRatio::snarkjs().stride())]);
        let omega = root.pow_vartime([1_u64 << 29]);
        let (mut sum, mut weighted) = (G1Projective::identity(), G1Projective::identity());
        for i in 0..8 {
            sum += g1(12, 7 + i);
            weighted += g1(12, 7 + i) * omega.pow_vartime([i as u64]);
        }
        assert_eq!((sum.to_affine(), weighted.to_affine()), (times(Scalar::ONE), times(tau)));
    }
}
