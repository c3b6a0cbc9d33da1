// From fp32 to the split form of split.cuh, element by element, and what is noted of a row on the way. Used by mm32_pack, which
// splits operands in memory, and by mm32_tensorcore where it splits its own tiles.
#pragma once
#include "emulated/panels.cuh"

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
    unsigned small;
};

// The larger magnitude; a NaN sticks.
__device__ __forceinline__ float larger(float a, float b) {
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(fabsf(b)));
    return c;
}

// Looks at x, which its scale made `scaled`: what that sends to zero is small too, it is x itself that must not be zero. `one` is
// added to the count of small elements; in PTX, the compiler makes two instructions of it.
__device__ __forceinline__ void look(float& largest, unsigned& small, float x, float scaled, unsigned one = 1) {
    largest = larger(largest, scaled);
    asm("{ .reg .pred p; setp.neu.f32 p, %1, 0f00000000; setp.lt.and.f32 p, %2, %3, p; @p add.u32 %0, %0, %4; }"
        : "+r"(small)
        : "f"(x), "f"(fabsf(scaled)), "f"(SMALL), "r"(one));
}

// Scales x and looks at it, with fewer registers.
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
    if (seen.small) atomicAdd(&stats.small, seen.small);
    atomicMax(&stats.largest, __float_as_uint(seen.largest) & 0x7fffffffu);
}

constexpr int JUDGE_BYTES = (2 * GROUPS + 1) * sizeof(Worst);  // of shared memory

// The worst of each group of an operand's rows; a thread reads AT_ONCE rows at once.
template <int THREADS, int AT_ONCE>
__device__ __forceinline__ void note_groups(const Split& s, int side, int thread, int samples, Worst* groups) {
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
        for (int i = 0; i < AT_ONCE; i++) {  // a warp's rows are of one group
            const RowStats& x = stats[i];
            const bool zeros = x.largest == 0 && x.small == 0;  // loses nothing
            const unsigned gaps = zeros ? 0 : samples - __popcll(x.big[0]) - __popcll(x.big[1]);
            const unsigned small = __reduce_max_sync(~0u, x.small), largest = __reduce_max_sync(~0u, x.largest);
            const unsigned most = __reduce_max_sync(~0u, gaps);
            if (thread % 32 != 0 || first + i * THREADS >= rows) continue;
            Worst& at = groups[(first + i * THREADS) >> shift];
            atomicMax(&at.small, small), atomicMax(&at.largest, largest), atomicMax(&at.gaps, most);
        }
    }
}

// Judges by groups of rows, by THREADS threads of the block that is done last: whether the worst that a group of A holds with the
// worst that a group of B holds, which need not be a pair of rows, would do. If not, the groups are left for mm32_careful.
template <int THREADS, int AT_ONCE>
__device__ __forceinline__ void judge(const Split& s, int thread, Worst* scratch) {
    unsigned& unsure = scratch[2 * GROUPS].small;
    const int samples = (int)min(s.p.k, (long long)SAMPLES);
    for (int i = thread; i <= 2 * GROUPS; i += THREADS) scratch[i] = Worst{0, 0, 0};
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    note_groups<THREADS, AT_ONCE>(s, 0, thread, samples, scratch);
    note_groups<THREADS, AT_ONCE>(s, 1, thread, samples, scratch + GROUPS);
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    const long long a_rows = s.matrices[0] * s.p.m, b_rows = s.matrices[1] * s.p.n;
    const int a_shift = group_shift(a_rows), b_shift = group_shift(b_rows);
    const int a_count = (int)((a_rows - 1) >> a_shift) + 1, b_count = (int)((b_rows - 1) >> b_shift) + 1;
    const bool apart = s.matrices[0] > 1 && s.matrices[1] > 1;
    const float big = big_from(s.p.k), few = fewest(s.p.k);
    const auto look_at = [&](int in_a, int in_b) {
        if (!good(scratch[in_a], scratch[GROUPS + in_b], s.p.k, big, few)) unsure = 1;
    };
    if (apart) {  // with the groups that have a matrix in common; 32 bits hold the rows of what is packed
        const unsigned m = (unsigned)s.p.m, n = (unsigned)s.p.n;
        for (int in_a = thread; in_a < a_count; in_a += THREADS) {
            const unsigned first = ((unsigned)in_a << a_shift) / m, last = (((unsigned)in_a + 1 << a_shift) - 1) / m;
            const int end = (int)min((long long)b_count, (((last + 1LL) * n - 1) >> b_shift) + 1);
            for (int in_b = (int)((long long)first * n >> b_shift); in_b < end; in_b++) look_at(in_a, in_b);
        }
    } else {
        for (int i = thread; i < a_count * b_count; i += THREADS) look_at(i % a_count, i / a_count);
    }
    asm volatile("bar.sync 5, %0;" ::"n"(THREADS) : "memory");
    if (unsure)
        for (int i = thread; i < 2 * GROUPS; i += THREADS) s.verdict->worst[i / GROUPS][i % GROUPS] = scratch[i];
    if (thread == 0) s.verdict->unsure = unsure;
}
