// Computes sums that a NaN or an Inf of an operand has spoiled, without adding up all terms: such a sum depends only on its
// terms with NaN or Inf. A warp looks through a row or a column for them once, all lanes together.
#pragma once
#include "common/operand.cuh"

// What a line (a row of A or a column of B) has of NaN and Inf: nothing, a NaN, more than one Inf; or, from 0 on, the place
// along K of its only Inf. UNKNOWN: nobody has looked, because a sum shows that there is nothing.
constexpr int FINITE = -1, HAS_NAN = -2, SEVERAL_INF = -3, UNKNOWN = -4;

// What a line of `k` elements, `stride` apart, has. All lanes of a warp call it together.
__device__ __noinline__ int nonfinite_of(const float* line, long long stride, long long k) {
    constexpr int AT_ONCE = 16;  // loads under way
    int found = FINITE;
#pragma unroll 1
    for (long long first = threadIdx.x % 32; __any_sync(~0u, first < k); first += 32 * AT_ONCE) {
        float x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) x[i] = first + 32 * i < k ? line[(first + 32 * i) * stride] : 0.f;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (fabsf(x[i]) < __int_as_float(0x7f800000)) continue;
            found = x[i] != x[i] || found == HAS_NAN ? HAS_NAN : found == FINITE ? (int)first + 32 * i : SEVERAL_INF;
        }
        if (__any_sync(~0u, found == HAS_NAN)) return HAS_NAN;
        // Two lanes that have one Inf each are several too.
        const unsigned lanes = __ballot_sync(~0u, found != FINITE);
        if ((lanes & (lanes - 1)) != 0) return SEVERAL_INF;
    }
    const unsigned lane = __ballot_sync(~0u, found != FINITE);
    return lane == 0 ? FINITE : __shfl_sync(~0u, found, __ffs(lane) - 1);
}

// Whether what is known of a row of A and of a column of B decides their sum.
__device__ __forceinline__ bool decided(int of_a, int of_b) {
    return of_a == HAS_NAN || of_b == HAS_NAN || (max(of_a, of_b) >= 0 && of_a != SEVERAL_INF && of_b != SEVERAL_INF);
}

// Their sum, if it is decided.
__device__ __forceinline__ float sum_of_nonfinite(const float* a, long long a_stride, int of_a, const float* b,
                                                  long long b_stride, int of_b) {
    if (of_a == HAS_NAN || of_b == HAS_NAN) return __int_as_float(0x7fffffff);
    float sum = 0.f;
    if (of_a >= 0) sum = a[of_a * a_stride] * b[of_a * b_stride];
    if (of_b >= 0) sum += a[of_b * a_stride] * b[of_b * b_stride];
    return sum;
}
