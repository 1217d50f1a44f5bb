// From scalars to entries sorted by bucket: what both groups share. `msm.cuh` tells what for.
#include "common.cuh"

int pc_accumulate_g1(const pc_accumulate* work, void* stream);
int pc_accumulate_g2(const pc_accumulate* work, void* stream);
int pc_reduce_g1(const pc_reduce* work, void* stream);
int pc_reduce_g2(const pc_reduce* work, void* stream);

#define PC_SCAN_THREADS 1024
// Elements that a thread of the prefix sums takes.
#define PC_SCAN_ITEMS 4

// A scalar out of Montgomery form, its absolute value in the low 255 bits and its sign in the highest.
__global__ void pc_canonical_kernel(uint32_t* canonical, const fr_t* scalars, uint32_t n)
{
#ifdef __CUDA_ARCH__
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    fr_t s = scalars[i];
    s.from();
    uint32_t sign = s.abs();
    uint4 low = {s[0], s[1], s[2], s[3]}, high = {s[4], s[5], s[6], s[7] | sign << 31};
    uint4* to = (uint4*)&canonical[8 * (size_t)i];
    to[0] = low;
    to[1] = high;
#endif
}

// The signed digit of a window: 0, or the bucket plus one, with the sign in bit 31.
__device__ __forceinline__ static uint32_t digit_of(const uint32_t* scalar, uint32_t window, uint32_t bits)
{
    const uint32_t top = scalar[7];
    uint64_t value;
    if (window == 0) {
        value = (uint64_t)scalar[0] << 1;
    } else {
        uint32_t offset = window * bits - 1, limb = offset / 32;
        uint32_t low = limb < 7 ? scalar[limb] : top & 0x7fffffff;
        uint32_t high = limb < 6 ? scalar[limb + 1] : limb == 6 ? top & 0x7fffffff : 0;
        value = (low | (uint64_t)high << 32) >> (offset % 32);
    }
    // Booth: the window's bits and the one below, of which the highest counts negatively.
    uint32_t mask = (2u << bits) - 1, raw = (uint32_t)value & mask;
    uint32_t magnitude = ((raw + 1) & mask) >> 1, sign = raw >> bits;
    if (magnitude == 0)
        return 0;
    if (sign)
        magnitude = (1u << bits) - magnitude;
    return magnitude | (sign ^ top >> 31) << 31;
}

// Adds one to counters[key] for each lane with a key, once a warp for each different key; returns the value before, as if
// the lanes had come one after the other.
__device__ __forceinline__ static uint32_t count_in_warp(uint32_t* counters, uint32_t key, bool has)
{
#ifdef __CUDA_ARCH__
    uint32_t active = __ballot_sync(0xffffffff, has);
    if (!has)
        return 0;
    uint32_t lane = threadIdx.x % 32;
    uint32_t same = __match_any_sync(active, key);
    uint32_t leader = __ffs(same) - 1, before = 0;
    if (lane == leader)
        before = atomicAdd(&counters[key], __popc(same));
    before = __shfl_sync(same, before, leader);
    return before + __popc(same & ((1u << lane) - 1));
#else
    return 0;
#endif
}

__global__ void pc_count_kernel(pc_sort w)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t* scalar = &((const uint32_t*)w.d_scalars)[8 * (size_t)i];
    for (uint32_t window = 0; window < w.windows; window++) {
        uint32_t digit = i < w.n ? digit_of(scalar, w.first_window + window, w.window_bits) : 0;
        uint32_t key = (window << (w.window_bits - 1)) + (digit & 0x7fffffff) - 1;
        count_in_warp(w.d_ends, key, digit != 0);
    }
}

__global__ void pc_scatter_kernel(pc_sort w)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t* scalar = &((const uint32_t*)w.d_scalars)[8 * (size_t)i];
    for (uint32_t window = 0; window < w.windows; window++) {
        uint32_t digit = i < w.n ? digit_of(scalar, w.first_window + window, w.window_bits) : 0;
        uint32_t key = (window << (w.window_bits - 1)) + (digit & 0x7fffffff) - 1;
        uint32_t at = count_in_warp(w.d_ends, key, digit != 0);
        if (digit)
            w.d_entries[at] = i | (digit & 0x80000000);
    }
}

