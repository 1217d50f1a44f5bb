// Transforms, on sppark's mixed-radix kernels with tables that lie in the caller's memory.
//
// sppark's own `NTTParameters` allocates its tables by itself, on every device of the process; here they are filled by the
// same kernels where the caller says. The coset's shift is any scalar, not only the generator that sppark is built with.
//
// `step_shape`, `steps_of`, `forward_step`, `inverse_step` and `pc_bit_reverse` follow the launchers of sppark 0.1.16
// (ntt/ntt.cuh, ntt/kernels/ct_mixed_radix_narrow.cu, ntt/kernels/gs_mixed_radix_narrow.cu), and have been changed: streams,
// tables and errors are handed in and out, and sizes end at 2^28. Of those parts:
// Copyright Supranational LLC
// Licensed under the Apache License, Version 2.0, see LICENSE-APACHE for details.
// SPDX-License-Identifier: Apache-2.0
#include "common.cuh"

#include <cassert>
#include <vector>

#include <util/gpu_t.cuh>

#include <ntt/parameters.cuh>
#include <ntt/kernels.cu>

static_assert(MAX_LG_DOMAIN_SIZE == 28 && LG_WINDOW_SIZE == 14 && WINDOW_NUM == 2, "src/plan/ntt.rs knows these sizes");

typedef fr_t (*partial_t)[WINDOW_SIZE];

__global__ void pc_mul_kernel(fr_t* to, const fr_t* a, const fr_t* b, size_t n)
{
#ifdef __CUDA_ARCH__
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) {
        fr_t x = a[i];
        x *= b[i];
        to[i] = x;
    }
#endif
}

__global__ void pc_mul_sub_scale_kernel(fr_t* a, const fr_t* b, const fr_t* c, const fr_t factor, size_t n)
{
#ifdef __CUDA_ARCH__
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) {
        fr_t x = a[i];
        x *= b[i];
        x -= c[i];
        x *= factor;
        a[i] = x;
    }
#endif
}

__global__ void pc_gather_kernel(fr_t* to, const fr_t* from, const uint32_t* index, size_t n)
{
#ifdef __CUDA_ARCH__
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = from[index[i]];
#endif
}

static fr_t scalar_at(const void* bytes)
{
    fr_t scalar;
    memcpy((void*)&scalar, bytes, sizeof(scalar));
    return scalar;
}

// How many threads a step of `iterations` bits takes; sppark's shuffles want whole warps where there are so many.
static void step_shape(uint32_t log_size, int iterations, uint32_t* blocks, uint32_t* threads)
{
    const int radix = iterations < 6 ? 6 : iterations;
    uint32_t all = 1u << (log_size - 1), block = 1u << (radix - 1);
    *threads = all <= block ? all : block;
    *blocks = (all + *threads - 1) / *threads;
}

static int inverse_step(const pc_ntt_tables* t, fr_t* data, uint32_t log_size, uint32_t* stage, int iterations, cudaStream_t s)
{
    uint32_t blocks, threads;
    step_shape(log_size, iterations, &blocks, &threads);
    const size_t shared = sizeof(fr_t) * threads;
    const partial_t partial = (partial_t)t->d_inverse_partial;
    const fr_t* inner = (const fr_t*)t->d_inverse_inner;
    auto stage_x = (fr_t (*)[512])t->d_inverse_stage;
    const fr_t scale = domain_size_inverse[log_size];
    const uint32_t out_stage = *stage - iterations;
    if (out_stage == 0)
        _GS_NTT<0><<<blocks, threads, shared, s>>>(data, log_size, *stage, iterations, partial, inner, stage_x, true, scale);
    else if (out_stage <= 9 && iterations <= 9)
        _GS_NTT<2><<<blocks, threads, shared, s>>>(data, log_size, *stage, iterations, partial, inner, stage_x, true, scale);
    else
        _GS_NTT<1><<<blocks, threads, shared, s>>>(data, log_size, *stage, iterations, partial, inner, stage_x, true, scale);
    PC_LAUNCHED();
    *stage -= iterations;
    return 0;
}

static int forward_step(const pc_ntt_tables* t, fr_t* data, uint32_t log_size, uint32_t* stage, int iterations, cudaStream_t s)
{
    uint32_t blocks, threads;
    step_shape(log_size, iterations, &blocks, &threads);
    const size_t shared = sizeof(fr_t) * threads;
    const partial_t partial = (partial_t)t->d_forward_partial;
    const fr_t* inner = (const fr_t*)t->d_forward_inner;
    fr_t (*none)[512] = nullptr;
    const fr_t scale = domain_size_inverse[log_size];
    if (*stage == 0)
        _CT_NTT<0><<<blocks, threads, shared, s>>>(data, log_size, *stage, iterations, partial, inner, none, false, scale);
    else if (*stage <= 9 && iterations <= 9)
        _CT_NTT<2><<<blocks, threads, shared, s>>>(data, log_size, *stage, iterations, partial, inner, none, false, scale);
    else
        _CT_NTT<1><<<blocks, threads, shared, s>>>(data, log_size, *stage, iterations, partial, inner, none, false, scale);
    PC_LAUNCHED();
    *stage += iterations;
    return 0;
}

