// From fp32 to the packed form of emulated/panels.cuh, element by element, the statistics of a row that are collected on the way,
// and the decision made from them. Used by mm32_pack, and by mm32_tensorcore where it packs inline.
#pragma once
#include "common/operand.cuh"
#include "common/tile_order.cuh"
#include "emulated/panels.cuh"

__device__ __forceinline__ Operand operand_of(const Params& s, int side, long long matrix) {
    return operand_of(s.p, pointers_of(s.p, packed_matrix(s, side, matrix)), side);
}

// What a thread has observed of a row: the largest magnitude, not scaled, and in one word two counts, of small elements in the low
// half and of elements that are not small in the high half. bf16x6 counts only elements that are too small for it.
struct Observed {
    float largest;
    unsigned counts;
};

// The larger magnitude; NaN if either is NaN.
__device__ __forceinline__ float larger(float a, float b) {
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(fabsf(b)));
    return c;
}

// What is small in a row before it is multiplied by `scale`, a power of two between 2^-126 and 2^MOST_EXPONENT.
__device__ __forceinline__ float small_unscaled(float scale, bool scaled_lo) {
    return small_below(scaled_lo) * __uint_as_float(0x7f000000u - __float_as_uint(scale));
}

// Observes COUNT elements of one row, every STEP-th of x, before they are scaled: two instructions an element as long as none is
// small. Zeros are not small.
template <int COUNT, int STEP = 1>
__device__ __forceinline__ void observe(float& largest, unsigned& counts, const float* x, float small) {
    float least = fabsf(x[0]);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        largest = larger(largest, x[i * STEP]);
        least = fminf(least, fabsf(x[i * STEP]));
    }
    constexpr unsigned REGULAR = PLANES == 3 ? 0 : 0x10000;
    counts += COUNT * REGULAR;
    if (!(least < small)) return;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (fabsf(x[i * STEP]) < small) counts += (x[i * STEP] != 0.f) - REGULAR;
}

// The same for one element, without a branch: where registers are short, the branch's two sides together spill.
__device__ __forceinline__ void observe_one(float& largest, unsigned& counts, float x, float small) {
    largest = larger(largest, x);
    if constexpr (PLANES == 3) {
        counts += x != 0.f && fabsf(x) < small;
    } else {
        // In PTX, because the compiler makes two instructions of a predicated addition.
        asm("{ .reg .pred p, q; setp.ge.f32 p, %2, %3; setp.neu.and.f32 q, %1, 0f00000000, !p;\n"
            "@p add.u32 %0, %0, 65536; @q add.u32 %0, %0, 1; }"
            : "+r"(counts)
            : "f"(x), "f"(fabsf(x)), "f"(small));
    }
}

// Splits two scaled elements into their planes, each a pair of 16-bit numbers. `lo_factor` is 2^LO_SHIFT for a scaled lo,
// otherwise 1.
__device__ __forceinline__ void split(float x, float y, unsigned (&plane)[PLANES], float lo_factor) {
    if constexpr (PLANES == 3) {
#pragma unroll
        for (int i = 0; i < 3; i++) {
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(plane[i]) : "f"(y), "f"(x));
            x -= __uint_as_float(plane[i] << 16), y -= __uint_as_float(plane[i] & 0xffff0000u);
        }
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(plane[0]) : "f"(y), "f"(x));
        if constexpr (PLANES == 2) {
            float xh, yh;
            asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(xh), "=f"(yh) : "r"(plane[0]));
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(plane[1]) : "f"((y - yh) * lo_factor), "f"((x - xh) * lo_factor));
        }
    }
}

__device__ __forceinline__ float lo_factor(bool scaled_lo) { return scaled_lo ? (float)(1 << LO_SHIFT) : 1.f; }

