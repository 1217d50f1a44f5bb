//! Operations on vectors, and conversions.

use std::ffi::{c_int, c_void};

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;

use crate::compute::{Group2, standard};
use crate::extension::Extension;
use crate::faults::state;
use crate::ffi::{Code, begin, begin_on, throw, violation};

/// What is read of a `VecOpsConfig`.
struct VecConfig {
    stream: *mut c_void,
    on_device: [bool; 3],
    is_async: bool,
    batch: usize,
    threads: c_int,
}

/// Reads it as the version does that is mocked. Behind the number since v3.1 there is a pointer to an extension.
unsafe fn vec_config(config: *const u8) -> VecConfig {
    // SAFETY: 24 bytes at least of the caller's, with a pointer and four flags; since v3.1 there are 32, with a number and a pointer
    // to an extension of the caller's or null.
    unsafe {
        let flag = |at: usize| *config.add(at) != 0;
        let batch = match state().knobs.get("layout", 31) {
            30 => 1,
            _ => *config.add(12).cast::<c_int>() as usize,
        };
        let extension = match state().knobs.get("layout", 31) {
            30 => std::ptr::null(),
            _ => *config.add(24).cast::<*const Extension>(),
        };
        VecConfig {
            stream: *config.cast::<*mut c_void>(),
            on_device: [flag(8), flag(9), flag(10)],
            is_async: flag(11),
            batch,
            threads: extension.as_ref().map_or(0, |extension| extension.threads),
        }
    }
}

fn convert<G: Group2>(input: *const c_void, n: u64, into: bool, config: *const u8, out: *mut c_void) -> Code {
    let place = begin!("convert");
    // SAFETY: a configuration of the caller's.
    let config = unsafe { vec_config(config) };
    if into || !std::ptr::eq(input, out) || !config.on_device[0] || !config.on_device[2] {
        return violation(11);
    }
    let at = out as usize;
    let work = move || {
        let mut state = state();
        let Some(bytes) = state.bytes(place, at, G::AFFINE * n as usize) else { return 3 };
        G::convert(bytes);
        0
    };
    begin_on(config.stream, place, config.is_async, Box::new(work))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bls12_381_affine_convert_montgomery(
    input: *const c_void,
    n: u64,
    into: bool,
    config: *const u8,
    out: *mut c_void,
) -> Code {
    convert::<G1Affine>(input, n, into, config, out)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bls12_381_g2_affine_convert_montgomery(
    input: *const c_void,
    n: u64,
    into: bool,
    config: *const u8,
    out: *mut c_void,
) -> Code {
    begin!("g2_convert");
    convert::<G2Affine>(input, n, into, config, out)
}

fn element_wise(
    [a, b, out]: [usize; 3],
    n: u64,
    one_scalar: bool,
    config: *const u8,
    f: fn(Scalar, Scalar) -> Scalar,
) -> Code {
    let place = begin!("vector");
    // SAFETY: a configuration of the caller's.
    let config = unsafe { vec_config(config) };
    if config.on_device != [true; 3] {
        return violation(11);
    }
    if place == 0 && config.threads < 2 && state().knobs.get("few_cores", 0) != 0 {
        return throw(c"the number of workers must be at least 1", false);
    }
    if [a, b, out].iter().any(|address| !address.is_multiple_of(8)) {
        return violation(11);
    }
    let wrong = one_scalar && state().knobs.get("wrong_scale", 0) != 0;
    let len = 32 * n as usize * config.batch;
    let a_len = if one_scalar { 32 * config.batch } else { len };
    let work = move || {
        let mut state = state();
        let mut read = |at, len| {
            let bytes = state.bytes(place, at, len)?.to_vec();
            bytes.chunks_exact(32).map(standard).collect::<Option<Vec<Scalar>>>()
        };
        let (Some(a), Some(b)) = (read(a, a_len), read(b, len)) else {
            state.knobs.violations += 1;
            return 11;
        };
        let Some(out) = state.bytes(place, out, len) else { return 3 };
        for (index, (out, b)) in out.chunks_exact_mut(32).zip(&b).enumerate() {
            let a = if one_scalar { a[index / n as usize] } else { a[index] };
            out.copy_from_slice(&f(a, if wrong { *b + Scalar::ONE } else { *b }).to_bytes_le());
        }
        0
    };
    begin_on(config.stream, place, config.is_async, Box::new(work))
}

macro_rules! element_wise {
    ($($name:ident, $one_scalar:literal, $f:expr;)+) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            a: *const c_void,
            b: *const c_void,
            n: u64,
            config: *const u8,
            out: *mut c_void,
        ) -> Code {
            element_wise([a as usize, b as usize, out as usize], n, $one_scalar, config, $f)
        }
    )+};
}

element_wise! {
    bls12_381_vector_mul, false, |a, b| a * b;
    bls12_381_vector_sub, false, |a, b| a - b;
    bls12_381_scalar_mul_vec, true, |a, b| a * b;
}
