// What the launches of an emulated product tell one another about the data: the structs that Params points to. They do not depend
// on a launch's constants, so that launches of different schemes share them. emulated/panels.cuh says how they are used.
#pragma once

struct RowStats {
    // Bit i of big[0]: sampled element i, scaled, is at least 2^level. Bit i of big[1]: it is at least 2^(level - LEVELS).
    unsigned long long big[2][2];
    unsigned scale;             // exponent, level and flags, in one word (Scale)
    unsigned largest;           // the bits of the largest scaled magnitude
    unsigned long long counts;  // low word: elements that are not zero and small; high word: elements that are not small
};
constexpr unsigned EXACT = 1, STEEP = 2, UNSEEN = 4, MEAGER = 8, OUTLIER = 16;
// 2^level is 2^-5 of the largest sampled element, and the second level, LEVELS below it, is 2^-9. Two levels of A with two of
// B find what decides |A||B| even where one row is flat and the other steep.
constexpr int LEVEL = 5, LEVELS = 4;

// What RowStats::scale holds: the exponent; for a row that was read whole, about how many of its sampled elements are small
// with a scaled lo; the level; and flags. EXACT: the exponent comes from the whole row. MEAGER: by the sample, some elements
// are small, and hardly any are not. STEEP: the row is accepted with only few rows of the other operand, and is recomputed by
// itself. OUTLIER: one or two elements may make up the row's whole sum; if there are few such rows, they are recomputed by
// themselves. UNSEEN: a row of zeros, or one whose sample is not finite. In a call with a scaled lo, the exponent of rows
// that are not EXACT is lower by ROOM.
constexpr int ROOM = 5;
struct Scale {
    unsigned word;

    static __device__ __forceinline__ unsigned pack(int exponent, unsigned small, int level, unsigned flags) {
        return (exponent & 0xff) | small << 8 | (level & 0xff) << 16 | flags << 24;
    }
    __device__ __forceinline__ unsigned sampled_small() const { return word >> 8 & 0xff; }
    __device__ __forceinline__ unsigned flags() const { return word >> 24; }
    __device__ __forceinline__ int lower(bool scaled_lo) const { return scaled_lo && !(word >> 24 & EXACT) ? ROOM : 0; }
    __device__ __forceinline__ int exponent(bool scaled_lo) const { return (signed char)word - lower(scaled_lo); }
    __device__ __forceinline__ int level(bool scaled_lo) const { return (signed char)(word >> 16) - lower(scaled_lo); }
};

// The worst values in a group of rows. `small`: the most small elements. `largest`: the largest element, as bits. `gaps`: the
// most sampled places that are not big, at each level. `regular`: the fewest elements that are not small. `level`: the lowest
// level. `alone`: whether a row is recomputed by itself (bit 0), or is an outlier (bit 1). Rows of zeros do not count. A
// group is a run of tiles of READY_ROWS rows (emulated/panels.cuh).
struct GroupStats {
    unsigned small, largest, gaps[2], regular;
    int level;
    unsigned alone;

    // Joins another group. Several threads may do so at once.
    __device__ __forceinline__ void join(const GroupStats& x) {
        atomicMax(&small, x.small), atomicMax(&largest, x.largest);
        atomicMax(&gaps[0], x.gaps[0]), atomicMax(&gaps[1], x.gaps[1]);
        atomicMin(&regular, x.regular), atomicMin(&level, x.level);
        if (x.alone) atomicOr(&alone, x.alone);
    }
    // Takes the worst of this and another group, except for `alone`.
    __device__ __forceinline__ void worsen(const GroupStats& x) {
        small = max(small, x.small), largest = max(largest, x.largest);
        gaps[0] = max(gaps[0], x.gaps[0]), gaps[1] = max(gaps[1], x.gaps[1]);
        regular = min(regular, x.regular), level = min(level, x.level);
    }
    // Takes the worst of the 32 groups that a warp's threads have, except for `alone`. All threads get it.
    __device__ __forceinline__ void worsen_by_warp() {
        small = __reduce_max_sync(~0u, small), largest = __reduce_max_sync(~0u, largest);
        gaps[0] = __reduce_max_sync(~0u, gaps[0]), gaps[1] = __reduce_max_sync(~0u, gaps[1]);
        regular = __reduce_min_sync(~0u, regular), level = __reduce_min_sync(~0u, level);
    }
};
constexpr GroupStats NOTHING_SEEN{0, 0, {0, 0}, ~0u, 127, 0};
constexpr int ROW_GROUPS = 256;   // the most groups of rows of one operand
constexpr int MOST_BLOCKS = 256;  // the most blocks of mm32_tensorcore
constexpr int LISTED = 64;

// What computes the result of an emulated product.
enum Tier : unsigned {
    // What was asked for: fp16x3, with or without a scaled lo; fp16; or bf16x6. mm32_fallback recomputes single tiles.
    FIRST_TIER = 0,
    BF16X6 = 1,  // the launches of bf16x6, instead of those of fp16x3
    FMA = 2,     // mm32_fallback, which then recomputes everything
};

// What the accept test decided about a call, and what it decided from. mm32_scale sets `groups` to NOTHING_SEEN and all else
// but `listed` to zeros.
struct __align__(16) Decision {
    unsigned tier;             // a Tier. Decided when mm32_pack has finished, while the multiply may already run
    unsigned decided;          // 1: tier will not change before the lower tier's launches
    unsigned unsure;           // 1: mm32_fallback must test the tiles that `groups` do not accept
    unsigned recomputed;       // bit 0: mm32_fallback has recomputed a tile; bit 1: single rows, columns or elements
    unsigned scaled_lo;        // 1: lo is scaled
    unsigned finished_blocks;  // blocks of mm32_pack (with inline packing, of mm32_tensorcore) that have finished
    unsigned finished_lower;   // the same for the lower tier's mm32_pack
    unsigned packed;           // 1: mm32_pack has finished, and `ready` need not be read any more
    unsigned judged;           // how many blocks of the multiply have reduced their share of the stats
    unsigned tiny;             // 1: bf16x6 met an element that is too small for it (SMALLEST_BF16X6)
    unsigned not_finite[2];    // how many rows of A and of B have a NaN or an Inf
    unsigned out_of_range[2];  // how many rows have an element that is too large for bf16x6
    unsigned alone[2];         // how many rows may have to be recomputed alone
    unsigned outliers[2];      // how many more are outliers: once these are known to be few, `alone` counts them too
    unsigned few_outliers;     // 1: the outliers are few
    unsigned early;            // 1: the call was left to bf16x6 before anything was packed (early.cuh)
    unsigned progress[2];      // steps that all blocks of the multiply, and of the lower tier's, have begun (tensorcore.cu)
    float least_power;         // with a smaller sum of squares, the product cancels (cancel.cuh). 0: not known
    unsigned looked;           // what the first block has found about leaving the call to bf16x6 early; 0: not known yet
    GroupStats groups[2][ROW_GROUPS];  // of A and of B
    float power[MOST_BLOCKS];          // sum of squares of C, before the epilogue, of each block of the multiply
    unsigned listed[3][2][LISTED];     // the first rows that `alone`, `out_of_range` and `outliers` count, of A and of B
};
