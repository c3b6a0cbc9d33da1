// From fp32 to the split form of split.cuh, element by element, and what is noted of a row on the way. Used by mm32_pack, which
// splits operands in memory, and by mm32_tensorcore where it splits its own tiles.
#pragma once
#include "split.cuh"

// One operand: `rows` rows of A, or columns of B.
struct Source {
    const float* data;
    long long rows, row_stride, k_stride;
};

__device__ __forceinline__ Source source_of(const Split& s, int side, long long matrix) {
    const Batch at = locate(s.p, s.matrices[side] == 1 ? 0 : matrix);
    return side == 0 ? Source{at.a, s.p.m, s.p.a.row, s.p.a.col} : Source{at.b, s.p.n, s.p.b.col, s.p.b.row};
}

__device__ __forceinline__ float power_of_two(int e) { return __uint_as_float((unsigned)(e + 127) << 23); }

// What a block has seen of a row, in the row's scale.
struct Seen {
    float largest;
    int small;
};

// The larger magnitude; a NaN sticks.
__device__ __forceinline__ float larger(float a, float b) {
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(fabsf(b)));
    return c;
}

// Scales x and looks at it. What the scale sends to zero is small too: it is x itself that must not be zero.
__device__ __forceinline__ void look(Seen& seen, float& x, float scale) {
    const bool there = x != 0.f;
    x *= scale;
    seen.largest = larger(seen.largest, x);
    seen.small += there && fabsf(x) < SMALL;
}

// Two scaled elements as fp16: their hi halves and lo halves.
__device__ __forceinline__ void split(float x, float y, unsigned& hi, unsigned& lo) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(hi) : "f"(y), "f"(x));
    if constexpr (PLANES == 1) return;
    float xh, yh;
    asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(xh), "=f"(yh) : "r"(hi));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(lo) : "f"(y - yh), "f"(x - xh));
}

// Adds a block's part of a row to the row's stats. Magnitudes order as their bits do, a NaN above all.
__device__ __forceinline__ void report(RowStats& stats, const Seen& seen) {
    if (seen.small) atomicAdd(&stats.small, (unsigned)seen.small);
    atomicMax(&stats.largest, __float_as_uint(seen.largest) & 0x7fffffffu);
}

// Judges all rows of both operands together, by THREADS threads of the block that is done last: whether anything is out of range,
// and whether even the worst row of A with the worst column of B, which need not be a pair, would do. If not, mm32_careful
// looks at the pairs.
template <int THREADS>
__device__ __forceinline__ void judge(const Split& s, int thread) {
    __shared__ unsigned worst[2][3];  // of A and B: most small elements, largest element's bits, most places not big
    const int samples = (int)min(s.p.k, (long long)SAMPLES);
    if (thread < 6) worst[thread / 3][thread % 3] = 0;
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    for (int side = 0; side < 2; side++) {
        const long long rows = s.matrices[side] * (side ? s.p.n : s.p.m);
        unsigned small = 0, largest = 0, gaps = 0;
        for (long long row = thread; row < rows; row += THREADS) {
            const RowStats stats = s.stats[side][row];
            if (stats.largest == 0 && stats.small == 0) continue;  // all zeros: loses nothing
            small = max(small, stats.small);
            largest = max(largest, stats.largest);
            gaps = max(gaps, samples - __popcll(stats.big[0]) - __popcll(stats.big[1]));
        }
        atomicMax(&worst[side][0], small);
        atomicMax(&worst[side][1], largest);
        atomicMax(&worst[side][2], gaps);
    }
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    if (thread == 0) {
        const float a = __uint_as_float(worst[0][1]), b = __uint_as_float(worst[1][1]);
        const float lost = worst[0][0] * b + worst[1][0] * a;
        const int places = samples - (int)worst[0][2] - (int)worst[1][2];  // big in both, at least
        s.verdict->unsure = !good(a, b, lost, max(places, 0), big_from(s.p.k), fewest(s.p.k));
    }
}
