// The packed form of an operand, which emulated/pack.cu writes and tensorcore.cu and mma.cu multiply, and the accept test, which
// decides whether the emulation is good enough for the data. docs/accept-test.md has the argument.
//
// A row (of A; a column of B) is multiplied by a power of two, and each element x is split:
// - fp16x3: hi = fp16(x), lo = fp16(x - hi). Three products, hi*hi + hi*lo + lo*hi, are then as good as those of fp32, as long as
//   the elements that decide the result are not too far below the largest of their row.
// - fp16x3 with a scaled lo, for rows that span more: lo = fp16(2^11 * (x - hi)), which keeps bits that are 2^11 times
//   smaller.
// - bf16x6: hi = bf16(x), mid = bf16(x - hi), lo = bf16(x - hi - mid). They hold all 24 bits at any magnitude, for six products.
// - fp16: hi alone.
//
// Panels: for each matrix and each K-block of 64 there is a plane of hi and, with more products, one of lo, or of mid and lo. A
// plane has a line of 64 16-bit numbers (128 bytes) for each row; the number of rows is rounded up to a multiple of 8. The eight
// 16-byte pieces of a line lie in the order that wgmma's 128-byte swizzle and ldmatrix want: piece j of row r at place j ^ (r %
// 8). Rows and places of K past the operand's edges are zeros.
//   MM32_PRODUCTS    6: bf16x6; 3: fp16x3; 1: fp16 (TF32-class accuracy)
//
// RowStats hold a row's exponent e (the row was multiplied by 2^e) and what the accept test needs of it. The exponent comes from
// a sample of the row, or from all of it where the sample says that the row spans much or is sparse (`exact`). If a sample misses
// large elements, they pass fp16's range, and the accept test notices.
#pragma once
#include "common/operand.cuh"
#include "common/workspace.cuh"
#include "emulated/stats.cuh"

constexpr int BLOCK_K = 64;
constexpr int PLANE_ROW = 128;  // bytes
constexpr int PLANES = MM32_PRODUCTS == 6 ? 3 : MM32_PRODUCTS == 3 ? 2 : 1;

// The largest sampled element of a row is scaled to between 2^TARGET and 2^(TARGET + 1), so that elements 2^5 times larger can
// still be held. In a call with a scaled lo, which keeps small elements better, there is more room above (ROOM). The largest
// element of an exact row, one that was read whole, goes to 2^TARGET_EXACT.
constexpr int SAMPLES = 128, RUN = SAMPLES / 8;  // of a row: 8 runs of RUN neighbours
constexpr int TARGET = 10, TARGET_EXACT = 14;
constexpr int LO_SHIFT = 11;  // of a scaled lo
constexpr float LARGEST_FP16 = 65504.f;
// bf16x6: the largest and the smallest scaled elements that it takes. Sums of larger ones might overflow (in a call with a
// scaled lo, what was observed is 2^ROOM less), and fp32 would not hold all bits of the product of two smaller ones.
constexpr float LARGEST_BF16X6 = 0x1p45f, SMALLEST_BF16X6 = 0x1p-50f;
constexpr float LIMIT = PLANES == 3 ? LARGEST_BF16X6 : LARGEST_FP16;

// Matrix `matrix` among the packed ones of operand `side`, in fp32 as it was given.
__device__ __forceinline__ Operand operand_of(const Params& s, int side, long long matrix) {
    return operand_of(s.p, pointers_of(s.p, packed_matrix(s, side, matrix)), side);
}

