// Pairs of fp16 or bf16 numbers in a word (PTX ISA, "cvt", "max", "min" and "setp"; sm_80 and later). BF16: the numbers are
// bf16, otherwise fp16.
#pragma once

// x in the low half, y in the high one, rounded to nearest.
__device__ __forceinline__ unsigned bf16_pair(float x, float y) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
}
__device__ __forceinline__ unsigned fp16_pair(float x, float y) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
}

// The two fp16 numbers of a pair.
__device__ __forceinline__ void fp16_values(unsigned pair, float& low, float& high) {
    asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(low), "=f"(high) : "r"(pair));
}
// The fp16 number in the low half, as the bits of an fp32 number.
__device__ __forceinline__ unsigned fp16_widened(unsigned number) {
    unsigned bits;
    asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=r"(bits) : "r"(number));
    return bits;
}

// The larger, and the smaller, of two pairs, number by number. The larger is NaN if either is.
template <bool BF16>
__device__ __forceinline__ unsigned larger_numbers(unsigned a, unsigned b) {
    unsigned c;
    if constexpr (BF16) asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    else asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
template <bool BF16>
__device__ __forceinline__ unsigned smaller_numbers(unsigned a, unsigned b) {
    unsigned c;
    if constexpr (BF16) asm("min.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    else asm("min.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

// Whether a number of `least` is below its counterpart in `small`, or a number of `most` is NaN or not below its counterpart
// in `limit`.
template <bool BF16>
__device__ __forceinline__ bool any_beyond(unsigned most, unsigned least, unsigned small, unsigned limit) {
    unsigned found;
#define MM32_ANY_BEYOND(TYPE)                                                                      \
    asm("{ .reg .pred a, b, c, d; setp.lt." TYPE " a|b, %2, %3; setp.geu." TYPE " c|d, %1, %4;\n" \
        "or.pred a, a, b; or.pred c, c, d; or.pred a, a, c; selp.u32 %0, 1, 0, a; }"              \
        : "=r"(found)                                                                              \
        : "r"(most), "r"(least), "r"(small), "r"(limit))
    if constexpr (BF16) MM32_ANY_BEYOND("bf16x2");
    else MM32_ANY_BEYOND("f16x2");
#undef MM32_ANY_BEYOND
    return found;
}
