// The packed form of an operand, which emulated/pack.cu writes and tensorcore.cu and mma.cu multiply, and the accept test, which
// decides whether the emulation is good enough for the data. docs/numerics.md has the argument.
//
// A row (of A; a column of B) is multiplied by a power of two, and each element x is split:
// - fp16x3: hi = fp16(x), lo = fp16(x - hi). Three products, hi*hi + hi*lo + lo*hi, are then as good as those of fp32, as long as
//   the elements that decide the result are not too far below the largest of their row.
// - fp16x3 with a scaled lo, for rows that span more: lo = fp16(2^11 * (x - hi)), which keeps its bits 2^11 further down.
// - bf16x6: hi = bf16(x), mid = bf16(x - hi), lo = bf16(x - hi - mid). They hold all 24 bits at any magnitude, for six products.
// - fp16: hi alone.
//
// Panels: for each matrix and each K-block of 64 there is a plane of hi and, with more products, one of lo, or of mid and lo. A
// plane has a line of 64 16-bit numbers (128 bytes) for each row; the number of rows is rounded up to a multiple of 8. The eight
// 16-byte pieces of a line lie in the order that wgmma's 128-byte swizzle and ldmatrix want: piece j of row r at place j ^ (r % 8).
// Rows and places of K past the operand's edges are zeros.
//   MM32_PRODUCTS    6: bf16x6; 3: fp16x3; 1: fp16 (TF32-class accuracy)
//
// RowStats hold a row's exponent e (the row was multiplied by 2^e) and what the accept test needs of it. The exponent comes from
// a sample of the row, or from all of it where the sample says that the row spans much or is sparse (`exact`). If a sample misses
// large elements, they pass fp16's range, and the accept test notices.
#pragma once
#include "common/workspace.cuh"

constexpr int BLOCK_K = 64;
constexpr int PLANE_ROW = 128;  // bytes
constexpr int PLANES = MM32_PRODUCTS == 6 ? 3 : MM32_PRODUCTS == 3 ? 2 : 1;

// The largest sampled element of a row is scaled to between 2^TARGET and 2^(TARGET + 1), so that elements 2^5 times larger can
// still be held. In a call with a scaled lo, which keeps small elements better, there is more room above. The largest element of
// an exact row, one that was read whole, goes to 2^TARGET_EXACT.
constexpr int SAMPLES = 128;
constexpr int TARGET = 10, TARGET_EXACT = 14, ROOM = 5;
constexpr int MOST_EXPONENT = 112;  // so that what is small is a normal number before it is scaled, too
constexpr int LO_SHIFT = 11;  // of a scaled lo
constexpr float LARGEST_FP16 = 65504.f;
// bf16x6: the scaled elements that it takes. Larger sums might overflow, and below 2^-90 lo would lose bits.
constexpr float LARGEST_BF16X6 = 0x1p50f, SMALLEST_BF16X6 = 0x1p-90f;
constexpr float LIMIT = PLANES == 3 ? LARGEST_BF16X6 : LARGEST_FP16;

// A scaled element is small below this. The last place of lo (of hi, with one product) is then more than 2^-22 (2^-11) of it.
// Of bf16x6: what is too small for it.
__device__ __forceinline__ float small_below(bool scaled_lo) {
    return PLANES == 3 ? SMALLEST_BF16X6 : PLANES == 2 && !scaled_lo ? 0.125f : 0x1p-14f;
}

struct RowStats {
    unsigned long long big[2][2];  // bit i of big[0]: sampled element i, scaled, is at least 2^level; of big[1]: 2^(level - LEVELS)
    unsigned scale;                // exponent, level and flags, in one word (Scale)
    unsigned largest;              // the bits of the largest scaled magnitude
    unsigned long long counts;     // low word: elements that are not zero and small; high word: elements that are not small
};
constexpr unsigned EXACT = 1, STEEP = 2;
// Level is 2^-5 of the largest sampled element, and LEVELS below it is 2^-9. Two levels of A with two of B find what decides |A||B|
// also where one row is flat and the other steep.
constexpr int LEVEL = 5, LEVELS = 4;

// What RowStats::scale holds. EXACT: the exponent comes from the whole row. STEEP: the row is accepted with few rows of the other
// operand only, and is recomputed by itself. In a call with a scaled lo, rows that are not exact have an exponent lower by ROOM.
struct Scale {
    unsigned word;

