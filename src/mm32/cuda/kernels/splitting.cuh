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

constexpr int GROUPS = 512;                        // of rows, that an operand is judged by, at most
constexpr int JUDGE_BYTES = (6 * GROUPS + 1) * 4;  // of shared memory

// The worst that each group of an operand's rows holds, to group[3 i ..]: most small elements, largest element's bits, most sampled
// places not big. Rows of one matrix after the other; returns how many of them are a group.
template <int THREADS, int AT_ONCE>
__device__ __forceinline__ int note_groups(const Split& s, int side, int thread, int samples, unsigned* group) {
    const long long rows = s.matrices[side] * (side ? s.p.n : s.p.m);
    int width = READY_ROWS;
    while (ceil_div(rows, width) > GROUPS) width *= 2;
#pragma unroll AT_ONCE
    for (long long first = thread / 32 * 32; first < rows; first += THREADS) {  // a warp's rows are of one group
        RowStats stats{{0, 0}, 0, 0, 0};
        if (first + thread % 32 < rows) stats = s.stats[side][first + thread % 32];
        const bool zeros = stats.largest == 0 && stats.small == 0;  // loses nothing
        const unsigned gaps = zeros ? 0 : samples - __popcll(stats.big[0]) - __popcll(stats.big[1]);
        const unsigned small = __reduce_max_sync(~0u, stats.small), largest = __reduce_max_sync(~0u, stats.largest);
        const unsigned most = __reduce_max_sync(~0u, gaps);
        unsigned* const at = group + 3 * (int)(first / width);
        if (thread % 32 == 0) atomicMax(at, small), atomicMax(at + 1, largest), atomicMax(at + 2, most);
    }
    return width;
}

// Judges by groups of rows, by THREADS threads of the block that is done last: whether the worst that a group of A holds with the
// worst that a group of B holds, which need not be a pair of rows, would do. If not, mm32_careful looks at the pairs. A thread reads
// AT_ONCE rows at once.
template <int THREADS, int AT_ONCE>
__device__ __forceinline__ void judge(const Split& s, int thread, unsigned* scratch) {
    unsigned *const of_a = scratch + 1, *const of_b = of_a + 3 * GROUPS;
    const int samples = (int)min(s.p.k, (long long)SAMPLES);
    for (int i = thread; i < 6 * GROUPS + 1; i += THREADS) scratch[i] = 0;
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    const int a_width = note_groups<THREADS, AT_ONCE>(s, 0, thread, samples, of_a);
    const int b_width = note_groups<THREADS, AT_ONCE>(s, 1, thread, samples, of_b);
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    const int a_count = (int)ceil_div(s.matrices[0] * s.p.m, a_width), b_count = (int)ceil_div(s.matrices[1] * s.p.n, b_width);
    const bool apart = s.matrices[0] > 1 && s.matrices[1] > 1;
    const float big = big_from(s.p.k), few = fewest(s.p.k);
    for (int i = thread; i < a_count * b_count; i += THREADS) {
        const int in_a = i % a_count, in_b = i / a_count;
        if (apart) {  // have they a matrix in common?
            const long long a0 = (long long)in_a * a_width / s.p.m, a1 = ((in_a + 1LL) * a_width - 1) / s.p.m;
            const long long b0 = (long long)in_b * b_width / s.p.n, b1 = ((in_b + 1LL) * b_width - 1) / s.p.n;
            if (a1 < b0 || b1 < a0) continue;
        }
        const unsigned *const x = of_a + 3 * in_a, *const y = of_b + 3 * in_b;
        const float a = __uint_as_float(x[1]), b = __uint_as_float(y[1]);
        if (!good(a, b, x[0] * b + y[0] * a, max(samples - (int)x[2] - (int)y[2], 0), big, few)) scratch[0] = 1;
    }
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    if (thread == 0) s.verdict->unsure = scratch[0];
}
