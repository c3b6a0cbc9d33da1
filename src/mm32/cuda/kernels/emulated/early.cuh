// The early decision: whether to give up fp16x3 before anything is packed, by what mm32_scale has found. Many pairs of a row
// of A and a column of B are drawn. fp16x3 is given up
// - if too many of them have no sampled place that is big in both: hardly a sum has enough products for fp16x3, or it is the
//   small elements that decide it;
// - if the accept test would probably reject too many of them: as it would if the sampled elements stood for the whole row;
// - or if too many of the rows are MEAGER: mm32_fallback would have to recompute them.
// The accept test would leave such a call to bf16x6 too, but only after it was packed and half multiplied.
//
// Only the first block of mm32_pack, or of a multiply that packs inline, looks at the pairs, and tells the others. When each
// of 528 blocks looked, reading the stats of 512 rows and columns from L2 took them 20 us; it takes one block 7. Rows of
// which the sample says nothing (UNSEEN) are not counted: zeros are no reason to give up, and NaN and Inf are left to the
// fallback.
//
// If every pair must have a common place (Flags::may_be_apart is false) and no row has small elements, as in most dense data,
// no pair is looked at.
#pragma once
#include "emulated/decide.cuh"
#include "emulated/panels.cuh"
#include "ptx/release.cuh"

constexpr int DRAWN_PAIRS = 256, MOST_APART = DRAWN_PAIRS / 16;
// Likewise for pairs that would be rejected, of which the accept test allows one in 128 (MOST_PAIRS of a piece), and for
// meager rows. If all rejected pairs are in at most FEW_ROWS rows, or columns, these are recomputed alone instead.
constexpr int DRAWS = 2, MOST_REJECTED = DRAWS * DRAWN_PAIRS / 128, MOST_MEAGER = DRAWS * DRAWN_PAIRS / 64, FEW_ROWS = 4;

// Pair number i of the `count` that are drawn.
struct DrawnPair {
    long long matrix;
    unsigned row, column;
    long long at_a, at_b;  // the numbers of the row and the column among those of all packed matrices

    __device__ __forceinline__ DrawnPair(const Params& s, unsigned i, unsigned count) {
        const unsigned m = max((unsigned)s.p.m, 1u), n = max((unsigned)s.p.n, 1u);
        matrix = i * s.p.batches / count;
        row = (i * 2654435761u + 977u) % m, column = (i * 2246822519u + 3266489917u) % n;
        at_a = packed_matrix(s, 0, matrix) * m + row, at_b = packed_matrix(s, 1, matrix) * n + column;
    }
};

// A row as the accept test will probably see it, if small elements are as frequent in the whole row as in its sample.
__device__ __forceinline__ TestedRow estimated(const RowStats& stats, unsigned largest_at, const AcceptTest& test) {
    const Scale scale{stats.scale};
    TestedRow x = test.see(stats, largest_at);
    x.largest = power_of_two(scale.flags() & EXACT ? TARGET_EXACT : TARGET - ROOM);
    x.small = (float)scale.sampled_small() * ((float)test.k / SAMPLES);
    x.regular = (unsigned)test.k;
    return x;
}

