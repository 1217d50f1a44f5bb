// Multiplications in G2.
#include <ff/bls12-381-fp2.hpp>

#include "msm.cuh"

typedef xyzz_t<fp2_t> bucket_t;

int pc_accumulate_g2(const pc_accumulate* work, void* stream) { return pc_accumulate_in<bucket_t>(work, stream); }
int pc_reduce_g2(const pc_reduce* work, void* stream) { return pc_reduce_in<bucket_t, fp2_t, fp2_t::mem_t>(work, stream); }
