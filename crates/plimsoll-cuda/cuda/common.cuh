// What all kernels share: sppark's fields and the way errors leave this library.
#pragma once
#include <cstdint>
#include <cuda_runtime.h>

#include <ff/bls12-381.hpp>

#include "abi.h"

// Returns from the calling function on an error, after having taken it from CUDA's own memory of it.
#define PC_TRY(expression)                          \
    do {                                            \
        cudaError_t pc_code = (expression);         \
        if (pc_code != cudaSuccess) {               \
            (void)cudaGetLastError();               \
            return (int)pc_code;                    \
        }                                           \
    } while (0)

// For the end of a function whose last act was to launch a kernel.
#define PC_LAUNCHED() PC_TRY(cudaGetLastError())

static inline cudaStream_t pc_stream_of(void* stream) { return (cudaStream_t)stream; }

static inline uint32_t pc_blocks(size_t n, uint32_t threads) { return (uint32_t)((n + threads - 1) / threads); }
