// The C interface between this crate's Rust side and its CUDA side. src/ffi.rs repeats it, item for item.
//
// Every function returns a cudaError_t as an int, 0 for success. A function that fails clears the error that CUDA would
// otherwise report to the next call (`cudaGetLastError`), so that one failure is reported once. Pointers called `d_…` are
// device memory that the caller owns; nothing here allocates device memory except `pc_alloc`.
#pragma once
#include <stddef.h>
#include <stdint.h>

extern "C" {

struct pc_properties {
    char name[256];
    int major, minor;
    int multiprocessors;
    int driver_version, runtime_version;
    size_t total_bytes, free_bytes;
};

// The runtime (runtime.cu).
int pc_device_count(int* count);
// As CUDA numbers them; 0 for a driver that is not there.
int pc_versions(int* driver, int* runtime);
int pc_properties_of(int device, pc_properties* out);
int pc_select(int device);
// Whether this build has machine code that runs on the selected device.
int pc_has_kernels();
const char* pc_error_name(int code);
const char* pc_error_text(int code);
int pc_memory(size_t* free_bytes, size_t* total_bytes);
int pc_alloc(void** d_memory, size_t bytes);
int pc_free(void* d_memory);
int pc_stream_create(void** stream);
int pc_stream_destroy(void* stream);
int pc_stream_synchronise(void* stream);
// `kind` is 0 for an order of things, 1 for one that is timed, 2 for one that a thread waits for without turning.
int pc_event_create(void** event, int kind);
int pc_event_destroy(void* event);
int pc_event_record(void* event, void* stream);
int pc_event_wait(void* event, void* stream);
int pc_event_synchronise(void* event);
int pc_event_milliseconds(void* from, void* to, float* out);
int pc_copy_in(void* d_to, const void* from, size_t bytes, void* stream);
int pc_copy_out(void* to, const void* d_from, size_t bytes, void* stream);
int pc_copy_within(void* d_to, const void* d_from, size_t bytes, void* stream);
int pc_fill(void* d_memory, int byte, size_t bytes, void* stream);
int pc_host_register(void* memory, size_t bytes);
int pc_host_unregister(void* memory);
// The offset of the last byte in d_memory that is not `byte`, plus one; 0 if all are. d_result is 8 bytes.
int pc_touched(const void* d_memory, size_t bytes, int byte, void* d_result, uint64_t* out, void* stream);
// A kernel that breaks the context, for the tests of sticky errors.
int pc_break(void* stream);

// Transforms (ntt.cu). Elements are scalars in Montgomery form, 32 bytes each.
struct pc_ntt_tables {
    void* d_forward_inner;     // 2^18 elements
    void* d_forward_partial;   // 2 * 2^14
    void* d_inverse_inner;     // 512
    void* d_inverse_stage;     // 512 * 512
    void* d_inverse_partial;   // 2 * 2^14
};
int pc_ntt_fill_tables(const pc_ntt_tables* tables, void* stream);
// Bit-reversed coefficients to evaluations in natural order.
int pc_ntt_forward(const pc_ntt_tables* tables, void* d_data, uint32_t log_size, void* stream);
// Evaluations in natural order to bit-reversed coefficients, with the factor 1/n.
int pc_ntt_inverse(const pc_ntt_tables* tables, void* d_data, uint32_t log_size, void* stream);
int pc_bit_reverse(void* d_data, uint32_t log_size, void* stream);
// The powers of a scalar as 2 tables of 2^14.
int pc_powers(void* d_powers, const void* base, void* stream);
// d_data[i] *= base^i, or base^(i reversed).
int pc_scale_by_powers(void* d_data, uint32_t log_size, int reversed, const void* d_powers, void* stream);
// d_to[i] = d_a[i] * d_b[i].
int pc_mul(void* d_to, const void* d_a, const void* d_b, size_t n, void* stream);
int pc_mul_sub_scale(void* d_a, const void* d_b, const void* d_c, const void* factor, size_t n, void* stream);
// d_to[i] = d_from[d_index[i]].
int pc_gather(void* d_to, const void* d_from, const uint32_t* d_index, size_t n, void* stream);

// Multiplications (msm.cuh). `group` is 1 or 2. See src/plan/msm.rs for the sizes of all buffers.
struct pc_sort {
    const void* d_scalars;     // the canonical ones
    uint32_t* d_ends;          // per bucket: count, then cursor, at last the end of its entries
    uint32_t* d_sums;          // scratch of the prefix sums
    uint32_t* d_entries;       // indices of points, sorted by bucket; bit 31 is the sign
    uint32_t n, window_bits, first_window, windows;
};
int pc_msm_canonical(void* d_canonical, const void* d_scalars, uint32_t n, void* stream);
int pc_msm_sort(const pc_sort* sort, void* stream);

struct pc_accumulate {
    void* d_buckets;
    const void* d_points;
    const uint32_t* d_ends;
    const uint32_t* d_entries;
    void* d_carry[2];
    uint32_t* d_carry_key[2];
    uint32_t buckets;          // of the windows of this pass
    uint32_t slices;           // threads (pairs of threads in G2) that share the entries
    uint32_t merge;            // whether d_buckets hold sums already
};
int pc_msm_accumulate(int group, const pc_accumulate* work, void* stream);

struct pc_reduce {
    const void* d_buckets;
    void* d_sum[2];
    void* d_weighted[2];
    void* d_result;            // `windows` points in Jacobian coordinates
    uint32_t windows, window_bits;
};
int pc_msm_reduce(int group, const pc_reduce* work, void* stream);

} // extern "C"
