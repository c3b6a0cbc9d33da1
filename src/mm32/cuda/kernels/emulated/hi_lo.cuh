// From fp32 to the packed form of emulated/panels.cuh, element by element, the statistics of a row that are collected on the way,
// and the decision made from them. Used by mm32_pack, and by mm32_tensorcore where it packs inline.
#pragma once
#include "common/operand.cuh"
#include "emulated/panels.cuh"

__device__ __forceinline__ Operand operand_of(const Params& s, int side, long long matrix) {
    return operand_of(s.p, pointers_of(s.p, packed_matrix(s, side, matrix)), side);
}

__device__ __forceinline__ float power_of_two(int e) { return __uint_as_float((unsigned)(e + 127) << 23); }

// What a thread has observed of a row, in the row's scale.
struct Observed {
    float largest;
    unsigned small;
};

// The larger magnitude; NaN if either is NaN.
__device__ __forceinline__ float larger(float a, float b) {
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(fabsf(b)));
    return c;
}

// Observes x, whose scaled value is `scaled`. An element is small also if scaling makes it zero; so x itself is compared with
// zero. `one` is added to the count of small elements, in PTX, because the compiler makes two instructions of that.
__device__ __forceinline__ void observe(float& largest, unsigned& small, float x, float scaled, unsigned one = 1) {
    largest = larger(largest, scaled);
    asm("{ .reg .pred p; setp.neu.f32 p, %1, 0f00000000; setp.lt.and.f32 p, %2, %3, p; @p add.u32 %0, %0, %4; }"
        : "+r"(small)
        : "f"(x), "f"(fabsf(scaled)), "f"(SMALL), "r"(one));
}

// Scales x and observes it, with fewer registers.
__device__ __forceinline__ void scale_and_observe(Observed& observed, float& x, float scale) {
    const bool nonzero = x != 0.f;
    x *= scale;
    observed.largest = larger(observed.largest, x);
    observed.small += nonzero && fabsf(x) < SMALL;
}

// Splits two scaled elements: their hi parts as a pair of fp16 numbers, and their lo parts.
__device__ __forceinline__ void split(float x, float y, unsigned& hi, unsigned& lo) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(hi) : "f"(y), "f"(x));
    if constexpr (PLANES == 1) return;
    float xh, yh;
    asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(xh), "=f"(yh) : "r"(hi));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(lo) : "f"(y - yh), "f"(x - xh));
}

// Adds what was observed of a part of a row to the row's stats. Magnitudes order as their bits do, with NaN above all.
__device__ __forceinline__ void record(RowStats& stats, const Observed& observed) {
    if (observed.small) atomicAdd(&stats.small, observed.small);
    atomicMax(&stats.largest, __float_as_uint(observed.largest) & 0x7fffffffu);
}

constexpr int DECIDE_BYTES = (2 * ROW_GROUPS + 1) * sizeof(GroupStats);  // of shared memory

// Reduces the stats of an operand's rows to those of its groups. A thread loads AT_ONCE rows together: one row at a time took 366
// us for 65536 rows, four took 180.
template <int THREADS, int AT_ONCE>
__device__ __forceinline__ void reduce_to_groups(const Params& s, int side, int thread, int samples, GroupStats* groups) {
    const long long rows = s.matrices[side] * (side ? s.p.n : s.p.m);
    const int shift = group_shift(rows);
    const RowStats* const all = s.stats[side];
#pragma unroll 1
    for (long long first = thread / 32 * 32; first < rows; first += AT_ONCE * THREADS) {
        RowStats stats[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const long long row = first + i * THREADS + thread % 32;
            stats[i] = RowStats{{0, 0}, 0, 0, 0};
            if (row < rows) stats[i] = all[row];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {  // the 32 rows of a warp belong to one group
            const RowStats& x = stats[i];
            const bool zeros = x.largest == 0 && x.small == 0;  // such a row loses nothing
            const unsigned gaps = zeros ? 0 : samples - __popcll(x.big[0]) - __popcll(x.big[1]);
            const unsigned small = __reduce_max_sync(~0u, x.small), largest = __reduce_max_sync(~0u, x.largest);
            const unsigned most = __reduce_max_sync(~0u, gaps);
            if (thread % 32 != 0 || first + i * THREADS >= rows) continue;
            GroupStats& at = groups[(first + i * THREADS) >> shift];
            atomicMax(&at.small, small), atomicMax(&at.largest, largest), atomicMax(&at.gaps, most);
        }
    }
}

// The accept test by groups of rows, by THREADS threads of the block that finishes last: every group of A with every group of B
// that it meets in C. If a pair of groups is not accepted, mm32_fallback receives the groups and tests rows. Not testing all
// pairs of rows saved 12 of 662 us (2048 x 8192 x 4096).
template <int THREADS, int AT_ONCE>
__device__ __forceinline__ void decide(const Params& s, int thread, GroupStats* scratch) {
    unsigned& unsure = scratch[2 * ROW_GROUPS].small;
    const int samples = (int)min(s.p.k, (long long)SAMPLES);
    for (int i = thread; i <= 2 * ROW_GROUPS; i += THREADS) scratch[i] = GroupStats{0, 0, 0};
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    reduce_to_groups<THREADS, AT_ONCE>(s, 0, thread, samples, scratch);
    reduce_to_groups<THREADS, AT_ONCE>(s, 1, thread, samples, scratch + ROW_GROUPS);
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    const long long a_rows = s.matrices[0] * s.p.m, b_rows = s.matrices[1] * s.p.n;
    const int a_shift = group_shift(a_rows), b_shift = group_shift(b_rows);
    const int a_count = (int)((a_rows - 1) >> a_shift) + 1, b_count = (int)((b_rows - 1) >> b_shift) + 1;
    const bool batched = s.matrices[0] > 1 && s.matrices[1] > 1;
    const float big = big_from(s.p.k), required = required_places(s.p.k);
    const auto test = [&](int in_a, int in_b) {
        if (!accept_groups(scratch[in_a], scratch[ROW_GROUPS + in_b], s.p.k, big, required)) unsure = 1;
    };
    if (batched) {  // a group of A meets only the groups of B that hold rows of the same matrices; 32 bits count all packed rows
        const unsigned m = (unsigned)s.p.m, n = (unsigned)s.p.n;
        for (int in_a = thread; in_a < a_count; in_a += THREADS) {
            const unsigned first = ((unsigned)in_a << a_shift) / m, last = (((unsigned)in_a + 1 << a_shift) - 1) / m;
            const int end = (int)min((long long)b_count, (((last + 1LL) * n - 1) >> b_shift) + 1);
            for (int in_b = (int)((long long)first * n >> b_shift); in_b < end; in_b++) test(in_a, in_b);
        }
    } else {
        for (int i = thread; i < a_count * b_count; i += THREADS) test(i % a_count, i / a_count);
    }
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    if (unsure)
        for (int i = thread; i < 2 * ROW_GROUPS; i += THREADS) s.decision->groups[i / ROW_GROUPS][i % ROW_GROUPS] = scratch[i];
    if (thread == 0) s.decision->unsure = unsure;
}