    static __device__ __forceinline__ unsigned pack(int exponent, int level, unsigned flags) {
        return (exponent & 0xffff) | (level & 0xff) << 16 | flags << 24;
    }
    __device__ __forceinline__ unsigned flags() const { return word >> 24; }
    __device__ __forceinline__ int lower(bool scaled_lo) const { return scaled_lo && !(word >> 24 & EXACT) ? ROOM : 0; }
    __device__ __forceinline__ int exponent(bool scaled_lo) const { return (short)word - lower(scaled_lo); }
    __device__ __forceinline__ int level(bool scaled_lo) const { return (signed char)(word >> 16) - lower(scaled_lo); }
};

// The worst of a group of rows: the most small elements, the largest element (its bits), the most sampled places that are not
// big, the fewest elements that are not small, the lowest level of what is big; and whether a row is recomputed by itself.
struct GroupStats {
    unsigned small, largest, gaps, regular;
    int level;
    unsigned alone;
};
constexpr GroupStats NOTHING_SEEN{0, 0, 0, ~0u, 127, 0};
constexpr int ROW_GROUPS = 256;  // of an operand, at most

// What the accept test decided about a call.
struct Decision {
    unsigned tier;             // a Tier. Decided when mm32_pack has finished, while the multiply may already run
    unsigned decided;          // 1: tier will not change before the lower tier's launches
    unsigned unsure;           // 1: mm32_fallback must test the tiles that `groups` do not accept
    unsigned recomputed;       // bit 0: mm32_fallback has recomputed a tile; bit 1: rows or columns alone
    unsigned scaled_lo;        // 1: lo is scaled
    unsigned alone;            // how many rows and columns may have to be recomputed alone
    unsigned finished_blocks;  // blocks of mm32_pack (with inline packing, of mm32_tensorcore) that have finished
    unsigned finished_lower;   // the same for the lower tier's mm32_pack
    unsigned packed;           // 1: mm32_pack has finished, and `ready` need not be read any more
    unsigned tiny;             // 1: bf16x6 met an element that is too small for it: then it keeps 2^-134 of absolute precision
    GroupStats groups[2][ROW_GROUPS];  // of A and B; written only if unsure
};

// mm32_scale has at most this many blocks for an operand. Each leaves a flag behind the operand's stats: 1 if it met rows that
// span too much for fp16x3 without a scaled lo. The flags of a prepacked operand were left when it was packed; the other
// operand's then say the same, because both must have been packed alike.
constexpr int SCALE_BLOCKS = 256;
__device__ __forceinline__ unsigned* wide_flags(const Params& s, int side) {
    return reinterpret_cast<unsigned*>(s.stats[side] + s.matrices[side] * (side ? s.p.n : s.p.m));
}
__device__ __forceinline__ int scale_blocks(const Params& s, int side) {
    return (int)min(s.matrices[side] * ceil_div(side ? s.p.n : s.p.m, 32), (long long)SCALE_BLOCKS);
}
__device__ __forceinline__ bool my_wide_flags(const Params& s, int side, int thread, int threads) {
    bool wide = false;
    for (int i = thread; i < scale_blocks(s, side); i += threads) wide |= wide_flags(s, side)[i] != 0;
    return wide;
}
// Whether the call has a scaled lo. For all threads of a block, after mm32_scale.
__device__ __forceinline__ bool has_scaled_lo(const Params& s) {
    if (PLANES != 2) return false;
    const bool a = my_wide_flags(s, 0, threadIdx.x, blockDim.x), b = my_wide_flags(s, 1, threadIdx.x, blockDim.x);
    return __syncthreads_or(a || b);
}

// Whether the multiply may start on some rows before mm32_pack has finished: it then waits for `ready` counters of units.
__device__ __forceinline__ bool counts_units(const Params& s) { return s.first_rows[0] + s.first_rows[1] > 0; }

constexpr int CHUNK = 8;         // K-blocks of a unit of mm32_pack
constexpr int READY_ROWS = 128;  // rows whose units have one counter for each chunk
constexpr int PREPACKED = 4;     // the load (emulated/pack.cu) of an operand that an earlier call has packed
// Rows of a unit, by mm32_pack's load.
template <int LOAD>
constexpr int UNIT_ROWS = LOAD >= 2 ? 16 : 64;

__device__ __forceinline__ long long padded_rows(long long rows) { return (rows + 7) / 8 * 8; }

