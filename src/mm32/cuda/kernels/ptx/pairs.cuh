// Two 16-bit integers in a word (PTX ISA, "max"; sm_90 and later).
#pragma once
#include "ptx/half_pairs.cuh"

__device__ __forceinline__ unsigned larger_pair(unsigned a, unsigned b) {
    unsigned c;
    asm("max.u16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
__device__ __forceinline__ unsigned larger_signed_pair(unsigned a, unsigned b) {
    unsigned c;
    asm("max.s16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
