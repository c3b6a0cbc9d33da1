// The decision which tier computes a product, from the stats that packing has collected (emulated/stats.cuh): stats of rows
// are reduced to those of groups, and then one block runs the accept test. Who does it, and when:
// - in mm32_tensorcore: warps that have nothing else to do, when mm32_pack has finished;
// - in an mm32_tensorcore that packs inline: the warpgroup that observes a tile of rows last reduces it, and the block that
//   finishes last decides;
// - in mm32_pack, if mm32_mma follows, which starts only afterwards: the block that finishes last.
#pragma once
#include "common/tile_order.cuh"
#include "emulated/panels.cuh"
#include "ptx/named_barriers.cuh"
#include "ptx/release.cuh"

constexpr int TRIED_TILES = 6, TRIED_M = 32, TRIED_N = 32;  // pieces of C that are tested: how many, and their size
constexpr int MOST_PAIRS = 8;                                // how many pairs of a piece may fail
// Where C has fewer than FEW_PIECES such pieces, FEW_PAIRS may fail; with fewer than FEWEST_PIECES, none. With few of
// mm32_fallback's tiles, few blocks would recompute them.
constexpr int FEW_PIECES = 1024, FEWEST_PIECES = 256, FEW_PAIRS = 2;
constexpr int PARTNERS = 8;

// What `decide` keeps in shared memory. It has to fit beside the multiply and a block of mm32_pack.
struct Deciding {
    GroupStats worst[2];  // of all rows of A, and of B
    GroupStats worst_partner[2];
    union {
        TestedRow rows[TRIED_M];
        TestedRow partners[2][PARTNERS];  // no longer needed once `rows` is used
        float memory[256];                // used before both
    };
    unsigned char alone_rows[TRIED_M];
    unsigned rejected, looked_up, failed;  // pairs of a piece that is tried
};

// Loads stats that other multiprocessors have written, bypassing this one's L1.
__device__ __forceinline__ RowStats load_stats(const RowStats* from) {
    static_assert(sizeof(RowStats) == 48);
    RowStats x;
#pragma unroll
    for (int i = 0; i < 3; i++) reinterpret_cast<uint4*>(&x)[i] = __ldcg(reinterpret_cast<const uint4*>(from) + i);
    return x;
}

// Where along K the largest element of row `row` of operand `side` lies, and the row as the test sees it. Rows are counted
// over all packed matrices.
__device__ __forceinline__ unsigned largest_at(const Params& s, int side, long long row) {
    return PLANES == 2 ? __ldcg(places_of_largest(s, side) + row) : NOWHERE;
}
__device__ __forceinline__ TestedRow see_row(const Params& s, int side, long long row, const AcceptTest& test) {
    return test.see(load_stats(s.stats[side] + row), largest_at(s, side, row));
}

// Whether `yes` is true in any of the THREADS threads that decide.
template <int THREADS>
__device__ __forceinline__ bool any_of(bool yes) {
    return any_at<5, THREADS>(yes);
}

// Whether only FMAs can compute a row.
__device__ __forceinline__ bool is_not_finite(const RowStats& row) {
    return PLANES == 3 ? !(__uint_as_float(row.largest) <= LIMIT) : row.largest >= 0x7f800000u;
}

// Loads some rows of each operand, for is_steep. Called by all THREADS threads, of which there are at least 2 * PARTNERS.
template <int THREADS>
__device__ __forceinline__ void load_partners(const Params& s, int thread, const AcceptTest& test, Deciding& d) {
    if (thread < 2) d.worst_partner[thread] = NOTHING_SEEN;
    any_of<THREADS>(false);
    const int side = thread / PARTNERS;
    const long long rows = side > 1 ? 0 : s.matrices[side] * (side ? s.p.n : s.p.m);
    if (rows > 0) {
        const TestedRow x = test.see(load_stats(s.stats[side] + (thread % PARTNERS * 2654435761u + 977u) % rows));
        d.partners[side][thread % PARTNERS] = x;
        d.worst_partner[side].join(as_group(x, test.k));
    }
    any_of<THREADS>(false);
}