// Exclusive prefix sums of a block's elements in place; the sum of all goes to block_sums.
__launch_bounds__(PC_SCAN_THREADS) __global__ void pc_scan_kernel(uint32_t* data, uint32_t n, uint32_t* block_sums)
{
    __shared__ uint32_t warps[PC_SCAN_THREADS / 32];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const size_t base = ((size_t)blockIdx.x * PC_SCAN_THREADS + threadIdx.x) * PC_SCAN_ITEMS;
    uint32_t items[PC_SCAN_ITEMS], mine = 0;
    for (uint32_t i = 0; i < PC_SCAN_ITEMS; i++) {
        items[i] = base + i < n ? data[base + i] : 0;
        mine += items[i];
    }
    uint32_t sum = mine;
    for (uint32_t step = 1; step < 32; step *= 2) {
        uint32_t below = __shfl_up_sync(0xffffffff, sum, step);
        if (lane >= step)
            sum += below;
    }
    if (lane == 31)
        warps[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        uint32_t total = warps[lane];
        for (uint32_t step = 1; step < 32; step *= 2) {
            uint32_t below = __shfl_up_sync(0xffffffff, total, step);
            if (lane >= step)
                total += below;
        }
        warps[lane] = total;
        if (lane == 31 && block_sums)
            block_sums[blockIdx.x] = total;
    }
    __syncthreads();
    uint32_t before = sum - mine + (warp ? warps[warp - 1] : 0);
    for (uint32_t i = 0; i < PC_SCAN_ITEMS; i++) {
        if (base + i < n)
            data[base + i] = before;
        before += items[i];
    }
}

__global__ void pc_add_sums_kernel(uint32_t* data, uint32_t n, const uint32_t* block_sums)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] += block_sums[i / (PC_SCAN_THREADS * PC_SCAN_ITEMS)];
}

extern "C" {

int pc_msm_canonical(void* d_canonical, const void* d_scalars, uint32_t n, void* stream)
{
    if (n == 0)
        return 0;
    pc_canonical_kernel<<<pc_blocks(n, 256), 256, 0, pc_stream_of(stream)>>>((uint32_t*)d_canonical,
                                                                           (const fr_t*)d_scalars, n);
    PC_LAUNCHED();
    return 0;
}

int pc_msm_sort(const pc_sort* w, void* stream)
{
    cudaStream_t s = pc_stream_of(stream);
    const uint32_t buckets = w->windows << (w->window_bits - 1);
    const uint32_t block = PC_SCAN_THREADS * PC_SCAN_ITEMS, blocks = pc_blocks(buckets, block);
    PC_TRY(cudaMemsetAsync(w->d_ends, 0, (size_t)buckets * sizeof(uint32_t), s));
    if (w->n == 0)
        return 0;
    pc_count_kernel<<<pc_blocks(w->n, 256), 256, 0, s>>>(*w);
    PC_LAUNCHED();
    pc_scan_kernel<<<blocks, PC_SCAN_THREADS, 0, s>>>(w->d_ends, buckets, w->d_sums);
    PC_LAUNCHED();
    if (blocks > 1) {
        // src/plan/msm.rs keeps the buckets of a pass below what two levels can add up.
        pc_scan_kernel<<<1, PC_SCAN_THREADS, 0, s>>>(w->d_sums, blocks, nullptr);
        PC_LAUNCHED();
        pc_add_sums_kernel<<<pc_blocks(buckets, 256), 256, 0, s>>>(w->d_ends, buckets, w->d_sums);
        PC_LAUNCHED();
    }
    pc_scatter_kernel<<<pc_blocks(w->n, 256), 256, 0, s>>>(*w);
    PC_LAUNCHED();
    return 0;
}

int pc_msm_accumulate(int group, const pc_accumulate* work, void* stream)
{
    return group == 1 ? pc_accumulate_g1(work, stream) : pc_accumulate_g2(work, stream);
}

int pc_msm_reduce(int group, const pc_reduce* work, void* stream)
{
    return group == 1 ? pc_reduce_g1(work, stream) : pc_reduce_g2(work, stream);
}

} // extern "C"
