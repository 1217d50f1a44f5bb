//! The C interface of `cuda/abi.h`, item for item, and nothing else. Everything `unsafe` about calling it is in `raw.rs`.

use std::ffi::{c_char, c_int, c_void};

pub(crate) type Pointer = *mut c_void;
pub(crate) type ConstPointer = *const c_void;

#[repr(C)]
pub(crate) struct Properties {
    pub(crate) name: [c_char; 256],
    pub(crate) major: c_int,
    pub(crate) minor: c_int,
    pub(crate) multiprocessors: c_int,
    pub(crate) driver_version: c_int,
    pub(crate) runtime_version: c_int,
    pub(crate) total_bytes: usize,
    pub(crate) free_bytes: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NttTables {
    pub(crate) forward_inner: Pointer,
    pub(crate) forward_partial: Pointer,
    pub(crate) inverse_inner: Pointer,
    pub(crate) inverse_stage: Pointer,
    pub(crate) inverse_partial: Pointer,
}

#[repr(C)]
pub(crate) struct Sort {
    pub(crate) scalars: ConstPointer,
    pub(crate) ends: Pointer,
    pub(crate) sums: Pointer,
    pub(crate) entries: Pointer,
    pub(crate) n: u32,
    pub(crate) window_bits: u32,
    pub(crate) first_window: u32,
    pub(crate) windows: u32,
}

#[repr(C)]
pub(crate) struct Accumulate {
    pub(crate) buckets_at: Pointer,
    pub(crate) points: ConstPointer,
    pub(crate) ends: ConstPointer,
    pub(crate) entries: ConstPointer,
    pub(crate) carry: [Pointer; 2],
    pub(crate) carry_key: [Pointer; 2],
    pub(crate) buckets: u32,
    pub(crate) slices: u32,
    pub(crate) merge: u32,
}

#[repr(C)]
pub(crate) struct Reduce {
    pub(crate) buckets: ConstPointer,
    pub(crate) sum: [Pointer; 2],
    pub(crate) weighted: [Pointer; 2],
    pub(crate) result: Pointer,
    pub(crate) windows: u32,
    pub(crate) window_bits: u32,
}

unsafe extern "C" {
    pub(crate) fn pc_device_count(count: *mut c_int) -> c_int;
    pub(crate) fn pc_versions(driver: *mut c_int, runtime: *mut c_int) -> c_int;
    pub(crate) fn pc_properties_of(device: c_int, out: *mut Properties) -> c_int;
    pub(crate) fn pc_select(device: c_int) -> c_int;
    pub(crate) fn pc_has_kernels() -> c_int;
    pub(crate) fn pc_error_name(code: c_int) -> *const c_char;
    pub(crate) fn pc_error_text(code: c_int) -> *const c_char;
    pub(crate) fn pc_memory(free: *mut usize, total: *mut usize) -> c_int;
    pub(crate) fn pc_alloc(memory: *mut Pointer, bytes: usize) -> c_int;
    pub(crate) fn pc_free(memory: Pointer) -> c_int;
    pub(crate) fn pc_stream_create(stream: *mut Pointer) -> c_int;
    pub(crate) fn pc_stream_destroy(stream: Pointer) -> c_int;
    pub(crate) fn pc_stream_synchronise(stream: Pointer) -> c_int;
    pub(crate) fn pc_event_create(event: *mut Pointer, kind: c_int) -> c_int;
    pub(crate) fn pc_event_destroy(event: Pointer) -> c_int;
    pub(crate) fn pc_event_record(event: Pointer, stream: Pointer) -> c_int;
    pub(crate) fn pc_event_wait(event: Pointer, stream: Pointer) -> c_int;
    pub(crate) fn pc_event_synchronise(event: Pointer) -> c_int;
    pub(crate) fn pc_event_milliseconds(from: Pointer, to: Pointer, out: *mut f32) -> c_int;
    pub(crate) fn pc_copy_in(to: Pointer, from: ConstPointer, bytes: usize, stream: Pointer) -> c_int;
    pub(crate) fn pc_copy_out(to: Pointer, from: ConstPointer, bytes: usize, stream: Pointer) -> c_int;
    pub(crate) fn pc_copy_within(to: Pointer, from: ConstPointer, bytes: usize, stream: Pointer) -> c_int;
    pub(crate) fn pc_fill(memory: Pointer, byte: c_int, bytes: usize, stream: Pointer) -> c_int;
    pub(crate) fn pc_host_register(memory: Pointer, bytes: usize) -> c_int;
    pub(crate) fn pc_host_unregister(memory: Pointer) -> c_int;
    pub(crate) fn pc_touched(
        memory: ConstPointer,
        bytes: usize,
        byte: c_int,
        result: Pointer,
        out: *mut u64,
        stream: Pointer,
    ) -> c_int;
    pub(crate) fn pc_break(stream: Pointer) -> c_int;

    pub(crate) fn pc_ntt_fill_tables(tables: *const NttTables, stream: Pointer) -> c_int;
    pub(crate) fn pc_ntt_forward(tables: *const NttTables, data: Pointer, log_size: u32, stream: Pointer) -> c_int;
    pub(crate) fn pc_ntt_inverse(tables: *const NttTables, data: Pointer, log_size: u32, stream: Pointer) -> c_int;
    pub(crate) fn pc_bit_reverse(data: Pointer, log_size: u32, stream: Pointer) -> c_int;
    pub(crate) fn pc_powers(powers: Pointer, base: ConstPointer, stream: Pointer) -> c_int;
    pub(crate) fn pc_scale_by_powers(
        data: Pointer,
        log_size: u32,
        reversed: c_int,
        powers: ConstPointer,
        stream: Pointer,
    ) -> c_int;
    pub(crate) fn pc_mul(to: Pointer, a: ConstPointer, b: ConstPointer, n: usize, stream: Pointer) -> c_int;
    pub(crate) fn pc_mul_sub_scale(
        a: Pointer,
        b: ConstPointer,
        c: ConstPointer,
        factor: ConstPointer,
        n: usize,
        stream: Pointer,
    ) -> c_int;
    pub(crate) fn pc_gather(to: Pointer, from: ConstPointer, index: ConstPointer, n: usize, stream: Pointer) -> c_int;
    pub(crate) fn pc_msm_canonical(canonical: Pointer, scalars: ConstPointer, n: u32, stream: Pointer) -> c_int;
    pub(crate) fn pc_msm_sort(sort: *const Sort, stream: Pointer) -> c_int;
    pub(crate) fn pc_msm_accumulate(group: c_int, work: *const Accumulate, stream: Pointer) -> c_int;
    pub(crate) fn pc_msm_reduce(group: c_int, work: *const Reduce, stream: Pointer) -> c_int;
}