// Whether a row, which is not alone, is rejected with at least half of PARTNERS rows of the other operand. A row that was
// read whole (it is exact, and not because the samples are all of it) must be rejected with these even if its largest element
// met elements of them that are big.
__device__ __forceinline__ bool is_steep(const TestedRow& x, bool exact, int side, const AcceptTest& test, const Deciding& d) {
    if (PLANES != 2 || !test.required || x.small == 0.f || test.accept(as_group(x, test.k), d.worst_partner[1 - side]))
        return false;
    const bool read_whole = exact && test.k > SAMPLES;
    int rejected = 0;
#pragma unroll 1
    for (int j = 0; j < PARTNERS; j++) {
        const TestedRow& y = d.partners[1 - side][j];
        const float term = read_whole ? x.largest * (LOWER * power_of_two(y.level)) : 0.f;
        rejected += !test.alone(y, 0) && !test.accept(x, y) && !test.accept(x, y, term);
    }
    return rejected >= PARTNERS / 2;
}

// Counts the rows of a warp for which `yes` is true, and lists them.
__device__ __forceinline__ void count_rows(bool yes, unsigned row, unsigned& count, unsigned (&listed)[LISTED]) {
    const unsigned who = __ballot_sync(~0u, yes);
    if (!who) return;
    unsigned place = 0;
    if (threadIdx.x % 32 == 0) place = atomicAdd(&count, (unsigned)__popc(who));
    place = __shfl_sync(~0u, place, 0) + __popc(who & ((1u << threadIdx.x % 32) - 1));
    if (yes && place < LISTED) listed[place] = row;
}

// Reduces the complete stats of 32 rows, part `unit` % REDUCERS of a tile of READY_ROWS, to those of their group. Called by
// one warp. With STEEP_ROWS it also marks the rows that are steep: the stats of the other operand are then complete too, and
// `d` has partners.
constexpr int REDUCERS = READY_ROWS / 32;
template <bool STEEP_ROWS>
__device__ __forceinline__ void reduce_rows(const Params& s, int side, long long unit, const AcceptTest& test,
                                            const Deciding& d) {
    const long long rows = side ? s.p.n : s.p.m, per_matrix = ceil_div(rows, READY_ROWS), tile = unit / REDUCERS;
    const long long matrix = tile / per_matrix,
                    row = (tile - matrix * per_matrix) * READY_ROWS + unit % REDUCERS * 32 + threadIdx.x % 32;
    if (row - threadIdx.x % 32 >= rows) return;
    RowStats* const at = s.stats[side] + matrix * rows + row;
    GroupStats worst = NOTHING_SEEN;
    bool not_finite = false, out_of_range = false, alone = false, outlier = false;
    const unsigned index = (unsigned)(matrix * rows + row);
    if (row < rows) {
        const RowStats stats = load_stats(at);
        const TestedRow x = test.see(stats);
        worst = as_group(x, test.k);
        not_finite = is_not_finite(stats), out_of_range = !(x.largest <= LARGEST_BF16X6);
        alone = test.alone(x, Scale{stats.scale}.flags());
        if (STEEP_ROWS && !alone && is_steep(x, Scale{stats.scale}.flags() & EXACT, side, test, d))
            at->scale |= STEEP << 24, alone = true;
        outlier = PLANES == 2 && test.required && !alone && Scale{stats.scale}.flags() & OUTLIER;
    }
    worst.worsen_by_warp();
    Decision& decision = *s.decision;
    worst.alone = __any_sync(~0u, alone) | __any_sync(~0u, outlier) << 1;
    count_rows(alone, index, decision.alone[side], decision.listed[0][side]);
    if (PLANES == 2) count_rows(outlier, index, decision.outliers[side], decision.listed[2][side]);
    count_rows(out_of_range, index, decision.out_of_range[side], decision.listed[1][side]);
    const unsigned infinite = __popc(__ballot_sync(~0u, not_finite));
    if (threadIdx.x % 32 != 0) return;
    decision.groups[side][tile >> group_shift(row_tiles(s, side))].join(worst);
    if (infinite) atomicAdd(&decision.not_finite[side], infinite);
}

