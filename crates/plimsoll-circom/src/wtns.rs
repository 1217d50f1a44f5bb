//! `.wtns`: the values of all wires, the constant one first, as circom's witness calculators write them.
//!
//! Section 1 is the field and the count, section 2 the values. They are secrets: nothing here prints them.

use std::fmt;
use std::ops::Range;

use blstrs::Scalar;
use ff::Field;
use plimsoll::pool;

use crate::container::{Container, Kind};
use crate::curve::{self, SCALAR_BYTES};
use crate::error::{Part, ReadError};
use crate::fields::Fields;
use crate::scalars::scalar;

/// How many values a task converts.
const VALUES_PER_TASK: usize = 1 << 14;

/// A `.wtns` file whose frame and header are sound.
#[derive(Clone)]
pub struct WtnsFile<'a> {
    container: Container<'a>,
    values: Range<usize>,
}

impl<'a> WtnsFile<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let container = Container::parse(bytes, Kind::Wtns)?;
        let hint = "calculate the witness again";
        let header = &bytes[container.require(1, "header", hint)?];
        let short = || ReadError::Short { section: Part::Header, needed: 40, available: header.len() as u64 };
        let mut fields = Fields::new(header);
        let prime = fields.u32().and_then(|len| fields.take(len as usize)).ok_or_else(short)?;
        curve::require_scalars(prime)?;
        let count = fields.u32().ok_or_else(short)?;
        let whole = 4 + prime.len() + 4;
        if prime.len() != SCALAR_BYTES || fields.left() > 0 {
            let (expected, found) = (whole as u64, header.len() as u64);
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

    /// Copies the values from `first` on to `out`, on all threads of the current pool.
    ///
    /// # Errors
    /// A value is not below the field's modulus, or the first of all is not one.
    ///
    /// # Panics
    /// When there are not as many.
    pub fn read(&self, first: usize, out: &mut [Scalar]) -> Result<(), ReadError> {
        let section = &self.container.bytes()[self.values.clone()];
        let section = &section[first * SCALAR_BYTES..(first + out.len()) * SCALAR_BYTES];
        let value = |index: usize| scalar(&section[index * SCALAR_BYTES..(index + 1) * SCALAR_BYTES]);
        pool::for_each_chunk(out, VALUES_PER_TASK, |offset, out| {
            for (i, out) in out.iter_mut().enumerate() {
                // A value that is none is found and named afterwards.
                *out = value(offset + i).unwrap_or(Scalar::ZERO);
            }
        });
        let bad = pool::map_indices(out.len().div_ceil(VALUES_PER_TASK), |task| {
            let range = task * VALUES_PER_TASK..((task + 1) * VALUES_PER_TASK).min(out.len());
            range.into_iter().find(|&index| out[index].is_zero_vartime() && value(index).is_none())
        });
        if let Some(bad) = bad.into_iter().flatten().next() {
            return Err(ReadError::Value { section: Part::Values, index: (first + bad) as u64 });
        }
        match out {
            [one, ..] if first == 0 && *one != Scalar::ONE => Err(ReadError::NoOne),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for WtnsFile<'_> {
    /// Values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WtnsFile({} values)", self.len())
    }
}
