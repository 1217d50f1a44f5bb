// Multiplications in G1.
#include "msm.cuh"

typedef xyzz_t<fp_t> bucket_t;

int pc_accumulate_g1(const pc_accumulate* work, void* stream) { return pc_accumulate_in<bucket_t>(work, stream); }
int pc_reduce_g1(const pc_reduce* work, void* stream) { return pc_reduce_in<bucket_t, fp_t, fp_t::mem_t>(work, stream); }