// Adds what was observed of a part of a row to the row's stats; `largest` is scaled. Magnitudes order as their bits do, with NaN
// above all.
__device__ __forceinline__ void record(RowStats& stats, float largest, unsigned small, unsigned regular) {
    if (PLANES == 3 && small) largest = __uint_as_float(0x7f800000u);  // not for bf16x6
    if (PLANES != 3 && (small | regular)) atomicAdd(&stats.counts, (unsigned long long)regular << 32 | small);
    atomicMax(&stats.largest, __float_as_uint(largest) & 0x7fffffffu);
}

constexpr int TRIED_TILES = 8, MOST_PAIRS = 64, TRIED_M = 128, TRIED_N = 64;  // TRIED_M x TRIED_N is what mm32_fallback recomputes at once
constexpr int PARTNERS = 8;

// What `decide` keeps in shared memory.
struct Deciding {
    GroupStats groups[2][ROW_GROUPS];
    union {
        TestedRow rows[TRIED_M];
        TestedRow partners[2][PARTNERS];
    };
    unsigned char alone_rows[TRIED_M];
    unsigned rejected;
    unsigned not_finite[2], alone[2];  // rows of A and of B with a NaN or an Inf (for bf16x6: out of its range); that are alone
};

// Whether any of the THREADS threads that decide says yes.
template <int THREADS>
__device__ __forceinline__ bool any_of(bool yes) {
    unsigned any;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; bar.red.or.pred p, 5, %2, p; selp.u32 %0, 1, 0, p; }"
                 : "=r"(any)
                 : "r"((unsigned)yes), "n"(THREADS)
                 : "memory");
    return any;
}

// Whether a row is for the FMA units alone.
__device__ __forceinline__ bool is_not_finite(const RowStats& row) {
    return PLANES == 3 ? !(__uint_as_float(row.largest) <= LIMIT) : row.largest >= 0x7f800000u;
}

// Reduces the stats of an operand's rows to those of its groups. A warp loads the 128 rows of a group (or of a part of it) together.
template <int THREADS>
__device__ __forceinline__ void reduce_to_groups(const Params& s, int side, int thread, const AcceptTest& test, Deciding& d) {
    const long long rows = s.matrices[side] * (side ? s.p.n : s.p.m);
    const int shift = group_shift(rows), samples = (int)min(s.p.k, (long long)SAMPLES);
    const RowStats* const all = s.stats[side] + thread % 32;
#pragma unroll 1
    for (long long first = thread / 32 * 128; first < rows; first += THREADS / 32 * 128) {
        GroupStats worst = NOTHING_SEEN;
        unsigned not_finite = 0, alone = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            RowStats x{};
            if (first + 32 * i + thread % 32 < rows) x = all[first + 32 * i];
            const unsigned small = (unsigned)x.counts, regular = (unsigned)(x.counts >> 32);
            const bool zeros = x.largest == 0 && x.counts == 0;  // such a row loses nothing
            worst.small = max(worst.small, small), worst.largest = max(worst.largest, x.largest);
            worst.gaps = max(worst.gaps, zeros ? 0 : samples - __popcll(x.big[0][0]) - __popcll(x.big[0][1]));
            worst.regular = min(worst.regular, zeros ? ~0u : regular);
            worst.level = min(worst.level, zeros ? 127 : Scale{x.scale}.level(test.scaled_lo));
            not_finite += is_not_finite(x), alone += !(__uint_as_float(x.largest) <= LIMIT) || (!zeros && regular < (unsigned)test.required);
        }
        const unsigned small = __reduce_max_sync(~0u, worst.small), largest = __reduce_max_sync(~0u, worst.largest);
        const unsigned gaps = __reduce_max_sync(~0u, worst.gaps), regular = __reduce_min_sync(~0u, worst.regular);
        const int level = __reduce_min_sync(~0u, worst.level);
        not_finite = __reduce_add_sync(~0u, not_finite), alone = __reduce_add_sync(~0u, alone);
        if (thread % 32 != 0) continue;
        GroupStats& at = d.groups[side][first >> shift];
        atomicMax(&at.small, small), atomicMax(&at.largest, largest), atomicMax(&at.gaps, gaps);
        atomicMin(&at.regular, regular), atomicMin(&at.level, level);
        if (not_finite) atomicAdd(&d.not_finite[side], not_finite);
        if (alone) atomicAdd(&d.alone[side], alone), at.alone = 1;
    }
}