// Marks the steep rows of an operand where they could not be marked earlier.
template <int THREADS>
__device__ __forceinline__ void mark_steep_rows(const Params& s, int side, int thread, const AcceptTest& test, Deciding& d) {
    const long long of_matrix = side ? s.p.n : s.p.m, rows = s.matrices[side] * of_matrix;
    RowStats* const all = s.stats[side];
#pragma unroll 1
    for (long long i = thread; i < rows; i += THREADS) {
        const RowStats stats = load_stats(all + i);
        const TestedRow x = test.see(stats);
        if (test.alone(x, Scale{stats.scale}.flags()) || !is_steep(x, Scale{stats.scale}.flags() & EXACT, side, test, d))
            continue;
        all[i].scale |= STEEP << 24;
        const unsigned place = atomicAdd(&s.decision->alone[side], 1u);
        if (place < LISTED) s.decision->listed[0][side][place] = (unsigned)i;
        const long long matrix = i / of_matrix;
        s.decision->groups[side][row_tile(s, side, matrix, i - matrix * of_matrix) >> group_shift(row_tiles(s, side))].alone |= 1;
    }
}

// Whether `count` is more than `at_least` and more than one in `in` of `rows`. If more rows than ALONE_IN and ALONE_AT_LEAST
// allow would be recomputed alone, the tier below computes everything, which takes less time.
__device__ __forceinline__ bool is_more_than(unsigned count, long long rows, int in, int at_least) {
    return count > max((long long)at_least, rows / in);
}
constexpr int ALONE_IN = 256, ALONE_AT_LEAST = 8;

// Whether there are outliers, but few. These are then counted and listed among the rows that are alone. Where there are many,
// the sums of all other rows round no better. All THREADS threads that decide get the same answer.
template <int THREADS>
__device__ __forceinline__ bool count_outliers(const Params& s, int thread) {
    Decision& decision = *s.decision;
    const unsigned count[2] = {__ldcg(&decision.outliers[0]), __ldcg(&decision.outliers[1])};
    if (!(count[0] | count[1]) || is_more_than(count[0], s.matrices[0] * s.p.m, ALONE_IN, ALONE_AT_LEAST) ||
        is_more_than(count[1], s.matrices[1] * s.p.n, ALONE_IN, ALONE_AT_LEAST))
        return false;
#pragma unroll 1
    for (int side = 0; side < 2; side++) {
        const unsigned before = __ldcg(&decision.alone[side]);
        for (unsigned i = thread; i < min(count[side], (unsigned)LISTED); i += THREADS)
            if (before + i < LISTED) decision.listed[0][side][before + i] = __ldcg(&decision.listed[2][side][i]);
        any_of<THREADS>(false);
        if (thread == 0) decision.alone[side] = before + count[side];
    }
    __threadfence();
    any_of<THREADS>(false);
    return true;
}

