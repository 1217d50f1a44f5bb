// Multi-scalar multiplication by buckets, over sppark's fields and curves, for both groups.
//
// The scalars are written in signed digits of c bits; each non-zero digit of each scalar is an *entry*: add point i, or its
// negative, to a bucket. The entries of a pass are sorted by bucket (count, prefix sums, scatter) and then cut into equal
// *slices*, one a thread (two threads in G2, as sppark's fp2_t wants it):
//
//     buckets   |  0  | 1 |        2        |3|  4  |
//     slices    |   0   |   1   |   2   |   3   |   4 ...
//
// A slice adds up runs of entries of one bucket. A run that lies inside of it is that bucket's sum; its first and its last
// run may go on in a neighbouring slice, so these are *carries*: 2 a slice, in order, added up in further levels of the same
// shape. So a bucket with half of all entries (witnesses are full of equal values) costs what any other entries cost, where
// sppark's own `accumulate` has one thread walk through it; and no thread of a warp waits for another's longer bucket.
//
// A carry whose run goes on on both sides fills both of its slots, the second with the point at infinity: so two
// neighbouring slots hold the same key exactly when the run crosses between them.
//
// The buckets of a window, weighted by their digit, are added in levels of 4: each level keeps the plain sum of a group
// (times 4, for the next level's weights) and what has been weighted.
#pragma once
#include "common.cuh"

#include <ec/jacobian_t.hpp>
#include <ec/xyzz_t.hpp>

#define PC_SLICE_THREADS 384
// Slots that one thread of a carry level adds up, and buckets that one thread of a reduction does.
#define PC_CARRY_STEP 8
#define PC_REDUCE_STEP 4
#define PC_NO_KEY 0xffffffffu

// An xyzz_t's coordinates, which are private to it, in the order in which it stores them.
template <class field_h> struct pc_xyzz { field_h X, Y, ZZZ, ZZ; };
template <class field_h> struct pc_jacobian { field_h X, Y, Z; };