// How sppark cuts a transform into steps, in the order of a forward one: at most 3 for all sizes up to 2^28.
static int steps_of(int log_size, int steps[3])
{
    if (log_size <= 10) {
        steps[0] = log_size;
        return 1;
    }
    if (log_size <= 18) {
        steps[0] = log_size / 2 + log_size % 2;
        steps[1] = log_size / 2;
        return 2;
    }
    steps[0] = log_size / 3;
    steps[1] = log_size / 3;
    steps[2] = log_size / 3 + log_size % 3;
    return 3;
}

extern "C" {

int pc_ntt_fill_tables(const pc_ntt_tables* t, void* stream)
{
    cudaStream_t s = pc_stream_of(stream);
    generate_twiddles<<<16, 512, 0, s>>>((fr_t*)t->d_forward_inner, 18u, forward_roots_of_unity[19]);
    PC_LAUNCHED();
    generate_partial_twiddles<<<WINDOW_SIZE / 64, 64, 0, s>>>((partial_t)t->d_forward_partial,
                                                             forward_roots_of_unity[MAX_LG_DOMAIN_SIZE]);
    PC_LAUNCHED();
    generate_twiddles<<<1, 512, 0, s>>>((fr_t*)t->d_inverse_inner, 9u, inverse_roots_of_unity[10]);
    PC_LAUNCHED();
    generate_stage_twiddles<<<16, 512, 0, s>>>((fr_t (*)[512])t->d_inverse_stage, 512, inverse_roots_of_unity[18]);
    PC_LAUNCHED();
    generate_partial_twiddles<<<WINDOW_SIZE / 64, 64, 0, s>>>((partial_t)t->d_inverse_partial,
                                                             inverse_roots_of_unity[MAX_LG_DOMAIN_SIZE]);
    PC_LAUNCHED();
    return 0;
}

int pc_ntt_forward(const pc_ntt_tables* t, void* d_data, uint32_t log_size, void* stream)
{
    if (log_size == 0)
        return 0;
    int steps[3], count = steps_of((int)log_size, steps);
    uint32_t stage = 0;
    for (int i = 0; i < count; i++)
        if (int code = forward_step(t, (fr_t*)d_data, log_size, &stage, steps[i], pc_stream_of(stream)))
            return code;
    return 0;
}

int pc_ntt_inverse(const pc_ntt_tables* t, void* d_data, uint32_t log_size, void* stream)
{
    if (log_size == 0)
        return 0;
    int steps[3], count = steps_of((int)log_size, steps);
    uint32_t stage = log_size;
    for (int i = count; i--;)
        if (int code = inverse_step(t, (fr_t*)d_data, log_size, &stage, steps[i], pc_stream_of(stream)))
            return code;
    return 0;
}

int pc_bit_reverse(void* d_data, uint32_t log_size, void* stream)
{
    cudaStream_t s = pc_stream_of(stream);
    fr_t* data = (fr_t*)d_data;
    const size_t n = (size_t)1 << log_size;
    constexpr uint32_t Z = 256 / sizeof(fr_t);
    if (log_size < 2)
        return 0;
    if (n <= 1024)
        bit_rev_permutation<<<1, n, 0, s>>>(data, (const fr_t*)data, log_size);
    else
        bit_rev_permutation_z<Z><<<n / Z / 32, 32, 32 * Z * sizeof(fr_t), s>>>(data, (const fr_t*)data, log_size);
    PC_LAUNCHED();
    return 0;
}

int pc_powers(void* d_powers, const void* base, void* stream)
{
    generate_partial_twiddles<<<WINDOW_SIZE / 64, 64, 0, pc_stream_of(stream)>>>((partial_t)d_powers, scalar_at(base));
    PC_LAUNCHED();
    return 0;
}

int pc_scale_by_powers(void* d_data, uint32_t log_size, int reversed, const void* d_powers, void* stream)
{
    if (log_size == 0)
        return 0;
    const size_t n = (size_t)1 << log_size;
    const uint32_t threads = n < 256 ? (uint32_t)n : 256;
    LDE_distribute_powers<<<n / threads, threads, 0, pc_stream_of(stream)>>>(
        (fr_t*)d_data, log_size, 0u, reversed != 0, (const fr_t (*)[WINDOW_SIZE])d_powers);
    PC_LAUNCHED();
    return 0;
}

int pc_mul(void* d_to, const void* d_a, const void* d_b, size_t n, void* stream)
{
    if (n == 0)
        return 0;
    pc_mul_kernel<<<pc_blocks(n, 256), 256, 0, pc_stream_of(stream)>>>((fr_t*)d_to, (const fr_t*)d_a, (const fr_t*)d_b, n);
    PC_LAUNCHED();
    return 0;
}

int pc_mul_sub_scale(void* d_a, const void* d_b, const void* d_c, const void* factor, size_t n, void* stream)
{
    if (n == 0)
        return 0;
    pc_mul_sub_scale_kernel<<<pc_blocks(n, 256), 256, 0, pc_stream_of(stream)>>>(
        (fr_t*)d_a, (const fr_t*)d_b, (const fr_t*)d_c, scalar_at(factor), n);
    PC_LAUNCHED();
    return 0;
}

int pc_gather(void* d_to, const void* d_from, const uint32_t* d_index, size_t n, void* stream)
{
    if (n == 0)
        return 0;
    pc_gather_kernel<<<pc_blocks(n, 256), 256, 0, pc_stream_of(stream)>>>((fr_t*)d_to, (const fr_t*)d_from, d_index, n);
    PC_LAUNCHED();
    return 0;
}

} // extern "C"