// Tests all pairs of some pieces of C; returns whether a piece has more than MOST_PAIRS (in a small C, fewer) that are not
// accepted. Rows that mm32_fallback recomputes alone do not count. If the samples reject more, each thread looks up the term
// of the first pair that it has rejected, and the share of these that fail stands for the share of all. Looking up all pairs,
// one after another, would last until the multiply is over.
template <int THREADS>
__device__ __forceinline__ bool any_rejected_tile(const Params& s, int thread, const AcceptTest& test, Deciding& d) {
    const long long tiles = tiles_of<TRIED_M, TRIED_N>(s.p);
    const unsigned most = tiles >= FEW_PIECES ? MOST_PAIRS : tiles >= FEWEST_PIECES ? FEW_PAIRS : 0;
    if (thread == 0) d.rejected = d.looked_up = d.failed = 0;
#pragma unroll 1
    for (unsigned i = 0; i < TRIED_TILES; i++) {
        const auto tile = tile_at<TRIED_M, TRIED_N, false>(s.p, (i * 2654435761u + 977u) % tiles);
        const long long a = packed_matrix(s, 0, tile.matrix) * s.p.m + tile.m0, n = tile.n0 + thread % TRIED_N;
        const int rows = (int)min((long long)TRIED_M, s.p.m - tile.m0);
        for (int r = thread; r < rows; r += THREADS) {
            const RowStats x = load_stats(s.stats[0] + a + r);
            d.rows[r] = test.see(x, largest_at(s, 0, a + r));
            d.alone_rows[r] = test.alone(d.rows[r], Scale{x.scale}.flags());
        }
        TestedRow b{};
        bool skip = n >= s.p.n;
        if (!skip) {
            const long long column = packed_matrix(s, 1, tile.matrix) * s.p.n + n;
            const RowStats x = load_stats(s.stats[1] + column);
            b = test.see(x), skip = test.alone(b, Scale{x.scale}.flags());
        }
        any_of<THREADS>(false);
        unsigned rejected = 0;  // bit r: row r of the tile
        if (!skip)
            for (int r = thread / TRIED_N; r < rows; r += THREADS / TRIED_N)
                rejected |= (unsigned)(!d.alone_rows[r] && !test.accept(d.rows[r], b)) << r;
        if (rejected) atomicAdd(&d.rejected, (unsigned)__popc(rejected));
        any_of<THREADS>(false);
        if (PLANES == 2 && d.rejected > most) {
            if (rejected) {
                const int r = __ffs((int)rejected) - 1;
                const Operand of_a = operand_of(s, 0, tile.matrix), of_b = operand_of(s, 1, tile.matrix);
                // The column is read again: kept, it would cost the loop above registers.
                const TestedRow column = see_row(s, 1, packed_matrix(s, 1, tile.matrix) * s.p.n + n, test);
                atomicAdd(&d.looked_up, 1u);
                if (!test.accept(d.rows[r], column, largest_term(of_a, tile.m0 + r, d.rows[r], of_b, n, column)))
                    atomicAdd(&d.failed, 1u);
            }
            any_of<THREADS>(false);
        }
        if (PLANES == 2 ? d.rejected * d.failed > most * d.looked_up : d.rejected > most) return true;
        any_of<THREADS>(false);
        if (thread == 0) d.rejected = d.looked_up = d.failed = 0;
    }
    return false;
}

