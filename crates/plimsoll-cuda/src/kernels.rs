//! What the kernels do, as calls on a lane: transforms and element by element. Multiplications are in `msm.rs`.
//!
//! A call begins work and returns; the lane's `synchronise` waits for it. Every address comes out of a [`Piece`] that is
//! large enough, or the call is refused.

use blstrs::Scalar;
use plimsoll::device::DriverError;
use plimsoll_groth16::backend::Transform;
use plimsoll_groth16::domain::Domain;

use crate::driver::{CudaLane, Piece};
use crate::error::CudaError;
use crate::ffi::{self, NttTables};
use crate::plan::SCALAR_BYTES;
use crate::plan::ntt::{MAX_LOG_SIZE, POWERS_BYTES};
use crate::raw::{Stream, bytes_of, check};

/// Scalars in a piece: so many from an offset on.
#[derive(Clone, Copy, Debug)]
pub struct Scalars<'a> {
    /// Where they are.
    pub piece: &'a Piece,
    /// The offset in bytes.
    pub at: u64,
    /// How many.
    pub len: u64,
}

impl<'a> Scalars<'a> {
    /// The first `len` scalars of a piece.
    pub fn of(piece: &'a Piece, len: u64) -> Self {
        Self { piece, at: 0, len }
    }

    pub(crate) fn address(&self) -> Result<u64, DriverError> {
        self.piece.address(self.at, self.len * SCALAR_BYTES)
    }
}

pub(crate) fn fill_tables(tables: &NttTables, stream: &Stream) -> Result<(), CudaError> {
    // SAFETY: the tables' addresses are device memory of the planned sizes.
    check("filling the tables of transforms", unsafe { ffi::pc_ntt_fill_tables(tables, stream.raw()) })
}

impl CudaLane {
    /// Transforms scalars in place, in natural order on both sides. `workspace` is for the coset's powers, if it has any.
    ///
    /// # Errors
    ///
    /// If a piece is too small or the device says no.
    pub fn transform(
        &mut self,
        domain: &Domain,
        data: Scalars<'_>,
        transform: Transform,
        workspace: &Piece,
    ) -> Result<(), DriverError> {
        let log = log_size(domain, &[data])?;
        let data = data.address()?;
        match transform {
            Transform::Forward => {
                self.bit_reverse(data, log)?;
                self.forward(data, log)
            }
            Transform::CosetForward => {
                let powers = self.powers(workspace, 0, &domain.coset_shift())?;
                self.scale(data, log, false, powers)?;
                self.bit_reverse(data, log)?;
                self.forward(data, log)
            }
            Transform::Inverse => {
                self.inverse(data, log)?;
                self.bit_reverse(data, log)
            }
            Transform::CosetInverse => {
                let powers = self.powers(workspace, 0, &domain.coset_shift_inverse())?;
                self.inverse(data, log)?;
                self.scale(data, log, true, powers)?;
                self.bit_reverse(data, log)
            }
        }
    }