// The first bucket that ends behind `entry`.
__device__ __forceinline__ static uint32_t bucket_of(const uint32_t* ends, uint32_t buckets, uint32_t entry)
{
    uint32_t low = 0, high = buckets - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (ends[middle] > entry)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

template <class bucket_t, class bucket_h = typename bucket_t::mem_t, class affine_t = typename bucket_t::affine_t,
          class affine_h = typename affine_t::mem_t>
__launch_bounds__(PC_SLICE_THREADS) __global__
void pc_accumulate_kernel(bucket_h* buckets, const affine_h* points, const uint32_t* ends, const uint32_t* entries,
                          uint32_t bucket_count, uint32_t slices, bucket_h* carry, uint32_t* carry_key, bool merge)
{
#ifdef __CUDA_ARCH__
    const uint32_t slice = (blockIdx.x * blockDim.x + threadIdx.x) / bucket_t::degree;
    if (slice >= slices)
        return;
    const uint32_t total = ends[bucket_count - 1];
    const uint32_t share = (total + slices - 1) / slices;
    uint32_t i = slice * share;
    const uint32_t stop = min(i + share, total);
    uint32_t first_key = PC_NO_KEY, last_key = PC_NO_KEY;

    if (i < stop) {
        uint32_t bucket = bucket_of(ends, bucket_count, i);
        uint32_t end = ends[bucket];
        bool from_before = bucket != 0 ? ends[bucket - 1] < i : i != 0;
        bucket_t sum;
        sum.inf();
        if (merge && !from_before)
            sum = buckets[bucket];

        uint32_t entry = entries[i];
        #pragma unroll 1
        while (true) {
            affine_t point = points[entry & 0x7fffffff];
            bool negative = entry >> 31;
            if (++i < stop)
                entry = entries[i];
            sum.add(point, negative);
            if (i == stop)
                break;
            if (i == end) {
                if (from_before) {
                    carry[2 * slice] = sum;
                    first_key = bucket;
                    from_before = false;
                } else {
                    buckets[bucket] = sum;
                }
                do
                    end = ends[++bucket];
                while (end == i);
                sum.inf();
                if (merge)
                    sum = buckets[bucket];
            }
        }
        bool goes_on = end > stop;
        if (from_before) {
            carry[2 * slice] = sum;
            first_key = bucket;
            if (goes_on) {
                carry[2 * slice + 1].inf();
                last_key = bucket;
            }
        } else if (goes_on) {
            carry[2 * slice + 1] = sum;
            last_key = bucket;
        } else {
            buckets[bucket] = sum;
        }
    }
    carry_key[2 * slice] = first_key;
    carry_key[2 * slice + 1] = last_key;
#endif
}

// One level of carries. Its threads take slots from odd to odd, so that the two carries of one boundary stay together.
template <class bucket_t, class bucket_h = typename bucket_t::mem_t>
__launch_bounds__(256) __global__
void pc_carry_kernel(bucket_h* buckets, const bucket_h* in, const uint32_t* in_key, uint32_t slots, bucket_h* out,
                     uint32_t* out_key, uint32_t threads)
{
#ifdef __CUDA_ARCH__
    const uint32_t t = (blockIdx.x * blockDim.x + threadIdx.x) / bucket_t::degree;
    if (t >= threads)
        return;
    const uint32_t low = t == 0 ? 0 : PC_CARRY_STEP * t - 1;
    const uint32_t high = min(PC_CARRY_STEP * t + PC_CARRY_STEP - 1, slots);
    uint32_t first_key = PC_NO_KEY, last_key = PC_NO_KEY, current = PC_NO_KEY;
    bool from_before = false;
    bucket_t sum;
    sum.inf();

    #pragma unroll 1
    for (uint32_t slot = low; slot < high; slot++) {
        uint32_t key = in_key[slot];
        if (key == current) {
            if (key != PC_NO_KEY) {
                bucket_t more = in[slot];
                if (bucket_t::degree == 1)
                    sum.add(more);
                else
                    sum.uadd(more);
            }
            continue;
        }
        if (current != PC_NO_KEY) {
            if (from_before) {
                out[2 * t] = sum;
                first_key = current;
            } else {
                buckets[current] = sum;
            }
        }
        current = key;
        from_before = false;
        if (key != PC_NO_KEY) {
            sum = in[slot];
            from_before = slot == low && low != 0 && in_key[low - 1] == key;
        }
    }
    if (current != PC_NO_KEY) {
        bool goes_on = high < slots && in_key[high] == current;
        if (from_before) {
            out[2 * t] = sum;
            first_key = current;
            if (goes_on) {
                out[2 * t + 1].inf();
                last_key = current;
            }
        } else if (goes_on) {
            out[2 * t + 1] = sum;
            last_key = current;
        } else {
            buckets[current] = sum;
        }
    }
    out_key[2 * t] = first_key;
    out_key[2 * t + 1] = last_key;
#endif
}

// One level of the reduction: `step` neighbours become one. `weighted_in` may be null, for nothing yet.
template <class bucket_t, class bucket_h = typename bucket_t::mem_t>
__launch_bounds__(256) __global__
void pc_reduce_kernel(const bucket_h* sum_in, const bucket_h* weighted_in, bucket_h* sum_out, bucket_h* weighted_out,
                      uint32_t step, uint32_t groups)
{
#ifdef __CUDA_ARCH__
    const uint32_t group = (blockIdx.x * blockDim.x + threadIdx.x) / bucket_t::degree;
    if (group >= groups)
        return;
    const uint32_t base = group * step;
    bucket_t sum = sum_in[base + step - 1];
    bucket_t weighted = weighted_in[base];
    #pragma unroll 1
    for (uint32_t i = 1; i < step; i++) {
        bucket_t more = weighted_in[base + i];
        weighted.uadd(more);
    }
    // Suffix sums: the element at i is added i times in all.
    #pragma unroll 1
    for (uint32_t i = step - 1; i > 0; i--) {
        weighted.uadd(sum);
        bucket_t more = sum_in[base + i - 1];
        sum.uadd(more);
    }
    #pragma unroll 1
    for (uint32_t factor = 1; factor < step; factor *= 2) {
        bucket_t same = sum;
        sum.uadd(same);
    }
    sum_out[group] = sum;
    weighted_out[group] = weighted;
#endif
}

template <class bucket_t, class bucket_h = typename bucket_t::mem_t, class field_t, class field_h>
__launch_bounds__(256) __global__
void pc_finish_kernel(const bucket_h* weighted, pc_jacobian<field_h>* result, uint32_t windows)
{
#ifdef __CUDA_ARCH__
    const uint32_t window = (blockIdx.x * blockDim.x + threadIdx.x) / bucket_t::degree;
    if (window >= windows)
        return;
    const pc_xyzz<field_h>* p = (const pc_xyzz<field_h>*)&weighted[window];
    field_t x = p->X, y = p->Y, zzz = p->ZZZ, zz = p->ZZ;
    x = x * zz;
    y = y * zzz;
    result[window].X = x;
    result[window].Y = y;
    result[window].Z = zz;
#endif
}

template <class bucket_t> static uint32_t pc_blocks_of(uint32_t items, uint32_t threads)
{
    return pc_blocks((size_t)items * bucket_t::degree, threads);
}

template <class bucket_t, class bucket_h = typename bucket_t::mem_t, class affine_t = typename bucket_t::affine_t,
          class affine_h = typename affine_t::mem_t>
static int pc_accumulate_in(const pc_accumulate* w, void* stream)
{
    cudaStream_t s = pc_stream_of(stream);
    bucket_h* buckets = (bucket_h*)w->d_buckets;
    pc_accumulate_kernel<bucket_t><<<pc_blocks_of<bucket_t>(w->slices, PC_SLICE_THREADS), PC_SLICE_THREADS, 0, s>>>(
        buckets, (const affine_h*)w->d_points, w->d_ends, w->d_entries, w->buckets, w->slices, (bucket_h*)w->d_carry[0],
        w->d_carry_key[0], w->merge != 0);
    PC_LAUNCHED();
    uint32_t slots = 2 * w->slices, from = 0;
    // The last level is one thread that has all slots, so that no run crosses a boundary.
    while (true) {
        uint32_t threads = slots / PC_CARRY_STEP + 1;
        pc_carry_kernel<bucket_t><<<pc_blocks_of<bucket_t>(threads, 256), 256, 0, s>>>(
            buckets, (const bucket_h*)w->d_carry[from], w->d_carry_key[from], slots, (bucket_h*)w->d_carry[from ^ 1],
            w->d_carry_key[from ^ 1], threads);
        PC_LAUNCHED();
        if (threads == 1)
            return 0;
        slots = 2 * threads;
        from ^= 1;
    }
}

template <class bucket_t, class field_t, class field_h, class bucket_h = typename bucket_t::mem_t>
static int pc_reduce_in(const pc_reduce* w, void* stream)
{
    cudaStream_t s = pc_stream_of(stream);
    const bucket_h* sum = (const bucket_h*)w->d_buckets;
    // A bucket's weight is its index plus one, so the plain sum of all is in what has been weighted already.
    const bucket_h* weighted = sum;
    uint32_t each = 1u << (w->window_bits - 1), to = 0;
    while (each > 1) {
        uint32_t step = each < PC_REDUCE_STEP ? each : PC_REDUCE_STEP;
        each /= step;
        uint32_t groups = w->windows * each;
        pc_reduce_kernel<bucket_t><<<pc_blocks_of<bucket_t>(groups, 256), 256, 0, s>>>(
            sum, weighted, (bucket_h*)w->d_sum[to], (bucket_h*)w->d_weighted[to], step, groups);
        PC_LAUNCHED();
        sum = (const bucket_h*)w->d_sum[to];
        weighted = (const bucket_h*)w->d_weighted[to];
        to ^= 1;
    }
    pc_finish_kernel<bucket_t, bucket_h, field_t, field_h><<<pc_blocks_of<bucket_t>(w->windows, 256), 256, 0, s>>>(
        weighted, (pc_jacobian<field_h>*)w->d_result, w->windows);
    PC_LAUNCHED();
    return 0;
}
