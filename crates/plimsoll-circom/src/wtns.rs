//! `.wtns`: the values of all wires, the constant one first, as circom's witness calculators write them.
//!
//! Section 1 is the field and the count, section 2 the values. They are secrets: nothing here prints them.

use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use blstrs::Scalar;
use ff::Field;
use plimsoll::pool;
use zeroize::Zeroize;

use crate::container::{Container, HEAD_BYTES, Kind};
use crate::curve::{self, SCALAR_BYTES};
use crate::error::{Part, ReadError};
use crate::fields::Fields;
use crate::map::{InMemory, Pages};
use crate::scalars::{MODULUS, scalar};

/// What of a file is held at a time.
pub const WINDOW_BYTES: usize = 1 << 20;
/// How many values a task converts: about a tenth of a millisecond.
const VALUES_PER_TASK: usize = 1 << 10;

/// A `.wtns` file whose frame and header are sound.
#[derive(Clone)]
pub struct WtnsFile<'a> {
    container: Container<'a>,
    values: Range<usize>,
}

/// Writes a witness: the values of all wires, the constant one first.
///
/// # Errors
/// What the writer reports.
///
/// # Panics
/// When there are more than a file can count, or none.
pub fn write<W: Write>(values: &[Scalar], mut writer: W) -> io::Result<()> {
    let count = u32::try_from(values.len()).unwrap_or(0);
    assert!(count > 0, "between one value and 2^32");
    writer.write_all(Kind::Wtns.magic())?;
    let section = |writer: &mut W, id: u32, len: usize| {
        writer.write_all(&id.to_le_bytes())?;
        writer.write_all(&(len as u64).to_le_bytes())
    };
    writer.write_all(&[2_u32, 2].map(u32::to_le_bytes).concat())?;
    section(&mut writer, 1, 4 + SCALAR_BYTES + 4)?;
    writer.write_all(&(SCALAR_BYTES as u32).to_le_bytes())?;
    writer.write_all(&MODULUS.map(u64::to_le_bytes).concat())?;
    writer.write_all(&count.to_le_bytes())?;
    section(&mut writer, 2, values.len() * SCALAR_BYTES)?;
    values.iter().try_for_each(|value| writer.write_all(&value.to_bytes_le()))?;
    writer.flush()
}

impl<'a> WtnsFile<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ReadError> {
        Self::parse_in(bytes, &InMemory)
    }

    /// The same in a file, `pages` having its `bytes`. Everything is copied from there, so that who shortens the file meanwhile makes
    /// it unreadable, and nothing more.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn parse_in(bytes: &'a [u8], pages: &'a dyn Pages) -> Result<Self, ReadError> {
        let container = Container::parse_in(bytes, pages, Kind::Wtns)?;
        let hint = "calculate the witness again";
        let section = container.require(1, "header", hint)?;
        let header = container.head(&section, HEAD_BYTES)?;
        let short = || ReadError::Short { section: Part::Header, needed: 40, available: section.len() as u64 };
        let mut fields = Fields::new(&header);
        let prime = fields.u32().and_then(|len| fields.take(len as usize)).ok_or_else(short)?;
        curve::require_scalars(prime)?;
        let count = fields.u32().ok_or_else(short)?;
        let whole = 4 + prime.len() + 4;
        if prime.len() != SCALAR_BYTES || fields.left() > 0 {
            let (expected, found) = (whole as u64, section.len() as u64);
            return Err(ReadError::Length { section: Part::Header, expected, found });
        }
        let values = container.require(2, "values", hint)?;
        let (expected, found) = (u64::from(count) * SCALAR_BYTES as u64, values.len() as u64);
        if found != expected {
            return Err(ReadError::Length { section: Part::Values, expected, found });
        }
        if count == 0 {
            return Err(ReadError::NoOne);
        }
        Ok(Self { container, values })
    }

    /// The frame.
    pub fn container(&self) -> &Container<'a> {
        &self.container
    }

    /// How many values there are, the constant one included.
    pub fn len(&self) -> usize {
        self.values.len() / SCALAR_BYTES
    }

    /// Never: there is the constant one.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Where the values lie in the file.
    pub fn values(&self) -> Range<usize> {
        self.values.clone()
    }

    /// Copies the values from `first` on to `out`, on all threads of the current pool. Holds a window of the file for that, which is
    /// erased: [`WINDOW_BYTES`], or what the values take there.
    ///
    /// # Errors
    /// A value is not below the field's modulus, or the first of all is not one; the file is shorter than it was.
    ///
    /// # Panics
    /// When there are not as many.
    pub fn read(&self, first: usize, out: &mut [Scalar]) -> Result<(), ReadError> {
        assert!(first + out.len() <= self.len(), "so many values are there");
        let mut window = Window(vec![0; WINDOW_BYTES.min(out.len() * SCALAR_BYTES)]);
        for (index, out) in out.chunks_mut(WINDOW_BYTES / SCALAR_BYTES).enumerate() {
            let first = first + index * (WINDOW_BYTES / SCALAR_BYTES);
            let bytes = &mut window.0[..out.len() * SCALAR_BYTES];
            self.container.copy(self.values.start + first * SCALAR_BYTES, bytes)?;
            convert(bytes, out)
                .map_err(|bad| ReadError::Value { section: Part::Values, index: (first + bad) as u64 })?;
        }
        match out {
            [one, ..] if first == 0 && *one != Scalar::ONE => Err(ReadError::NoOne),
            _ => Ok(()),
        }
    }
}

/// The values that these bytes stand for, or the first that is none.
fn convert(bytes: &[u8], out: &mut [Scalar]) -> Result<(), usize> {
    let value = |index: usize| scalar(&bytes[index * SCALAR_BYTES..(index + 1) * SCALAR_BYTES]);
    let first_bad = AtomicUsize::new(usize::MAX);
    pool::for_each_chunk(out, VALUES_PER_TASK, |offset, out| {
        for (i, out) in out.iter_mut().enumerate() {
            match value(offset + i) {
                Some(value) => *out = value,
                // Relaxed: the end of the loop is what makes it known.
                None => _ = first_bad.fetch_min(offset + i, Ordering::Relaxed),
            }
        }
    });
    match first_bad.into_inner() {
        usize::MAX => Ok(()),
        index => Err(index),
    }
}

/// Bytes of values, erased when dropped.
struct Window(Vec<u8>);

impl Drop for Window {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for WtnsFile<'_> {
    /// Values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WtnsFile({} values)", self.len())
    }
}