// mm32_scale has at most this many blocks for an operand. In memory, the operand's stats are followed by
// - a word of flags of each block. WIDE_ROWS: it met rows that span too much for fp16x3 without a scaled lo. SOME_FINITE: it
//   met a row whose samples are all finite. SMALL: it met a row that was read whole and has small sampled elements that may
//   matter. From bit MISSING on: the most sampled places that are not big (big[1]) in a row that is not UNSEEN. The flags of
//   a prepacked operand were left when it was packed; the other operand's WIDE_ROWS are then the same, because both must be
//   packed alike.
// - for each block and each sampled place of K, the sum of the squares of the elements there in the block's watched rows
//   (fp16x3 alone). The size of C is estimated from these sums (cancel.cuh).
// - for each row, where along K its largest element lies (fp16x3 alone); NOWHERE for rows that were not read whole.
constexpr int SCALE_BLOCKS = 128;
constexpr unsigned WIDE_ROWS = 1, SOME_FINITE = 2, SMALL = 4, MISSING = 8;
__device__ __forceinline__ unsigned* scale_flags(const Params& s, int side) {
    return reinterpret_cast<unsigned*>(s.stats[side] + s.matrices[side] * (side ? s.p.n : s.p.m));
}
__device__ __forceinline__ float* sampled_power(const Params& s, int side, int block) {
    return reinterpret_cast<float*>(scale_flags(s, side) + SCALE_BLOCKS) + block * SAMPLES;
}
__device__ __forceinline__ int scale_blocks(const Params& s, int side) {
    return (int)min(s.matrices[side] * ceil_div(side ? s.p.n : s.p.m, 32), (long long)SCALE_BLOCKS);
}
constexpr unsigned NOWHERE = ~0u;
__device__ __forceinline__ unsigned* places_of_largest(const Params& s, int side) {
    return reinterpret_cast<unsigned*>(sampled_power(s, side, scale_blocks(s, side)));
}
// To find cancellation (cancel.cuh), a quarter of C is watched: every other 8 rows of it and every other 8 columns. Watching
// all of it would take mm32_tensorcore 8 % longer where K is 256.
constexpr bool WATCHED = PLANES == 2;
__device__ __forceinline__ constexpr bool is_watched(unsigned row) { return row % 16 < 8; }

// What mm32_scale's flags say of a call, for whole warps. In two steps: the constructor issues the loads, and the functions
// below wait for them.
struct Flags {
    unsigned of[2];

    __device__ __forceinline__ Flags(const Params& s) : of{of_side(s, 0, 32), of_side(s, 1, 32)} {}
    // Whether a row of A and a column of B may have no sampled place that is big in both. If together they miss fewer than
    // SAMPLES places, they have one.
    __device__ __forceinline__ bool may_be_apart() const {
        return __reduce_max_sync(~0u, of[0] >> MISSING) + __reduce_max_sync(~0u, of[1] >> MISSING) >= SAMPLES;
    }
    __device__ __forceinline__ bool scaled_lo() const { return PLANES == 2 && __any_sync(~0u, (of[0] | of[1]) & WIDE_ROWS); }
    // Whether rows that were read whole have small sampled elements that may matter.
    __device__ __forceinline__ bool some_small() const { return __any_sync(~0u, (of[0] | of[1]) & SMALL); }
    // Whether each row of one operand has a NaN or an Inf among its samples: then nothing is packed, and the tier is FMA.
    __device__ __forceinline__ bool nothing_finite() const {
        return !(__any_sync(~0u, of[0] & SOME_FINITE) && __any_sync(~0u, of[1] & SOME_FINITE));
    }

    // The joined flags of those blocks that this thread looks at, one of `threads` threads that share an operand's blocks.
    static __device__ __forceinline__ unsigned of_side(const Params& s, int side, int threads) {
        const int blocks = scale_blocks(s, side);
        unsigned any = blocks ? 0 : SOME_FINITE, missing = 0;
        for (int i = threadIdx.x % threads; i < blocks; i += threads) {
            const unsigned flags = scale_flags(s, side)[i];
            any |= flags & ((1u << MISSING) - 1), missing = max(missing, flags >> MISSING);
        }
        return any | missing << MISSING;
    }
};
// Decides for FMA without packing. Called by one thread of the whole launch.
__device__ __forceinline__ void decide_for_fma(Decision& decision) {
    decision.tier = FMA, decision.unsure = 1, decision.scaled_lo = 0;
}

// Whether the multiply may start on some rows before mm32_pack has finished: it then waits for `ready` counters of units.
__device__ __forceinline__ bool counts_units(const Params& s) { return s.first_rows[0] + s.first_rows[1] > 0; }

constexpr int CHUNK = 8;         // K-blocks of a unit of mm32_pack
constexpr int READY_ROWS = 128;  // rows whose units have one counter for each chunk
constexpr int PREPACKED = 6;     // the load (emulated/pack.cu) of an operand that an earlier call has packed
// Rows of a unit, by mm32_pack's load.
template <int LOAD>
constexpr int UNIT_ROWS = LOAD >= 2 ? 16 : 64;

// How many tiles of READY_ROWS rows all matrices of an operand have, and the number of the tile that holds a row. Each tile
// has a counter of packed units for each chunk; with inline packing, one counter of how often its rows have been observed.
__device__ __forceinline__ long long row_tiles(const Params& s, int side) {
    return s.matrices[side] * ceil_div(side ? s.p.n : s.p.m, READY_ROWS);
}
template <typename Index>
__device__ __forceinline__ Index row_tile(const Params& s, int side, Index packed_matrix, Index row) {
    return packed_matrix * (Index)ceil_div(side ? s.p.n : s.p.m, READY_ROWS) + row / READY_ROWS;
}
__device__ __forceinline__ unsigned* ready_counters(const Params& s, int side, long long row_tile, int chunks) {
    return s.ready[side] + row_tile * chunks;
}