// The accept test, for a row of A and a column of B.
// 1. Nothing is out of the format's range.
// 2. A small element loses up to 2^-25 of absolute precision, 2^-36 with a scaled lo. The row and the column then lose up to
//    2^-25 (2^-36) * (the row's number of small elements * the column's largest element + the same the other way round). That may
//    be up to 4 u |A||B|, u = 2^-24 (2^-11 with one product), and each sampled place at which both are big adds at least the
//    product of their levels to |A||B|.
// 3. The rounding of the split, 2^-22, does not average out over few products, and fp32 would round less. So some products must
//    be of elements that are not small: counted at the sampled places, or from the numbers of such elements in row and column.
// Zeros are neither small nor big: they lose nothing and add nothing. bf16x6 needs the first only.
constexpr float ALLOWED = PLANES == 2 ? 8.f : 65536.f;
__device__ __forceinline__ float loss_of_small(bool scaled_lo) { return scaled_lo ? 0x1p-11f : 1.f; }  // in units of 2^-25
__device__ __forceinline__ int required_products(long long k) { return PLANES == 2 ? (int)min(8LL, k / 4) : 0; }

__device__ __forceinline__ float power_of_two(int e) { return __uint_as_float((unsigned)(e + 127) << 23); }

// A row as the test sees it.
struct TestedRow {
    unsigned long long big[2][2];
    float largest, small;
    int level;
    unsigned regular;  // ~0: a row of zeros
};

struct AcceptTest {
    long long k;
    float loss, limit;
    int required;
    bool scaled_lo;

    __device__ __forceinline__ AcceptTest(const Params& s, bool scaled_lo)
        : k(s.p.k), loss(loss_of_small(scaled_lo)), limit(LIMIT), required(required_products(s.p.k)), scaled_lo(scaled_lo) {}

    __device__ __forceinline__ TestedRow see(const RowStats& x) const {
        const bool zeros = x.largest == 0 && x.counts == 0;
        return {{{x.big[0][0], x.big[0][1]}, {x.big[1][0], x.big[1][1]}}, __uint_as_float(x.largest), (float)(unsigned)x.counts,
                Scale{x.scale}.level(scaled_lo), zeros ? ~0u : (unsigned)(x.counts >> 32)};
    }
    // Whether a row is recomputed by itself: it has elements out of range, or too few that are not zero for the split, or is steep.
    // A row of zeros is not.
    __device__ __forceinline__ bool alone(const TestedRow& x, unsigned flags) const {
        return !(x.largest <= limit) || x.regular < (unsigned)required || (required && flags & STEEP);
    }
    // For all pairs of a group of A and a group of B: as if one pair had the worst of both groups.
    __device__ __forceinline__ bool accept(const GroupStats& x, const GroupStats& y) const {
        const float a = __uint_as_float(x.largest), b = __uint_as_float(y.largest);
        if (!(a <= limit && b <= limit)) return false;
        if (PLANES == 3) return true;
        const int places = (int)min(k, (long long)SAMPLES) - (int)x.gaps - (int)y.gaps;  // at least
        const float lost = (x.small * b + y.small * a) * loss, size = power_of_two(x.level + y.level) * max(places, 0);
        return lost <= ALLOWED * size && (places >= required || (long long)x.regular + y.regular - k >= required);
    }
    // For rows that are not alone.
    __device__ __forceinline__ bool accept(const TestedRow& x, const TestedRow& y) const {
        const float lost = x.small * y.largest + y.small * x.largest;
        const bool enough = (long long)x.regular + y.regular - k >= required;
        if (lost == 0.f && enough) return true;
        const float unit = power_of_two(x.level + y.level);
        const auto common = [](const unsigned long long (&a)[2], const unsigned long long (&b)[2]) {
            return __popcll(a[0] & b[0]) + __popcll(a[1] & b[1]);
        };
        if (lost * loss <= ALLOWED * unit * common(x.big[0], y.big[0]) && enough) return true;
        const int places = common(x.big[1], y.big[1]);
        constexpr float LOWER = 1.f / (1 << LEVELS);
        const float size = unit * fmaxf(LOWER * max(common(x.big[0], y.big[1]), common(x.big[1], y.big[0])), LOWER * LOWER * places);
        return lost * loss <= ALLOWED * fmaxf(size, unit * common(x.big[0], y.big[0])) && (enough || places >= required);
    }
};

// The number of rows of a group, as a power of two: 128, or more where ROW_GROUPS groups would not hold all rows. Rows are
// counted through all matrices, so that groups are whole tiles if M (or N) is a multiple of the tile.
__device__ __forceinline__ int group_shift(long long rows) {
    int shift = 7;
    while ((rows - 1) >> shift >= ROW_GROUPS) shift++;
    return shift;
}