// The accept test, by THREADS threads of one block. It tests first all rows at once, as if one row had the worst of all; then
// groups of rows, every group of A with every group of B that it meets in C: not testing all pairs of rows saved 12 of 662 us
// (2048 x 8192 x 4096). If a pair of groups is not accepted, rows and pieces of C are tested. mm32_fallback recomputes what
// fails, or, if that is more than a few tiles and rows, the next tier computes everything.
// LOWER_TIER: there is such a tier. MARK: steep rows have not been marked yet. BOTH_PREPACKED: each operand was packed by
// itself. If lo was scaled in only one of them, their panels do not belong together; a lower tier reads the operands
// themselves.
template <int THREADS, bool LOWER_TIER, bool MARK, bool BOTH_PREPACKED>
__device__ __forceinline__ void decide(const Params& s, int thread, bool scaled_lo, Deciding& d) {
    constexpr bool LOWER = PLANES == 3 && MM32_GUARDED;  // what the first tier observed is still there
    Decision& decision = *s.decision;
    if (thread < 2) d.worst[thread] = NOTHING_SEEN;
    any_of<THREADS>(false);
    AcceptTest test(s, scaled_lo);
    const long long a_tiles = row_tiles(s, 0), b_tiles = row_tiles(s, 1);
    const int a_shift = group_shift(a_tiles), b_shift = group_shift(b_tiles);
    const int a_count = (int)((a_tiles - 1) >> a_shift) + 1, b_count = (int)((b_tiles - 1) >> b_shift) + 1;
#pragma unroll 1
    for (int side = 0; side < 2; side++) {
        GroupStats worst = NOTHING_SEEN;
        for (int i = thread; i < (side ? b_count : a_count); i += THREADS) worst.worsen(decision.groups[side][i]);
        worst.worsen_by_warp();
        if (thread % 32 == 0) d.worst[side].join(worst);
    }
    any_of<THREADS>(false);
    bool mine = LOWER && decision.tiny;
    if (a_count > 0 && b_count > 0 && !test.accept(d.worst[0], d.worst[1])) {  // the same in all threads
        const auto try_groups = [&](int in_a, int in_b) {
            mine |= !test.accept(decision.groups[0][in_a], decision.groups[1][in_b]);
        };
        if (s.matrices[0] > 1 && s.matrices[1] > 1) {  // a group of A meets only those of B that hold rows of the same matrices
            const unsigned tiles_m = (unsigned)ceil_div(s.p.m, READY_ROWS), tiles_n = (unsigned)ceil_div(s.p.n, READY_ROWS);
            for (int in_a = thread; in_a < a_count; in_a += THREADS) {
                const unsigned first = ((unsigned)in_a << a_shift) / tiles_m,
                               last = (((unsigned)in_a + 1 << a_shift) - 1) / tiles_m;
                const int end = (int)min((long long)b_count, (((last + 1LL) * tiles_n - 1) >> b_shift) + 1);
                for (int in_b = (int)((long long)first * tiles_n >> b_shift); in_b < end; in_b++) try_groups(in_a, in_b);
            }
        } else {
            for (int i = thread; i < a_count * b_count; i += THREADS) try_groups(i % a_count, i / a_count);
        }
    }
    bool apart = false;
    if (BOTH_PREPACKED && PLANES == 2)
        apart = any_of<THREADS>(Flags::of_side(s, 0, 32) & WIDE_ROWS) != any_of<THREADS>(Flags::of_side(s, 1, 32) & WIDE_ROWS);
    const bool few_outliers = PLANES == 2 && count_outliers<THREADS>(s, thread);
    if (few_outliers) test.flags_alone |= OUTLIER;
    const bool unsure = any_of<THREADS>(mine) || apart || few_outliers;
    unsigned tier = LOWER ? BF16X6 : FIRST_TIER;
    if (unsure) {
        const long long a_rows = s.matrices[0] * s.p.m, b_rows = s.matrices[1] * s.p.n;
        const unsigned* const for_fma = LOWER ? decision.out_of_range : decision.not_finite;
        // With more such rows, most of mm32_fallback's tiles would have too many of them.
        const auto many = [&](const unsigned* count, int in, int at_least) {
            return is_more_than(__ldcg(count), a_rows, in, at_least) || is_more_than(__ldcg(count + 1), b_rows, in, at_least);
        };
        if (many(for_fma, 16, 0) || (apart && !LOWER_TIER)) {
            tier = FMA;
        } else if (apart) {
            tier = BF16X6;
        } else if (PLANES == 2 && LOWER_TIER) {
            bool rejected = many(decision.alone, ALONE_IN, ALONE_AT_LEAST);
            if (!rejected && any_rejected_tile<THREADS>(s, thread, test, d)) {
                rejected = true;
                if (MARK) {  // only now: it takes a block tens of microseconds
                    load_partners<THREADS>(s, thread, test, d);
                    mark_steep_rows<THREADS>(s, 0, thread, test, d);
                    mark_steep_rows<THREADS>(s, 1, thread, test, d);
                    __threadfence();
                    any_of<THREADS>(false);
                    rejected = many(decision.alone, ALONE_IN, ALONE_AT_LEAST) || any_rejected_tile<THREADS>(s, thread, test, d);
                }
            }
            if (rejected) tier = BF16X6;
        }
    }
    if (thread == 0) {
        decision.unsure = unsure || tier == FMA;
        if (LOWER)
            for (int side = 0; side < 2; side++) decision.alone[side] = decision.out_of_range[side];
        else
            decision.scaled_lo = scaled_lo, decision.few_outliers = few_outliers;
        decision.tier = tier;
        store_release(&decision.decided, 1);
    }
}