// How many tiles a group holds (stats.cuh), as a power of two.
__device__ __forceinline__ int group_shift(long long row_tiles) {
    int shift = 0;
    while ((row_tiles - 1) >> shift >= ROW_GROUPS) shift++;
    return shift;
}

// How many units mm32_pack counts for the READY_ROWS rows that hold `row`, of an operand of `rows` rows.
template <int UNIT>
__device__ __forceinline__ unsigned units_of(int row, long long rows) {
    const int here = (int)min(rows - row / READY_ROWS * READY_ROWS, (long long)READY_ROWS);
    return (here + UNIT - 1) / UNIT;
}

__device__ __forceinline__ long long padded_rows(long long rows) { return (rows + 7) / 8 * 8; }

// The accept test, for a row of A and a column of B.
// 1. Nothing is out of the format's range.
// 2. A small element loses up to 2^-25 of absolute precision, 2^-36 with a scaled lo. The row and the column then lose up to
//    2^-25 (2^-36) * (the row's number of small elements * the column's largest element + the same the other way round). That
//    may be up to 4 u |A||B|, u = 2^-24 (2^-11 with one product). |A||B| is bounded from below: each sampled place at which
//    both are big adds at least the product of their levels. Another bound, for a row that was read whole, is its largest
//    element times the element that it meets (largest_term), which is looked up only for pairs that the samples do not accept.
//    be of elements that are not small: counted at the sampled places, or from the numbers of such elements in row and column.
// Zeros are neither small nor big: they lose nothing and add nothing. bf16x6 needs only the first condition.
constexpr float ALLOWED = PLANES == 2 ? 8.f : 65536.f;
__device__ __forceinline__ float loss_of_small(bool scaled_lo) { return scaled_lo ? 0x1p-11f : 1.f; }  // in units of 2^-25
__device__ __forceinline__ int required_products(long long k) { return PLANES == 2 ? (int)min(8LL, k / 4) : 0; }

__device__ __forceinline__ float power_of_two(int e) { return __uint_as_float((unsigned)(e + 127) << 23); }

// A row as the test sees it.
struct __align__(16) TestedRow {
    unsigned long long big[2][2];
    float largest, small;
    int level;
    unsigned regular;     // ~0: a row of zeros
    unsigned largest_at;  // its place along K, or NOWHERE
    float scale;
};

// The stats of a group of this one row.
__device__ __forceinline__ GroupStats as_group(const TestedRow& x, long long k) {
    const bool zeros = x.regular == ~0u;
    const int samples = (int)min(k, (long long)SAMPLES);
    const auto gaps = [&](int i) { return zeros ? 0u : unsigned(samples - __popcll(x.big[i][0]) - __popcll(x.big[i][1])); };
    return {(unsigned)x.small, __float_as_uint(x.largest), {gaps(0), gaps(1)}, x.regular, zeros ? 127 : x.level, 0};
}

constexpr float LOWER = 1.f / (1 << LEVELS);  // the second level over the first

struct AcceptTest {
    long long k;
    float loss, limit;
    int required;
    bool scaled_lo;
    unsigned flags_alone = STEEP;  // the flags that make a row alone

    __device__ __forceinline__ AcceptTest(const Params& s, bool scaled_lo)
        : k(s.p.k), loss(loss_of_small(scaled_lo)), limit(LIMIT), required(required_products(s.p.k)), scaled_lo(scaled_lo) {}

