//! `.r1cs`: a circuit's constraints as circom writes them.
//!
//! Section 1 is the header, section 2 the constraints, section 3 the label of each wire. A constraint is three linear combinations,
//! each a count and so many pairs of a wire and a coefficient. Wire 0 is the constant one; then follow the public outputs, the
//! public inputs, the private inputs and the intermediate signals.

use std::ops::Range;

use blstrs::Scalar;

use crate::container::{Container, ContainerError, HEAD_BYTES, Kind};
use crate::curve::{self, SCALAR_BYTES};
use crate::error::{Part, ReadError};
use crate::fields::Fields;
use crate::map::{InMemory, Pages};
use crate::scalars::scalar;

/// The counts in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R1csHeader {
    /// All wires, the constant one included: the length of a witness.
    pub wires: u32,
    /// Public outputs.
    pub public_outputs: u32,
    /// Public inputs.
    pub public_inputs: u32,
    /// Private inputs.
    pub private_inputs: u32,
    /// Signals before simplification.
    pub labels: u64,
    /// Constraints.
    pub constraints: u32,
}

/// An `.r1cs` file whose frame and header are sound. Constraints are looked at as they are asked for.
#[derive(Clone, Debug)]
pub struct R1csFile<'a> {
    container: Container<'a>,
    header: R1csHeader,
    constraints: Range<usize>,
    labels: Option<Range<usize>>,
}

/// The least that a constraint takes: three counts.
const CONSTRAINT_BYTES_MIN: u64 = 12;
/// A wire and its coefficient.
const TERM_BYTES: usize = 4 + SCALAR_BYTES;
/// What of the constraints is held while they are gone through.
pub const WINDOW_BYTES: usize = 1 << 20;