// Whether too many drawn pairs would be rejected, or too many rows are meager. For calls with a scaled lo.
__device__ __forceinline__ bool loses_too_much(const Params& s) {
    const AcceptTest test(s, true);
    __shared__ unsigned rows_seen[2][8];  // a bit for each of 256 classes of rows, and of columns, that have a rejected pair
    if (threadIdx.x < 16) rows_seen[threadIdx.x / 8][threadIdx.x % 8] = 0;
    __syncthreads();
    int rejected = 0, meager[2] = {0, 0};
#pragma unroll 1
    for (int draw = 0; draw < DRAWS; draw++) {
        const DrawnPair pair(s, draw * DRAWN_PAIRS + threadIdx.x % DRAWN_PAIRS, DRAWS * DRAWN_PAIRS);
        // Only what mm32_scale has written is used: the stats of a prepacked operand have counts and largest elements too.
        const RowStats a = load_stats(s.stats[0] + pair.at_a), b = load_stats(s.stats[1] + pair.at_b);
        const unsigned of_a = Scale{a.scale}.flags(), of_b = Scale{b.scale}.flags();
        const TestedRow x = estimated(a, largest_at(s, 0, pair.at_a), test), y = estimated(b, largest_at(s, 1, pair.at_b), test);
        bool reject = !((of_a | of_b) & UNSEEN) && !test.accept(x, y);
        if (reject) {
            const Operand rows = operand_of(s, 0, pair.matrix), columns = operand_of(s, 1, pair.matrix);
            reject = !test.accept(x, y, largest_term(rows, pair.row, x, columns, pair.column, y));
        }
        const bool counts = threadIdx.x < DRAWN_PAIRS;
        if (counts && reject) {
            atomicOr(&rows_seen[0][pair.at_a / 32 % 8], 1u << pair.at_a % 32);
            atomicOr(&rows_seen[1][pair.at_b / 32 % 8], 1u << pair.at_b % 32);
        }
        rejected += __syncthreads_count(counts && reject);
        meager[0] += __syncthreads_count(counts && of_a & MEAGER), meager[1] += __syncthreads_count(counts && of_b & MEAGER);
    }
    int rows[2] = {0, 0};
#pragma unroll 1
    for (int i = 0; i < 8; i++) rows[0] += __popc(rows_seen[0][i]), rows[1] += __popc(rows_seen[1][i]);
    return (rejected > MOST_REJECTED && min(rows[0], rows[1]) > FEW_ROWS) || max(meager[0], meager[1]) > MOST_MEAGER;
}

// Whether pairs have to be looked at.
__device__ __forceinline__ bool may_be_hopeless(const Params& s, const Flags& flags) {
    return s.early && (flags.may_be_apart() || flags.some_small());
}

// Whether the drawn pairs are a reason to give up. Called by all threads of a block, at least DRAWN_PAIRS. `small`: as for
// `looks_hopeless`.
__device__ __forceinline__ bool pairs_look_hopeless(const Params& s, bool small) {
    const DrawnPair pair(s, threadIdx.x % DRAWN_PAIRS, DRAWN_PAIRS);
    const RowStats *const a = s.stats[0] + pair.at_a, *const b = s.stats[1] + pair.at_b;
    const uint4 of_a = __ldcg(reinterpret_cast<const uint4*>(a->big[1])),
                of_b = __ldcg(reinterpret_cast<const uint4*>(b->big[1]));
    const bool seen = !((Scale{__ldcg(&a->scale)}.flags() | Scale{__ldcg(&b->scale)}.flags()) & UNSEEN);
    const unsigned common = (of_a.x & of_b.x) | (of_a.y & of_b.y) | (of_a.z & of_b.z) | (of_a.w & of_b.w);
    return __syncthreads_count(threadIdx.x < DRAWN_PAIRS && common == 0 && seen) > MOST_APART || (small && loses_too_much(s));
}

// Whether the call is left to bf16x6. All blocks get the same answer, because they wait for the first one. That one is never
// behind them: blocks start in order. Called by all threads. `small`: whether a row has small elements, in a call with a
// scaled lo.
__device__ __forceinline__ bool looks_hopeless(const Params& s, bool small) {
    enum : unsigned { UNKNOWN, GOES_ON, HOPELESS };
    Decision& decision = *s.decision;
    __shared__ unsigned found;
    if (blockIdx.x == 0) {
        const bool hopeless = pairs_look_hopeless(s, small);
        if (threadIdx.x == 0) {
            if (hopeless) {
                decision.tier = BF16X6, decision.early = 1;
                store_release(&decision.decided, 1), store_release(&decision.packed, 1);
            }
            store_release(&decision.looked, hopeless ? HOPELESS : GOES_ON);
        }
        return hopeless;
    }
    if (threadIdx.x == 0)
        while ((found = load_acquire(&decision.looked)) == UNKNOWN) __nanosleep(100);
    __syncthreads();
    return found == HOPELESS;
}
