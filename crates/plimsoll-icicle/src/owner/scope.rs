//! What a call can do, on the owner's thread. Each of ICICLE's functions that copies or computes is called here and nowhere else,
//! with arguments that have been looked at: it ends the process on many that it does not like.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blstrs::Scalar;
use ff::{Field, PrimeField};
use plimsoll::Bytes;
use plimsoll_groth16::backend::CurveGroup;

use super::here::{Here, check, free};
use super::{Part, Sum};
use crate::abi::{MsmConfig, NttConfig, NttInitDomainConfig, Padded, SCALAR_BYTES, VecOp, VecOpsConfig, code};
use crate::convert::affine_bytes;
use crate::error::{CallError, Fault};
use crate::memory::Scratch;

/// What of host memory may be copied to a device and back, byte for byte.
///
/// # Safety
///
/// The type has no padding and no pointers, and any bytes are one of its values as far as Rust is concerned.
pub unsafe trait Plain: Copy + Send + Sync {}

// SAFETY: bytes.
unsafe impl Plain for u8 {}
// SAFETY: a `blst_fr` is four words.
unsafe impl Plain for Scalar {}
// SAFETY: a `blst_p1_affine` is twelve words.
unsafe impl Plain for blstrs::G1Affine {}
// SAFETY: a `blst_p2_affine` is twenty-four words.
unsafe impl Plain for blstrs::G2Affine {}

const _: () = assert!(size_of::<Scalar>() == 32);
const _: () = assert!(size_of::<blstrs::G1Affine>() == 96);
const _: () = assert!(size_of::<blstrs::G2Affine>() == 192);

/// Roots of unity have orders up to 2^32, and domains are one smaller.
const DOMAIN_MAX: u32 = 31;
/// The order in which a transform reads and writes: natural.
const NATURAL: c_int = 0;
/// Values begin at multiples of so many bytes of their memory: what ICICLE's types may ask for.
const VALUE_ALIGN: u64 = 16;

/// What ICICLE reads as one of its own values.
#[repr(align(16))]
struct Aligned<T>(T);

/// One multiplication.
#[derive(Debug)]
pub struct MsmCall<'env> {
    /// The group.
    pub group: CurveGroup,
    /// Montgomery form, 32 bytes each.
    pub scalars: Part<'env>,
    /// Standard form, 96 or 192 bytes each, as many as scalars.
    pub points: Part<'env>,
    /// The window's bits.
    pub window: u32,
    /// How many threads may share it, where the device is the processor; each has buckets of its own. 0: as many as there are.
    pub threads: u32,
    /// What the call is expected to allocate: told where it fails for want of it.
    pub scratch_bytes: u64,
    /// Where the sum goes.
    pub sum: &'env mut Sum,
}

/// What failed calls may have left behind, since somebody last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remains {
    /// Buffers that ICICLE would not free.
    pub(crate) unfreed: u64,
    /// The most of what it has allocated by itself.
    pub(crate) suspected: u64,
}

/// What a device says of its memory, and what is known to be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    pub(crate) total: u64,
    pub(crate) free: u64,
    /// In buffers.
    pub(crate) allocated: u64,
    /// The logarithm of the domain's size.
    pub(crate) domain: Option<u32>,
}

/// What a call can do. Everything that it begins is done when [`Owner::call`](super::Owner::call) returns.
pub struct Scope<'here, 'env> {
    pub(super) here: &'here mut Here,
    pub(super) stream: usize,
    /// Whether this call is to find out if the device may be trusted.
    pub(super) checks: bool,
    /// Invariant: what is used lives for `'env`.
    pub(super) env: PhantomData<Cell<&'env ()>>,
}