impl<'a> R1csFile<'a> {
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
        let container = Container::parse_in(bytes, pages, Kind::R1cs)?;
        let hint = "compile the circuit again with `circom --r1cs`";
        let section = container.require(1, "header", hint)?;
        let header = parse_header(&container.head(&section, HEAD_BYTES)?, section.len())?;
        if let Some(id) = [4, 5].into_iter().find(|id| container.sections().iter().any(|section| section.id == *id)) {
            return Err(ContainerError::Missing {
                id,
                name: "custom gates",
                hint: "Groth16 has none: it is a circuit for PLONK",
            }
            .into());
        }
        let constraints = container.require(2, "constraints", hint)?;
        let needed = u64::from(header.constraints) * CONSTRAINT_BYTES_MIN;
        let available = constraints.len() as u64;
        if available < needed {
            return Err(ReadError::Short { section: Part::Constraints, needed, available });
        }
        let labels = container.find(3, "labels")?;
        if let Some(labels) = &labels {
            let (expected, found) = (8 * u64::from(header.wires), labels.len() as u64);
            if found != expected {
                return Err(ReadError::Length { section: Part::Labels, expected, found });
            }
        }
        Ok(Self { container, header, constraints, labels })
    }

    /// The header.
    pub fn header(&self) -> &R1csHeader {
        &self.header
    }

    /// The frame.
    pub fn container(&self) -> &Container<'a> {
        &self.container
    }

    /// The most terms that the constraints can have.
    pub fn terms_max(&self) -> usize {
        self.constraints.len() / TERM_BYTES
    }

    /// How many terms each of the matrices has, found by going through all constraints.
    ///
    /// # Errors
    /// As [`R1csFile::for_each_term`].
    pub fn term_counts(&self) -> Result<[usize; 3], ReadError> {
        let mut counts = [0; 3];
        self.for_each_term::<ReadError>(|matrix, _, _, _| {
            counts[matrix] += 1;
            Ok(())
        })?;
        Ok(counts)
    }

    /// The signal, by its number in the `.sym` file, that a wire carries.
    pub fn label(&self, wire: u32) -> Option<u64> {
        let labels = self.labels.clone().filter(|labels| labels.len() / 8 > wire as usize)?;
        let mut bytes = [0; 8];
        self.container.copy(labels.start + 8 * wire as usize, &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Goes through all constraints: `term` is given the matrix (0 for A, 1 for B, 2 for C), the constraint, the wire and the
    /// coefficient. Wires are below the header's count, coefficients may be zero and wires may repeat. Holds [`WINDOW_BYTES`].
    ///
    /// # Errors
    /// A constraint that does not end within the section, a wire that does not exist, a coefficient that is none, bytes behind the
    /// last constraint; and what `term` says.
    pub fn for_each_term<E: From<ReadError>>(
        &self,
        mut term: impl FnMut(usize, u32, u32, &Scalar) -> Result<(), E>,
    ) -> Result<(), E> {
        let section = Part::Constraints;
        let mut window = Window::new(&self.container, self.constraints.clone());
        let mut index = 0;
        for constraint in 0..self.header.constraints {
            for matrix in 0..3 {
                let available = window.left() as u64;
                let short = |needed| ReadError::Short { section, needed, available };
                if available < 4 {
                    return Err(short(4).into());
                }
                let terms: [u8; 4] = window.next()?;
                let terms = u32::from_le_bytes(terms);
                let needed = u64::from(terms) * TERM_BYTES as u64;
                if available - 4 < needed {
                    return Err(short(4 + needed).into());
                }
                for _ in 0..terms {
                    let bytes: [u8; TERM_BYTES] = window.next()?;
                    let (wire, value) = bytes.split_at(4);
                    let wire = u32::from_le_bytes([wire[0], wire[1], wire[2], wire[3]]);
                    if wire >= self.header.wires {
                        let (found, max) = (u64::from(wire), u64::from(self.header.wires) - 1);
                        return Err(ReadError::Range { what: "a constraint's wire", found, max }.into());
                    }
                    let value = scalar(value).ok_or(ReadError::Value { section, index })?;
                    term(matrix, constraint, wire, &value)?;
                    index += 1;
                }
            }
        }
        let (left, found) = (window.left() as u64, self.constraints.len() as u64);
        if left > 0 {
            return Err(ReadError::Length { section, expected: found - left, found }.into());
        }
        Ok(())
    }
}

/// A section that is gone through from its start, by copies.
struct Window<'f, 'a> {
    container: &'f Container<'a>,
    /// What was not copied yet.
    rest: Range<usize>,
    copy: Vec<u8>,
    /// What of the copy was not taken yet.
    ready: Range<usize>,
}

impl<'f, 'a> Window<'f, 'a> {
    fn new(container: &'f Container<'a>, section: Range<usize>) -> Self {
        let copy = vec![0; WINDOW_BYTES.min(section.len())];
        Self { container, rest: section, copy, ready: 0..0 }
    }

    fn left(&self) -> usize {
        self.ready.len() + self.rest.len()
    }

    /// The next `N` bytes, of which there are as many.
    fn next<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        if self.ready.len() < N {
            self.copy.copy_within(self.ready.clone(), 0);
            let kept = self.ready.len();
            let more = (self.copy.len() - kept).min(self.rest.len());
            self.container.copy(self.rest.start, &mut self.copy[kept..kept + more])?;
            self.rest.start += more;
            self.ready = 0..kept + more;
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.copy[self.ready.start..self.ready.start + N]);
        self.ready.start += N;
        Ok(bytes)
    }
}

impl R1csHeader {
    /// Public signals, the constant one not counted.
    pub fn public(&self) -> u32 {
        self.public_outputs + self.public_inputs
    }
}

/// Of a section of `len` bytes, of which these are the first.
fn parse_header(bytes: &[u8], len: usize) -> Result<R1csHeader, ReadError> {
    let short = ReadError::Short { section: Part::Header, needed: 64, available: len as u64 };
    let mut fields = Fields::new(bytes);
    let prime = fields.u32().and_then(|len| fields.take(len as usize)).ok_or(short.clone())?;
    curve::require_scalars(prime)?;
    if prime.len() != SCALAR_BYTES {
        let (expected, found) = (SCALAR_BYTES as u64, prime.len() as u64);
        return Err(ReadError::Length { section: Part::Header, expected, found });
    }
    let mut number = || fields.u32().ok_or(short.clone());
    let (wires, public_outputs, public_inputs, private_inputs) = (number()?, number()?, number()?, number()?);
    let labels = fields.u64().ok_or(short.clone())?;
    let constraints = fields.u32().ok_or(short)?;
    if fields.left() > 0 {
        let (expected, found) = (fields.position() as u64, len as u64);
        return Err(ReadError::Length { section: Part::Header, expected, found });
    }
    let named = 1 + u64::from(public_outputs) + u64::from(public_inputs) + u64::from(private_inputs);
    if named > u64::from(wires) {
        return Err(ReadError::Range { what: "the number of inputs and outputs", found: named, max: wires.into() });
    }
    Ok(R1csHeader { wires, public_outputs, public_inputs, private_inputs, labels, constraints })
}
