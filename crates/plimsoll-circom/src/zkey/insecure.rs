//! Keys for development as snarkjs would write them, of circuits that were made here: for tests, and to try a size of which nobody has a
//! ceremony. The set-up's secrets were in one process (`plimsoll_groth16::setup`), so such a key convinces nobody.

use std::io::{self, Write};

use plimsoll_groth16::backend::BASE_MODULUS;
use plimsoll_groth16::keys::{HBasis, ProvingKey};
use plimsoll_groth16::r1cs::{Density, R1cs};

use super::{COEFFICIENT_BYTES, HEADER_BYTES, RootRatio};
use crate::container::Kind;
use crate::curve::{BASE_BYTES, SCALAR_BYTES};
use crate::points::FilePoint;
use crate::scalars::{MODULUS, to_coefficient};

/// Writes the key of a circuit, without contributions.
///
/// # Errors
/// What the writer reports.
///
/// # Panics
/// When the key is another circuit's or has another basis than [`HBasis::OddCosetLagrange`], or the circuit was not made for snarkjs's
/// domain ([`R1cs::with_stride`] of [`RootRatio::snarkjs`]).
pub fn write_zkey<W: Write>(r1cs: &R1cs, key: &ProvingKey, mut writer: W) -> io::Result<()> {
    assert!(key.check_shape(r1cs).is_ok() && key.h.basis == HBasis::OddCosetLagrange, "the circuit's key");
    let (ratio, n) = (RootRatio::snarkjs(), r1cs.domain().size());
    assert_eq!(r1cs.place_of(1), ratio.stride() as usize & (n - 1), "constraints are where snarkjs has them");
    writer.write_all(Kind::Zkey.magic())?;
    words(&mut writer, &[1, 10])?;
    section(&mut writer, 1, 4)?;
    words(&mut writer, &[1])?;

    section(&mut writer, 2, HEADER_BYTES)?;
    words(&mut writer, &[BASE_BYTES as u32])?;
    writer.write_all(&BASE_MODULUS.map(u64::to_le_bytes).concat())?;
    words(&mut writer, &[SCALAR_BYTES as u32])?;
    writer.write_all(&MODULUS.map(u64::to_le_bytes).concat())?;
    words(&mut writer, &[r1cs.variables(), r1cs.inputs() - 1, n].map(|count| count as u32))?;
    let vk = &key.vk;
    points(&mut writer, [&vk.alpha_g1, &vk.beta_g1])?;
    points(&mut writer, [&vk.beta_g2, &vk.gamma_g2])?;
    points(&mut writer, [&vk.delta_g1])?;
    points(&mut writer, [&vk.delta_g2])?;
    point_section(&mut writer, 3, vk.ic.iter())?;

    let count = r1cs.a().entries() + r1cs.b().entries();
    section(&mut writer, 4, 4 + count * COEFFICIENT_BYTES)?;
    words(&mut writer, &[count as u32])?;
    for row in 0..r1cs.constraints() {
        for (number, matrix) in [r1cs.a(), r1cs.b()].into_iter().enumerate() {
            for (column, coefficient) in matrix.row(row) {
                words(&mut writer, &[number, row, column].map(|number| number as u32))?;
                writer.write_all(&to_coefficient(&r1cs.coefficients()[coefficient as usize]))?;
            }
        }
    }

    point_section(&mut writer, 5, spread(r1cs.a_density(), &key.a, r1cs.variables()).iter())?;
    point_section(&mut writer, 6, spread(r1cs.b_density(), &key.b_g1, r1cs.variables()).iter())?;
    point_section(&mut writer, 7, spread(r1cs.b_density(), &key.b_g2, r1cs.variables()).iter())?;
    point_section(&mut writer, 8, key.l.iter())?;
    point_section(&mut writer, 9, (0..n).map(|i| &key.h.points[ratio.odd_place(i, n)]))?;
    section(&mut writer, 10, 68)?;
    writer.write_all(&[0; 68])?;
    writer.flush()
}

/// A point for each variable, infinity for those that do not occur.
fn spread<P: FilePoint>(density: &Density, points: &[P], variables: usize) -> Vec<P> {
    let mut all = vec![P::identity(); variables];
    for (variable, point) in density.iter().zip(points) {
        all[variable] = *point;
    }
    all
}

fn words<W: Write>(writer: &mut W, words: &[u32]) -> io::Result<()> {
    words.iter().try_for_each(|word| writer.write_all(&word.to_le_bytes()))
}

fn section<W: Write>(writer: &mut W, id: u32, len: usize) -> io::Result<()> {
    words(writer, &[id])?;
    writer.write_all(&(len as u64).to_le_bytes())
}

fn points<'p, W: Write, P: FilePoint + 'p>(writer: &mut W, points: impl IntoIterator<Item = &'p P>) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(P::BYTES);
    points.into_iter().try_for_each(|point| {
        bytes.clear();
        point.write(&mut bytes);
        writer.write_all(&bytes)
    })
}

fn point_section<'p, P: FilePoint + 'p, W: Write>(
    writer: &mut W,
    id: u32,
    all: impl ExactSizeIterator<Item = &'p P>,
) -> io::Result<()> {
    section(writer, id, all.len() * P::BYTES)?;
    points(writer, all)
}

#[cfg(test)]
mod tests;