// Marks the rows of an operand that are not accepted with at least half of PARTNERS rows of the other.
template <int THREADS>
__device__ __forceinline__ void mark_steep_rows(const Params& s, int side, int thread, const AcceptTest& test, Deciding& d) {
    const long long rows = s.matrices[side] * (side ? s.p.n : s.p.m);
    RowStats* const all = s.stats[side];
#pragma unroll 1
    for (long long i = thread; i < rows; i += THREADS) {
        const TestedRow x = test.see(all[i]);
        if (x.small == 0.f || test.alone(x, 0)) continue;
        int rejected = 0;
#pragma unroll 1
        for (int j = 0; j < PARTNERS; j++) {
            const TestedRow& y = d.partners[1 - side][j];
            rejected += !test.alone(y, 0) && !test.accept(x, y);
        }
        if (rejected < PARTNERS / 2) continue;
        all[i].scale |= STEEP << 24;
        atomicAdd(&d.alone[side], 1u);
        d.groups[side][i >> group_shift(rows)].alone = 1;
    }
}

// Tests all pairs of some tiles of C; returns whether a tile has more than MOST_PAIRS that are not accepted. Rows that mm32_fallback
// recomputes alone do not count.
template <int THREADS>
__device__ __forceinline__ bool any_rejected_tile(const Params& s, int thread, const AcceptTest& test, Deciding& d) {
    const long long tiles = tiles_of<TRIED_M, TRIED_N>(s.p);
#pragma unroll 1
    for (unsigned i = 0; i < TRIED_TILES; i++) {
        const auto tile = tile_at<TRIED_M, TRIED_N, false>(s.p, (i * 2654435761u + 977u) % tiles);
        const RowStats* const a = s.stats[0] + packed_matrix(s, 0, tile.matrix) * s.p.m + tile.m0;
        const long long n = tile.n0 + thread % TRIED_N;
        const int rows = (int)min((long long)TRIED_M, s.p.m - tile.m0);
        for (int r = thread; r < rows; r += THREADS) {
            const RowStats x = a[r];
            d.rows[r] = test.see(x);
            d.alone_rows[r] = test.alone(d.rows[r], Scale{x.scale}.flags());
        }
        TestedRow b{};
        bool skip = n >= s.p.n;
        if (!skip) {
            const RowStats x = s.stats[1][packed_matrix(s, 1, tile.matrix) * s.p.n + n];
            b = test.see(x), skip = test.alone(b, Scale{x.scale}.flags());
        }
        any_of<THREADS>(false);
        unsigned rejected = 0;
        if (!skip)
            for (int r = thread / TRIED_N; r < rows; r += THREADS / TRIED_N) rejected += !d.alone_rows[r] && !test.accept(d.rows[r], b);
        if (rejected) atomicAdd(&d.rejected, rejected);
        any_of<THREADS>(false);
        if (d.rejected > MOST_PAIRS) return true;
        any_of<THREADS>(false);
        if (thread == 0) d.rejected = 0;
    }
    return false;
}