    /// From evaluations of a, b, c on the domain to those of (a·b − c)·factor on the coset, in `a`; and, where
    /// `coefficients` says so, on to the coefficients. Between its transforms nothing is in natural order, which saves the
    /// permutations.
    ///
    /// # Errors
    ///
    /// If a piece is too small or the device says no.
    pub fn quotient(
        &mut self,
        domain: &Domain,
        [a, b, c]: [Scalars<'_>; 3],
        factor: &Scalar,
        coefficients: bool,
        workspace: &Piece,
    ) -> Result<(), DriverError> {
        let log = log_size(domain, &[a, b, c])?;
        let [a, b, c] = [a.address()?, b.address()?, c.address()?];
        let powers = self.powers(workspace, 0, &domain.coset_shift())?;
        for data in [a, b, c] {
            self.inverse(data, log)?;
            self.scale(data, log, true, powers)?;
            self.forward(data, log)?;
        }
        self.mul_sub_scale_at(a, b, c, factor, domain.size())?;
        if coefficients {
            let powers = self.powers(workspace, POWERS_BYTES, &domain.coset_shift_inverse())?;
            self.inverse(a, log)?;
            self.scale(a, log, true, powers)?;
            self.bit_reverse(a, log)?;
        }
        Ok(())
    }

    /// Bit-reversed coefficients to evaluations in natural order: a transform without its permutation, for measurements.
    ///
    /// # Errors
    ///
    /// If a piece is too small or the device says no.
    pub fn raw_forward(&mut self, domain: &Domain, data: Scalars<'_>) -> Result<(), DriverError> {
        self.forward(data.address()?, log_size(domain, &[data])?)
    }

    /// Evaluations in natural order to bit-reversed coefficients, the same way back.
    ///
    /// # Errors
    ///
    /// If a piece is too small or the device says no.
    pub fn raw_inverse(&mut self, domain: &Domain, data: Scalars<'_>) -> Result<(), DriverError> {
        self.inverse(data.address()?, log_size(domain, &[data])?)
    }

    /// `to[i] = a[i]·b[i]`.
    ///
    /// # Errors
    ///
    /// If the lengths differ, a piece is too small, or the device says no.
    pub fn mul(&mut self, to: Scalars<'_>, a: Scalars<'_>, b: Scalars<'_>) -> Result<(), DriverError> {
        require_one_length(&[to, a, b])?;
        let [target, a, b] = [to.address()?, a.address()?, b.address()?];
        self.call("multiplying element by element", |stream| {
            // SAFETY: device memory, large enough for as many elements.
            unsafe { ffi::pc_mul(target as _, a as _, b as _, to.len as usize, stream) }
        })
    }

    /// `a[i] = (a[i]·b[i] − c[i])·factor`.
    ///
    /// # Errors
    ///
    /// If the lengths differ, a piece is too small, or the device says no.
    pub fn mul_sub_scale(
        &mut self,
        a: Scalars<'_>,
        b: Scalars<'_>,
        c: Scalars<'_>,
        factor: &Scalar,
    ) -> Result<(), DriverError> {
        require_one_length(&[a, b, c])?;
        self.mul_sub_scale_at(a.address()?, b.address()?, c.address()?, factor, a.len as usize)
    }

    /// `to[i] = from[index[i]]`, with 32-bit indices in a piece of their own.
    ///
    /// # Errors
    ///
    /// If a piece is too small or the device says no. The indices are the caller's to get right.
    pub fn gather(&mut self, to: Scalars<'_>, from: Scalars<'_>, index: &Piece, at: u64) -> Result<(), DriverError> {
        let (target, source) = (to.address()?, from.address()?);
        let index = index.address(at, to.len * 4)?;
        self.call("gathering", |stream| {
            // SAFETY: device memory, large enough for as many elements.
            unsafe { ffi::pc_gather(target as _, source as _, index as _, to.len as usize, stream) }
        })
    }

    fn call(&self, what: &'static str, f: impl FnOnce(ffi::Pointer) -> i32) -> Result<(), DriverError> {
        check(what, f(self.streams[0].raw())).map_err(|error| self.failed(error))
    }

    fn powers(&self, workspace: &Piece, at: u64, base: &Scalar) -> Result<u64, DriverError> {
        let address = workspace.address(at, POWERS_BYTES)?;
        let base = bytes_of(std::slice::from_ref(base));
        self.call("raising the coset's shift", |stream| {
            // SAFETY: device memory of the planned size; the scalar is read within the call.
            unsafe { ffi::pc_powers(address as _, base.as_ptr().cast(), stream) }
        })?;
        Ok(address)
    }

    fn forward(&self, data: u64, log: u32) -> Result<(), DriverError> {
        let tables = self.shared.tables();
        self.call("a transform", |stream| {
            // SAFETY: device memory, large enough for the size.
            unsafe { ffi::pc_ntt_forward(&tables, data as _, log, stream) }
        })
    }

    fn inverse(&self, data: u64, log: u32) -> Result<(), DriverError> {
        let tables = self.shared.tables();
        self.call("an inverse transform", |stream| {
            // SAFETY: device memory, large enough for the size.
            unsafe { ffi::pc_ntt_inverse(&tables, data as _, log, stream) }
        })
    }

    fn bit_reverse(&self, data: u64, log: u32) -> Result<(), DriverError> {
        self.call("a permutation", |stream| {
            // SAFETY: device memory, large enough for the size.
            unsafe { ffi::pc_bit_reverse(data as _, log, stream) }
        })
    }

    fn scale(&self, data: u64, log: u32, reversed: bool, powers: u64) -> Result<(), DriverError> {
        self.call("scaling by powers", |stream| {
            // SAFETY: device memory, large enough for the size and the tables of powers.
            unsafe { ffi::pc_scale_by_powers(data as _, log, reversed.into(), powers as _, stream) }
        })
    }

    fn mul_sub_scale_at(&self, a: u64, b: u64, c: u64, factor: &Scalar, n: usize) -> Result<(), DriverError> {
        let factor = bytes_of(std::slice::from_ref(factor));
        self.call("multiplying element by element", |stream| {
            // SAFETY: device memory, large enough for as many elements; the factor is read within the call.
            unsafe { ffi::pc_mul_sub_scale(a as _, b as _, c as _, factor.as_ptr().cast(), n, stream) }
        })
    }
}

fn require_one_length(vectors: &[Scalars<'_>]) -> Result<(), DriverError> {
    if vectors.windows(2).all(|two| two[0].len == two[1].len) {
        return Ok(());
    }
    Err(DriverError::Failed { message: "vectors that belong together differ in length".to_owned() })
}

/// The domain's size as a power of two, if the kernels go so far and the vectors are as long.
fn log_size(domain: &Domain, vectors: &[Scalars<'_>]) -> Result<u32, DriverError> {
    if domain.log_size() > MAX_LOG_SIZE {
        let message = format!("a domain of 2^{}; the kernels go up to 2^{MAX_LOG_SIZE}", domain.log_size());
        return Err(DriverError::Failed { message });
    }
    match vectors.iter().find(|vector| vector.len != domain.size() as u64) {
        None => Ok(domain.log_size()),
        Some(vector) => {
            let message = format!("a vector of {} for a domain of {}", vector.len, domain.size());
            Err(DriverError::Failed { message })
        }
    }
}