    __device__ __forceinline__ TestedRow see(const RowStats& x, unsigned largest_at = NOWHERE) const {
        const bool zeros = x.largest == 0 && x.counts == 0;
        const Scale scale{x.scale};
        return {{{x.big[0][0], x.big[0][1]}, {x.big[1][0], x.big[1][1]}},
                __uint_as_float(x.largest),
                (float)(unsigned)x.counts,
                scale.level(scaled_lo),
                zeros ? ~0u : (unsigned)(x.counts >> 32),
                largest_at,
                power_of_two(scale.exponent(scaled_lo))};
    }
    // Whether a row is recomputed by itself: it has elements out of range, or fewer elements that are not small than the
    // split needs, or is steep or one of few outliers. A row of zeros is not.
    __device__ __forceinline__ bool alone(const TestedRow& x, unsigned flags) const {
        return !(x.largest <= limit) || x.regular < (unsigned)required || (required && flags & flags_alone);
    }
    // For all pairs of a group of A and a group of B: as if one pair had the worst of both groups.
    __device__ __forceinline__ bool accept(const GroupStats& x, const GroupStats& y) const {
        const float a = __uint_as_float(x.largest), b = __uint_as_float(y.largest);
        if (!(a <= limit && b <= limit)) return false;
        if (PLANES == 3) return true;
        const int samples = (int)min(k, (long long)SAMPLES);
        const auto places = [&](int i, int j) { return max(samples - (int)x.gaps[i] - (int)y.gaps[j], 0); };  // at least
        const float lost = (x.small * b + y.small * a) * loss, unit = power_of_two(min(x.level + y.level, 127));
        const float size =
            unit * fmaxf(fmaxf((float)places(0, 0), LOWER * max(places(0, 1), places(1, 0))), LOWER * LOWER * places(1, 1));
        return lost <= ALLOWED * size && (places(1, 1) >= required || (long long)x.regular + y.regular - k >= required);
    }
    __device__ __forceinline__ bool enough(const TestedRow& x, const TestedRow& y) const {
        const unsigned needed = (unsigned)(k + required);
        return required == 0 || x.regular >= needed - min(y.regular, needed);
    }
    // A quick test that most accepted pairs pass: nothing is lost, or no more than a single place at which both are big
    // allows.
    __device__ __forceinline__ bool accept_at_once(const TestedRow& x, const TestedRow& y) const {
        const float lost = x.small * y.largest + y.small * x.largest;
        const bool common = (x.big[0][0] & y.big[0][0]) | (x.big[0][1] & y.big[0][1]);
        return enough(x, y) && (lost == 0.f || (common && lost * loss <= ALLOWED * power_of_two(x.level + y.level)));
    }
    // For rows that are not alone.
    __device__ __forceinline__ bool accept(const TestedRow& x, const TestedRow& y) const {
        if (accept_at_once(x, y)) return true;
        const float lost = x.small * y.largest + y.small * x.largest;
        const bool enough = this->enough(x, y);
        const float unit = power_of_two(x.level + y.level);
        if (lost * loss <= ALLOWED * unit * common(x.big[0], y.big[0]) && enough) return true;
        const int places = common(x.big[1], y.big[1]);
        const float size =
            unit * fmaxf(LOWER * max(common(x.big[0], y.big[1]), common(x.big[1], y.big[0])), LOWER * LOWER * places);
        return lost * loss <= ALLOWED * fmaxf(size, unit * common(x.big[0], y.big[0])) && (enough || places >= required);
    }
    // The same for a pair that the samples do not accept, by one term of |A||B|.
    __device__ __forceinline__ bool accept(const TestedRow& x, const TestedRow& y, float term) const {
        const float lost = x.small * y.largest + y.small * x.largest;
        return lost * loss <= ALLOWED * term && (enough(x, y) || common(x.big[1], y.big[1]) >= required);
    }
    // How many sampled places are big in both.
    static __device__ __forceinline__ int common(const unsigned long long (&x)[2], const unsigned long long (&y)[2]) {
        return __popcll(x[0] & y[0]) + __popcll(x[1] & y[1]);
    }
};

// The larger of two terms of |A||B|, scaled: that of the largest element of row `m` of A and that of the largest of column
// `n` of B, as far as these were read whole. The largest element is known as it was packed, to 8 bits at least; the one that
// it meets is read.
__device__ __forceinline__ float largest_term(const Operand& a, long long m, const TestedRow& x, const Operand& b, long long n,
                                              const TestedRow& y) {
    constexpr float ROUNDED = 1.f - 0x1p-8f;
    const auto met = [](const Operand& of, long long row, unsigned at) {
        return fabsf(__ldg(of.data + row * of.row_stride + (at == NOWHERE ? 0LL : (long long)at) * of.k_stride));
    };
    const float of_b = met(b, n, x.largest_at), of_a = met(a, m, y.largest_at);  // both loads are issued together
    const float by_x = x.largest_at == NOWHERE ? 0.f : x.largest * ROUNDED * (of_b * y.scale);
    const float by_y = y.largest_at == NOWHERE ? 0.f : y.largest * ROUNDED * (of_a * x.scale);
    return fmaxf(by_x, by_y);
}
