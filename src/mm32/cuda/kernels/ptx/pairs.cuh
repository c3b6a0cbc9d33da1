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
// The smaller of a and b - 1, where 0 - 1 is the largest number: one instruction.
__device__ __forceinline__ unsigned smaller_less_one(unsigned a, unsigned b) {
    unsigned c;
    asm("{ .reg .b32 t; add.u16x2 t, %2, %3; min.u16x2 %0, %1, t; }" : "=r"(c) : "r"(a), "r"(b), "r"(0xffffffffu));
    return c;
}
