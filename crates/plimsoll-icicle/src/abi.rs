//! The layouts and numbers of ICICLE's C interface, v3.1 to v4.0, on 64-bit machines with the System V or AArch64 ABI.
//!
//! Sizes and offsets are checked when this is compiled. What only a running library can show (that it reads these very fields)
//! is checked when one is opened, by [`trust`](crate::trust).

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

/// What a function of ICICLE returns. Never a Rust enum: numbers come that no header named.
pub(crate) type Code = c_int;

/// `eIcicleError`.
pub(crate) mod code {
    use super::Code;

    pub(crate) const SUCCESS: Code = 0;
    pub(crate) const INVALID_DEVICE: Code = 1;
    pub(crate) const OUT_OF_MEMORY: Code = 2;
    pub(crate) const INVALID_POINTER: Code = 3;
    pub(crate) const ALLOCATION_FAILED: Code = 4;
    pub(crate) const API_NOT_IMPLEMENTED: Code = 10;
    pub(crate) const INVALID_ARGUMENT: Code = 11;
    pub(crate) const BACKEND_LOAD_FAILED: Code = 12;
    pub(crate) const LICENSE_CHECK_ERROR: Code = 13;
    pub(crate) const UNKNOWN_ERROR: Code = 14;
}

/// A code's name, for messages.
pub(crate) fn code_name(code: Code) -> &'static str {
    const NAMES: [&str; 15] = [
        "success",
        "invalid device",
        "out of memory",
        "invalid pointer",
        "allocation failed",
        "deallocation failed",
        "copy failed",
        "synchronisation failed",
        "stream creation failed",
        "stream destruction failed",
        "not implemented",
        "invalid argument",
        "backend not loaded",
        "licence",
        "unknown error",
    ];
    usize::try_from(code).ok().and_then(|index| NAMES.get(index)).copied().unwrap_or("a code that no header names")
}

/// A scalar's bytes.
pub(crate) const SCALAR_BYTES: u64 = 32;

/// `icicle::Device`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Device {
    pub(crate) kind: [c_char; 64],
    pub(crate) id: c_int,
}

impl Device {
    /// Of a kind (`CPU`, `CUDA`, …), whose name has at most 63 bytes.
    pub(crate) fn new(kind: &str, id: u16) -> Option<Self> {
        let mut device = Self { kind: [0; 64], id: c_int::from(id) };
        if kind.len() >= device.kind.len() || kind.contains('\0') || kind.is_empty() {
            return None;
        }
        for (to, from) in device.kind.iter_mut().zip(kind.bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        Some(device)
    }
}

/// `MSMConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MsmConfig {
    pub(crate) stream: *mut c_void,
    pub(crate) precompute_factor: c_int,
    pub(crate) c: c_int,
    pub(crate) bitsize: c_int,
    pub(crate) batch_size: c_int,
    pub(crate) points_shared: bool,
    pub(crate) scalars_on_device: bool,
    pub(crate) scalars_montgomery: bool,
    pub(crate) points_on_device: bool,
    pub(crate) points_montgomery: bool,
    pub(crate) results_on_device: bool,
    pub(crate) is_async: bool,
    pub(crate) zeros: [u8; 1],
    pub(crate) ext: *mut c_void,
}

/// `NTTConfig<scalar>`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NttConfig {
    pub(crate) stream: *mut c_void,
    pub(crate) coset_gen: [u8; 32],
    pub(crate) batch_size: c_int,
    pub(crate) columns_batch: bool,
    pub(crate) zeros: [u8; 3],
    pub(crate) ordering: c_int,
    pub(crate) inputs_on_device: bool,
    pub(crate) outputs_on_device: bool,
    pub(crate) is_async: bool,
    pub(crate) more_zeros: [u8; 1],
    pub(crate) ext: *mut c_void,
}

/// `VecOpsConfig`, since v3.1. Before, there were no batches, and `ext` lay at 16.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VecOpsConfig {
    pub(crate) stream: *mut c_void,
    pub(crate) a_on_device: bool,
    pub(crate) b_on_device: bool,
    pub(crate) result_on_device: bool,
    pub(crate) is_async: bool,
    pub(crate) batch_size: c_int,
    pub(crate) columns_batch: bool,
    pub(crate) zeros: [u8; 7],
    pub(crate) ext: *mut c_void,
}

/// `NTTInitDomainConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NttInitDomainConfig {
    pub(crate) stream: *mut c_void,
    pub(crate) is_async: bool,
    pub(crate) zeros: [u8; 7],
    pub(crate) ext: *mut c_void,
}