impl<'env> Scope<'_, 'env> {
    fn stream(&self) -> *mut c_void {
        self.here.streams[self.stream].handle
    }

    /// Where a part of this device's memory is. Another device's is none that its functions survive.
    fn address(&self, operation: &'static str, part: Part<'_>) -> Result<usize, CallError> {
        if !Arc::ptr_eq(&part.memory().owner().shared, &self.here.shared) && !mutant!("icicle-anybodys-memory") {
            return Err(CallError::refused(operation, "this is another device's memory"));
        }
        Ok(part.address())
    }

    /// The same of a part with values in it, which ICICLE reads as its own types.
    fn values(&self, operation: &'static str, part: Part<'_>) -> Result<usize, CallError> {
        if !part.at().is_multiple_of(VALUE_ALIGN) {
            return Err(CallError::refused(operation, "values begin at multiples of 16 bytes"));
        }
        self.address(operation, part)
    }

    /// Whether nothing else is under way, and nothing is half done.
    pub(crate) fn is_quiet(&self) -> bool {
        self.here.beside == 0 && !self.here.shared.is_doubted()
    }

    /// Notes what became of the beginning of something for which ICICLE may have allocated so much by itself.
    pub(super) fn note<R>(&mut self, result: Result<R, CallError>, bytes: u64) -> Result<R, CallError> {
        self.here.note_allocates(self.stream, bytes);
        // Whoever looks at the device makes of it what it is.
        if self.checks { result } else { self.here.shared.note(result, bytes) }
    }

    /// Whether something was left half done since the device was last looked at.
    pub(crate) fn is_doubted(&self) -> bool {
        self.here.shared.is_doubted()
    }

    /// Says that this call is to find out whether the device may be trusted: it computes while the device is in doubt.
    pub(crate) fn for_checking(&mut self) {
        self.checks = true;
    }

    /// A device that is in doubt computes nothing until it has been looked at: whoever comes after a call that has failed would
    /// take its results for right. What was begun before goes on.
    fn trusted(&self, operation: &'static str) -> Result<(), CallError> {
        if self.checks || !self.here.shared.is_doubted() || mutant!("icicle-computes-in-doubt") {
            return Ok(());
        }
        Err(CallError { operation, fault: Fault::Doubted })
    }

    pub(super) fn allocate(&mut self, bytes: u64) -> Result<usize, CallError> {
        let malloc = self.here.library.symbols.malloc;
        let mut address: *mut c_void = null_mut();
        let place = &raw mut address;
        let size = bytes.max(1) as usize;
        // SAFETY: a function of ICICLE's with a pointer to write.
        let made = check("allocate", bytes, || unsafe { malloc(place, size) });
        // Out of memory it leaves the device as it was. Of anything else that it says nobody knows.
        if made.as_ref().is_err_and(CallError::is_out_of_memory) { made } else { self.note(made, bytes) }?;
        if address.is_null() {
            return Err(CallError::from_code("allocate", code::ALLOCATION_FAILED, bytes));
        }
        self.here.shared.allocated.fetch_add(bytes, Ordering::Relaxed);
        Ok(address as usize)
    }

    pub(super) fn free(&mut self, address: usize, bytes: u64) -> Result<(), CallError> {
        free(self.here.library, &self.here.shared, address, bytes)
    }

    /// What the device says of its memory, total and free.
    pub fn memory(&mut self) -> Option<(u64, u64)> {
        let get = self.here.library.symbols.get_available_memory?;
        let (mut total, mut free) = (0_usize, 0_usize);
        let (total_place, free_place) = (&raw mut total, &raw mut free);
        // SAFETY: a function of ICICLE's with two numbers to write.
        check("ask for free memory", 0, || unsafe { get(total_place, free_place) }).ok()?;
        (total > 0).then_some((total as u64, free as u64))
    }

    /// The same beside what is allocated here, at one moment.
    pub(crate) fn holdings(&mut self) -> Option<Holdings> {
        let memory = self.memory()?;
        Some(self.holdings_of(memory))
    }

    /// What failed calls may have left behind of late; from now on that is for the caller to know.
    pub(crate) fn take_remains(&mut self) -> Remains {
        // Relaxed: only this thread adds to them.
        let take = |bytes: &AtomicU64| bytes.swap(0, Ordering::Relaxed);
        let shared = &self.here.shared;
        Remains { unfreed: take(&shared.unfreed), suspected: take(&shared.suspected) }
    }

    /// What is allocated here, beside what the device has just said.
    pub(crate) fn holdings_of(&self, (total, free): (u64, u64)) -> Holdings {
        let shared = &self.here.shared;
        Holdings {
            total,
            free,
            // Relaxed: only this thread changes them.
            allocated: shared.allocated.load(Ordering::Relaxed),
            domain: shared.domain.load(Ordering::Relaxed).checked_sub(1),
        }
    }

    /// Begins to copy to the device.
    ///
    /// # Errors
    ///
    /// If it does not fit, or ICICLE says so.
    pub fn copy_in<T: Plain>(&mut self, from: &'env [T], to: Part<'env>) -> Result<(), CallError> {
        const WHAT: &str = "copy to the device";
        let bytes = size_of_val(from);
        if bytes as u64 > to.bytes() {
            return Err(CallError::refused(WHAT, "more is to be copied than there is room for"));
        }
        if bytes == 0 {
            return Ok(());
        }
        let (copy, stream) = (self.here.library.symbols.copy_to_device_async, self.stream());
        let (to, from) = (self.address(WHAT, to)? as *mut c_void, from.as_ptr().cast());
        // SAFETY: so many bytes are there on both sides, and stay there until the stream is synchronised.
        let copied = check(WHAT, 0, || unsafe { copy(to, from, bytes, stream) });
        self.note(copied, 0)
    }

    /// Begins to copy from the device.
    ///
    /// # Errors
    ///
    /// If there is not so much, or ICICLE says so.
    pub fn copy_out<T: Plain>(&mut self, from: Part<'env>, to: &'env mut [T]) -> Result<(), CallError> {
        const WHAT: &str = "copy from the device";
        let bytes = size_of_val(to);
        if bytes as u64 > from.bytes() {
            return Err(CallError::refused(WHAT, "more is to be copied than there is"));
        }
        if bytes == 0 {
            return Ok(());
        }
        let (copy, stream) = (self.here.library.symbols.copy_to_host_async, self.stream());
        let (to, from) = (to.as_mut_ptr().cast(), self.address(WHAT, from)? as *const c_void);
        // SAFETY: as in `copy_in`; any bytes are a value of `T`.
        let copied = check(WHAT, 0, || unsafe { copy(to, from, bytes, stream) });
        self.note(copied, 0)
    }

    /// Begins to overwrite what was secret with zeros.
    ///
    /// # Errors
    ///
    /// If ICICLE says so.
    pub fn erase(&mut self, part: Part<'env>) -> Result<(), CallError> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        let (stream, start) = (self.stream(), self.address("erase", part)?);
        if let Some(memset) = self.here.library.symbols.memset_async {
            let (address, bytes) = (start as *mut c_void, part.bytes() as usize);
            // SAFETY: so many bytes are there until the stream is synchronised.
            let set = check("erase", 0, || unsafe { memset(address, 0, bytes, stream) });
            return self.note(set, 0);
        }
        let mut at = 0;
        while at < part.bytes() {
            let bytes = (part.bytes() - at).min(ZEROS.len() as u64);
            let copy = self.here.library.symbols.copy_to_device_async;
            let to = (start + at as usize) as *mut c_void;
            // SAFETY: so many bytes are there on both sides until the stream is synchronised.
            let copied = check("erase", 0, || unsafe { copy(to, ZEROS.as_ptr().cast(), bytes as usize, stream) });
            self.note(copied, 0)?;
            at += bytes;
        }
        Ok(())
    }

    /// Begins a multiplication. Its points are on the device and in standard form, always: with points in host memory, or in
    /// Montgomery form, some backends compute wrong sums without an error.
    ///
    /// # Errors
    ///
    /// As ICICLE says.
    pub fn msm(&mut self, call: MsmCall<'env>) -> Result<(), CallError> {
        const WHAT: &str = "msm";
        self.trusted(WHAT)?;
        let MsmCall { group, scalars, points, window, threads, scratch_bytes, sum } = call;
        let terms = scalars.bytes() / SCALAR_BYTES;
        if terms == 0 || scalars.bytes() % SCALAR_BYTES != 0 {
            return Err(CallError::refused(WHAT, "ICICLE does not survive a multiplication without terms"));
        }
        let Ok(count) = c_int::try_from(terms) else {
            return Err(CallError::refused(WHAT, "ICICLE counts terms in 31 bits; cut the multiplication"));
        };
        if points.bytes() != terms * affine_bytes(group) {
            return Err(CallError::refused(WHAT, "there are not as many points as scalars"));
        }
        if !(1..=24).contains(&window) {
            return Err(CallError::refused(WHAT, "windows have 1 to 24 bits"));
        }
        let (scalars, points) = (self.values(WHAT, scalars)?, self.values(WHAT, points)?);
        let ext = self.extension(Some(1), threads)?;
        let config = Padded::new(MsmConfig {
            stream: self.stream(),
            precompute_factor: 1,
            c: window as c_int,
            bitsize: 255,
            batch_size: 1,
            points_shared: true,
            scalars_on_device: true,
            scalars_montgomery: true,
            points_on_device: true,
            points_montgomery: false,
            results_on_device: false,
            is_async: true,
            zeros: [0; 1],
            ext,
        });
        let symbols = &self.here.library.symbols;
        let msm = if group == CurveGroup::G1 { symbols.msm } else { symbols.g2_msm };
        let (scalars, points) = (scalars as *const c_void, points as *const c_void);
        let (config, sum) = (&raw const config.config, sum.place().cast());
        // SAFETY: so many scalars and points are on this device, and there is room for the sum, until the stream is synchronised.
        // The configuration is read during the call; its extension is kept until then.
        let begun = check(WHAT, scratch_bytes, || unsafe { msm(scalars, points, count, config, sum) });
        self.note(begun, scratch_bytes)
    }

    /// Begins to take points out of Montgomery form, in place.
    ///
    /// # Errors
    ///
    /// As ICICLE says.
    pub fn points_to_standard(&mut self, group: CurveGroup, points: Part<'env>) -> Result<(), CallError> {
        const WHAT: &str = "convert points";
        self.trusted(WHAT)?;
        if !points.bytes().is_multiple_of(affine_bytes(group)) {
            return Err(CallError::refused(WHAT, "a part of a point is none"));
        }
        let count = points.bytes() / affine_bytes(group);
        if count == 0 {
            return Ok(());
        }
        let symbols = &self.here.library.symbols;
        let convert = match group {
            CurveGroup::G1 => symbols.affine_convert_montgomery,
            CurveGroup::G2 => symbols.g2_affine_convert_montgomery,
        };
        let bytes = points.bytes();
        let (points, config) = (self.values(WHAT, points)? as *mut c_void, self.vector_config(1)?);
        let config = &raw const config.config;
        // SAFETY: so many points are on this device, until the stream is synchronised.
        let begun = check(WHAT, 0, || unsafe { convert(points, count, false, config, points) });
        self.note(begun, bytes)
    }

    /// A configuration for vectors on the device, inputs and output: conversions look at both.
    fn vector_config(&mut self, batch: c_int) -> Result<Padded<VecOpsConfig>, CallError> {
        let ext = match self.here.vector_threads {
            0 => null_mut(),
            threads => self.extension(None, threads)?,
        };
        Ok(Padded::new(VecOpsConfig {
            stream: self.stream(),
            a_on_device: true,
            b_on_device: true,
            result_on_device: true,
            is_async: true,
            batch_size: batch,
            columns_batch: false,
            zeros: [0; 7],
            ext,
        }))
    }

    /// As [`Owner::make_domain`](super::Owner::make_domain): in a call that is alone.
    pub(crate) fn init_domain(&mut self, log_size: u32) -> Result<(), CallError> {
        const WHAT: &str = "make the domain";
        if log_size > DOMAIN_MAX {
            return Err(CallError::refused(WHAT, "the field has no roots of unity of that order"));
        }
        if !self.here.is_alone() {
            return Err(CallError::refused(
                WHAT,
                "a device that several share has no domain that each could be sure of",
            ));
        }
        if self.here.shared.domain.load(Ordering::Relaxed) != 0 {
            return Err(CallError::refused(WHAT, "the device has a domain already; let go of it first"));
        }
        let root = Aligned(root_of_unity(log_size).to_bytes_le());
        let config =
            Padded::new(NttInitDomainConfig { stream: null_mut(), is_async: false, zeros: [0; 7], ext: null_mut() });
        let (init, config) = (self.here.library.symbols.ntt_init_domain, &raw const config.config);
        let root = root.0.as_ptr().cast();
        let wanted = crate::memory::domain_bytes(log_size, Scratch::Exact);
        // SAFETY: a function of ICICLE's with a scalar and a configuration to read.
        let made = check(WHAT, wanted, || unsafe { init(root, config) });
        if made.is_ok() {
            self.here.shared.domain.store(log_size + 1, Ordering::Relaxed);
        } else if !self.here.release_half_a_domain() {
            self.here.shared.give_up("it keeps half a domain, over which it would make no other".to_owned());
        }
        self.note(made, wanted)
    }

    /// As [`Owner::release_domain`](super::Owner::release_domain): in a call that is alone.
    pub(super) fn release_domain(&mut self) -> Result<(), CallError> {
        let domain = &self.here.shared.domain;
        if domain.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let release = self.here.library.symbols.ntt_release_domain;
        // SAFETY: a function of ICICLE's without arguments.
        let released = check("release the domain", 0, || unsafe { release() });
        if released.is_ok() || mutant!("icicle-forgets-its-domain") {
            domain.store(0, Ordering::Relaxed);
        }
        // There is one, which it would not let go of: it is there as before.
        self.note(released, 0)
    }

    /// Begins a transform in place, of a vector in any form that is linear in its values, Montgomery's included. `coset` is a
    /// power of the domain's root: for another ICICLE computes a table on the host, for each call.
    ///
    /// # Errors
    ///
    /// [`Fault::DomainTooSmall`]; as ICICLE says.
    pub fn ntt(&mut self, data: Part<'env>, inverse: bool, coset: Option<&Scalar>) -> Result<(), CallError> {
        const WHAT: &str = "transform";
        self.trusted(WHAT)?;
        let len = data.bytes() / SCALAR_BYTES;
        if !len.is_power_of_two() || !data.bytes().is_multiple_of(SCALAR_BYTES) {
            return Err(CallError::refused(WHAT, "the length of a transform is a power of two"));
        }
        let domain = self.here.shared.domain.load(Ordering::Relaxed).checked_sub(1);
        if domain.is_none_or(|log_size| len.ilog2() > log_size) {
            return Err(CallError { operation: WHAT, fault: Fault::DomainTooSmall });
        }
        if coset.is_some_and(|shift| bool::from(shift.is_zero())) {
            return Err(CallError::refused(WHAT, "there is no coset of zero"));
        }
        let Ok(count) = c_int::try_from(len) else {
            return Err(CallError::refused(WHAT, "ICICLE counts in 31 bits"));
        };
        let config = Padded::new(NttConfig {
            stream: self.stream(),
            coset_gen: coset.unwrap_or(&Scalar::ONE).to_bytes_le(),
            batch_size: 1,
            columns_batch: false,
            zeros: [0; 3],
            ordering: NATURAL,
            inputs_on_device: true,
            outputs_on_device: true,
            is_async: true,
            more_zeros: [0; 1],
            ext: null_mut(),
        });
        let ntt = self.here.library.symbols.ntt;
        let bytes = data.bytes();
        let (data, config) = (self.values(WHAT, data)? as *mut c_void, &raw const config.config);
        // SAFETY: so many scalars are on this device, until the stream is synchronised.
        let begun = check(WHAT, 0, || unsafe { ntt(data, count, c_int::from(inverse), config, data) });
        self.note(begun, bytes)
    }

    /// Begins `out[i] = a[i]·b[i]`, as standard forms. `out` may be one of the others.
    ///
    /// # Errors
    ///
    /// If they differ in length; as ICICLE says.
    pub fn multiply(&mut self, a: Part<'env>, b: Part<'env>, out: Part<'env>) -> Result<(), CallError> {
        self.element_wise("multiply vectors", self.here.library.symbols.vector_mul, a, b, out, 1)
    }

    /// The same of a batch of vectors that lie one behind the other.
    pub(crate) fn multiply_batch(
        &mut self,
        a: Part<'env>,
        b: Part<'env>,
        out: Part<'env>,
        batch: u32,
    ) -> Result<(), CallError> {
        self.element_wise("multiply vectors", self.here.library.symbols.vector_mul, a, b, out, batch)
    }

    /// Begins `out[i] = a[i] − b[i]`.
    ///
    /// # Errors
    ///
    /// If they differ in length; as ICICLE says.
    pub fn subtract(&mut self, a: Part<'env>, b: Part<'env>, out: Part<'env>) -> Result<(), CallError> {
        self.element_wise("subtract vectors", self.here.library.symbols.vector_sub, a, b, out, 1)
    }

    fn element_wise(
        &mut self,
        what: &'static str,
        function: VecOp,
        a: Part<'env>,
        b: Part<'env>,
        out: Part<'env>,
        batch: u32,
    ) -> Result<(), CallError> {
        self.trusted(what)?;
        let len = a.bytes() / SCALAR_BYTES;
        let fits = a.bytes() == b.bytes() && a.bytes() == out.bytes() && a.bytes().is_multiple_of(SCALAR_BYTES);
        if !fits || batch == 0 || !len.is_multiple_of(u64::from(batch)) || len > 1 << 31 {
            return Err(CallError::refused(what, "the vectors differ in length"));
        }
        if len == 0 {
            return Ok(());
        }
        let (a, b) = (self.values(what, a)? as *const c_void, self.values(what, b)? as *const c_void);
        let (out, config) = (self.values(what, out)? as *mut c_void, self.vector_config(batch as c_int)?);
        let config = &raw const config.config;
        let count = len / u64::from(batch);
        // SAFETY: so many scalars are in each vector on this device, until the stream is synchronised.
        let begun = check(what, 0, || unsafe { function(a, b, count, config, out) });
        self.note(begun, len * SCALAR_BYTES)
    }

    /// Whether there is a function for [`Scope::scale`].
    pub fn can_scale(&self) -> bool {
        self.here.library.symbols.scalar_mul_vec.is_some()
    }

    /// Begins `vector[i] = factor·vector[i]`, as standard forms; the factor is one scalar on the device.
    ///
    /// # Errors
    ///
    /// [`Fault::NoFunction`] in some forks; as ICICLE says.
    pub fn scale(&mut self, factor: Part<'env>, vector: Part<'env>) -> Result<(), CallError> {
        const WHAT: &str = "scale a vector";
        self.trusted(WHAT)?;
        let Some(function) = self.here.library.symbols.scalar_mul_vec else {
            let fault = Fault::NoFunction { name: "bls12_381_scalar_mul_vec" };
            return Err(CallError { operation: WHAT, fault });
        };
        if factor.bytes() != SCALAR_BYTES || !vector.bytes().is_multiple_of(SCALAR_BYTES) {
            return Err(CallError::refused(WHAT, "the factor is one scalar"));
        }
        let count = vector.bytes() / SCALAR_BYTES;
        if count == 0 {
            return Ok(());
        }
        let factor = self.values(WHAT, factor)? as *const c_void;
        let (vector, config) = (self.values(WHAT, vector)? as *mut c_void, self.vector_config(1)?);
        let config = &raw const config.config;
        // SAFETY: the factor and so many scalars are on this device, until the stream is synchronised.
        let begun = check(WHAT, 0, || unsafe { function(factor, vector, count, config, vector) });
        self.note(begun, count * SCALAR_BYTES)
    }

    /// Whether so much is free that a call keeps to its plan; nothing is known where the device does not tell.
    ///
    /// # Errors
    ///
    /// [`Fault::Squeezed`].
    pub fn require_free(&mut self, operation: &'static str, needed: u64) -> Result<(), CallError> {
        match self.memory() {
            Some((_, free)) if free < needed => {
                let fault = Fault::Squeezed { free: Bytes(free), needed: Bytes(needed) };
                Err(CallError { operation, fault })
            }
            _ => Ok(()),
        }
    }
}

/// ω of the domain of 2^`log_size`, as blstrs has it.
fn root_of_unity(log_size: u32) -> Scalar {
    (log_size..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| root.square())
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").field("stream", &self.stream).finish_non_exhaustive()
    }
}
