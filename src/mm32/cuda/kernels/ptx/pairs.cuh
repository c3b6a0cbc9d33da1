// Two 16-bit numbers in a word (PTX ISA, "cvt", "max", "min" and "add"; u16x2 from sm_90 on).
#pragma once

// x in the low half, y in the high one, rounded to nearest.
__device__ __forceinline__ unsigned bf16_pair(float x, float y) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
}
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