// The accept test, by THREADS threads of the block that finishes last. First by groups of rows, every group of A with every group
// of B that it meets in C: not testing all pairs of rows saved 12 of 662 us (2048 x 8192 x 4096). If a pair of groups is not
// accepted, rows and some tiles are tested. mm32_fallback recomputes what fails, or, if that is more than a few tiles and rows, the
// next tier computes everything.
template <int THREADS>
__device__ __forceinline__ void decide(const Params& s, int thread, bool scaled_lo, bool a_prepacked, bool b_prepacked, Deciding& d) {
    for (int i = thread; i < 2 * ROW_GROUPS; i += THREADS) d.groups[i / ROW_GROUPS][i % ROW_GROUPS] = NOTHING_SEEN;
    if (thread == 0) d.rejected = d.not_finite[0] = d.not_finite[1] = d.alone[0] = d.alone[1] = 0;
    any_of<THREADS>(false);
    const AcceptTest test(s, scaled_lo);
    reduce_to_groups<THREADS>(s, 0, thread, test, d);
    reduce_to_groups<THREADS>(s, 1, thread, test, d);
    any_of<THREADS>(false);
    const long long a_rows = s.matrices[0] * s.p.m, b_rows = s.matrices[1] * s.p.n;
    const int a_shift = group_shift(a_rows), b_shift = group_shift(b_rows);
    const int a_count = (int)((a_rows - 1) >> a_shift) + 1, b_count = (int)((b_rows - 1) >> b_shift) + 1;
    const bool batched = s.matrices[0] > 1 && s.matrices[1] > 1;
    bool mine = PLANES == 3 && MM32_GUARDED && s.decision->tiny;
    const auto try_groups = [&](int in_a, int in_b) { mine |= !test.accept(d.groups[0][in_a], d.groups[1][in_b]); };
    if (batched) {  // a group of A meets only the groups of B that hold rows of the same matrices; 32 bits count all packed rows
        const unsigned m = (unsigned)s.p.m, n = (unsigned)s.p.n;
        for (int in_a = thread; in_a < a_count; in_a += THREADS) {
            const unsigned first = ((unsigned)in_a << a_shift) / m, last = (((unsigned)in_a + 1 << a_shift) - 1) / m;
            const int end = (int)min((long long)b_count, (((last + 1LL) * n - 1) >> b_shift) + 1);
            for (int in_b = (int)((long long)first * n >> b_shift); in_b < end; in_b++) try_groups(in_a, in_b);
        }
    } else {
        for (int i = thread; i < a_count * b_count; i += THREADS) try_groups(i % a_count, i / a_count);
    }
    const bool unsure = any_of<THREADS>(mine);
    unsigned tier = PLANES == 3 && MM32_GUARDED ? BF16X6 : FIRST_TIER;
    // With more such rows, most of mm32_fallback's tiles would have too many of them.
    const auto many = [&](const unsigned (&count)[2], int in, int at_least) {
        return count[0] > max((long long)at_least, a_rows / in) || count[1] > max((long long)at_least, b_rows / in);
    };
    if (unsure) {
        if (many(d.not_finite, 16, 0)) {
            tier = FMA;
        } else if (PLANES == 2 && a_rows > 0 && b_rows > 0) {
            if (thread < 2 * PARTNERS) {
                const int side = thread / PARTNERS;
                const long long rows = side ? b_rows : a_rows;
                d.partners[side][thread % PARTNERS] = test.see(s.stats[side][(thread % PARTNERS * 2654435761u + 977u) % rows]);
            }
            any_of<THREADS>(false);
            // The stats of a prepacked operand stay as they are.
            if (!a_prepacked) mark_steep_rows<THREADS>(s, 0, thread, test, d);
            if (!b_prepacked) mark_steep_rows<THREADS>(s, 1, thread, test, d);
            __threadfence();
            any_of<THREADS>(false);
            if (MM32_LOWER_TIER && (many(d.alone, 256, 8) || any_rejected_tile<THREADS>(s, thread, test, d))) tier = BF16X6;
        }
    }
    if (unsure)
        for (int i = thread; i < 2 * ROW_GROUPS; i += THREADS)
            s.decision->groups[i / ROW_GROUPS][i % ROW_GROUPS] = d.groups[i / ROW_GROUPS][i % ROW_GROUPS];
    if (thread == 0) {
        s.decision->unsure = unsure || tier == FMA;
        s.decision->scaled_lo = scaled_lo;
        s.decision->alone = d.alone[0] + d.alone[1];
        s.decision->tier = tier;
        asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(&s.decision->decided) : "memory");
    }
}