/// A configuration with zeros behind it, so that a version with more fields reads defaults there and not what lies beside it. Gaps
/// between the fields are fields of zeros for the same reason: another version may have something there, a pointer even.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Padded<C> {
    pub(crate) config: C,
    zeros: [u64; 16],
}

impl<C> Padded<C> {
    pub(crate) fn new(config: C) -> Self {
        Self { config, zeros: [0; 16] }
    }
}

macro_rules! assert_layout {
    ($type:ty, $size:literal, $($field:ident at $offset:literal),+) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(offset_of!($type, $field) == $offset);)+
        };
    };
}

assert_layout!(Device, 68, kind at 0, id at 64);
assert_layout!(MsmConfig, 40,
    stream at 0, precompute_factor at 8, c at 12, bitsize at 16, batch_size at 20, points_shared at 24,
    scalars_on_device at 25, scalars_montgomery at 26, points_on_device at 27, points_montgomery at 28,
    results_on_device at 29, is_async at 30, ext at 32);
assert_layout!(NttConfig, 64,
    stream at 0, coset_gen at 8, batch_size at 40, columns_batch at 44, ordering at 48, inputs_on_device at 52,
    outputs_on_device at 53, is_async at 54, ext at 56);
assert_layout!(VecOpsConfig, 32,
    stream at 0, a_on_device at 8, b_on_device at 9, result_on_device at 10, is_async at 11, batch_size at 12,
    columns_batch at 16, ext at 24);
assert_layout!(NttInitDomainConfig, 24, stream at 0, is_async at 8, ext at 16);
assert_layout!(Padded<MsmConfig>, 168, config at 0);

pub(crate) type Nothing = unsafe extern "C-unwind" fn() -> Code;
pub(crate) type OfPointer = unsafe extern "C-unwind" fn(*mut c_void) -> Code;
pub(crate) type OfDevice = unsafe extern "C-unwind" fn(*const Device) -> Code;
pub(crate) type LoadBackend = unsafe extern "C-unwind" fn(*const c_char, bool) -> Code;
pub(crate) type RegisteredDevices = unsafe extern "C-unwind" fn(*mut c_char, usize) -> Code;
pub(crate) type AvailableMemory = unsafe extern "C-unwind" fn(*mut usize, *mut usize) -> Code;
pub(crate) type Malloc = unsafe extern "C-unwind" fn(*mut *mut c_void, usize) -> Code;
pub(crate) type DeviceCount = unsafe extern "C-unwind" fn(*mut c_int) -> Code;
pub(crate) type CopyAsync = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, usize, *mut c_void) -> Code;
pub(crate) type MemsetAsync = unsafe extern "C-unwind" fn(*mut c_void, c_int, usize, *mut c_void) -> Code;
pub(crate) type CreateStream = unsafe extern "C-unwind" fn(*mut *mut c_void) -> Code;
pub(crate) type CreateExtension = unsafe extern "C-unwind" fn() -> *mut c_void;
pub(crate) type DestroyExtension = unsafe extern "C-unwind" fn(*mut c_void);
pub(crate) type SetInt = unsafe extern "C-unwind" fn(*mut c_void, *const c_char, c_int);
pub(crate) type Msm =
    unsafe extern "C-unwind" fn(*const c_void, *const c_void, c_int, *const MsmConfig, *mut c_void) -> Code;
pub(crate) type Convert =
    unsafe extern "C-unwind" fn(*const c_void, u64, bool, *const VecOpsConfig, *mut c_void) -> Code;
pub(crate) type VecOp =
    unsafe extern "C-unwind" fn(*const c_void, *const c_void, u64, *const VecOpsConfig, *mut c_void) -> Code;
pub(crate) type Ntt = unsafe extern "C-unwind" fn(*const c_void, c_int, c_int, *const NttConfig, *mut c_void) -> Code;
pub(crate) type NttInitDomain = unsafe extern "C-unwind" fn(*const c_void, *const NttInitDomainConfig) -> Code;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devices_name_has_at_most_63_bytes_and_ends_with_a_zero() {
        let device = Device::new("CUDA", 3).expect("short");
        assert_eq!((device.kind[3], device.kind[4], device.id), (b'A' as c_char, 0, 3));
        let longest = Device::new(&"x".repeat(63), 0).expect("fits");
        assert_eq!(longest.kind[63], 0);
        for wrong in ["", "C\0PU", &"x".repeat(64)] {
            assert!(Device::new(wrong, 0).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn codes_without_a_name_are_told_apart() {
        assert_eq!(code_name(code::OUT_OF_MEMORY), "out of memory");
        assert_eq!(code_name(14), "unknown error");
        for code in [-1, 15, i32::MAX] {
            assert_eq!(code_name(code), "a code that no header names");
        }
    }
}
