// The early decision: whether fp16x3 is given up before anything is packed, from what mm32_scale has found. It is, if of many pairs of a
// row of A and a column of B, that are drawn,
// - none of the sampled places is big in both: hardly a sum has enough products for fp16x3, or it is the small elements that decide it;
// - the accept test would probably reject: as it would if the sampled elements stood for all of a row;
// or if many of the rows are MEAGER: mm32_fallback would have to recompute them.
// The accept test would leave the call to bf16x6, after it was packed and half multiplied.
//
// mm32_pack, or a multiply that packs inline, draws the same pairs in every block and so finds the same in each. Rows of which the
// sample says nothing (UNSEEN) are not counted: zeros are no reason, and NaN and Inf are the fallback's.
//
// Where every pair must have a common place (Flags::may_be_apart) and no row has small elements, as of most data that are dense, no pair is
// looked at: 512 rows' stats for each of 528 blocks are 17 MB.
#pragma once
#include "emulated/panels.cuh"
#include "ptx/release.cuh"

constexpr int DRAWN_PAIRS = 256, MOST_APART = DRAWN_PAIRS / 16;
// The same for pairs that would be rejected, of which the accept test lets a 128th be (MOST_PAIRS of a piece), and for meager rows. If all
// rejected pairs are of few rows, or of few columns, these are recomputed alone instead.
constexpr int DRAWS = 2, MOST_REJECTED = DRAWS * DRAWN_PAIRS / 128, MOST_MEAGER = DRAWS * DRAWN_PAIRS / 64, FEW_ROWS = 4;

// A row as the accept test will probably see it: what the sample says of its small elements holds for all of it.
__device__ __forceinline__ TestedRow estimated(const RowStats& stats, unsigned largest_at, const AcceptTest& test) {
    const Scale scale{stats.scale};
    TestedRow x = test.see(stats, largest_at);
    x.largest = power_of_two(scale.flags() & EXACT ? TARGET_EXACT : TARGET - ROOM);
    x.small = (float)scale.sampled_small() * ((float)test.k / SAMPLES);
    x.regular = (unsigned)test.k;
    return x;
}

// For calls with a scaled lo.
__device__ __forceinline__ bool loses_too_much(const Params& s) {
    const AcceptTest test(s, true);
    const unsigned m = max((unsigned)s.p.m, 1u), n = max((unsigned)s.p.n, 1u);
    __shared__ unsigned rows_seen[2][8];  // a bit for each of 256 classes of rows, and of columns, of which a pair is rejected
    if (threadIdx.x < 16) rows_seen[threadIdx.x / 8][threadIdx.x % 8] = 0;
    __syncthreads();
    int rejected = 0, meager[2] = {0, 0};
#pragma unroll 1
    for (int draw = 0; draw < DRAWS; draw++) {
        const unsigned i = draw * DRAWN_PAIRS + threadIdx.x % DRAWN_PAIRS;
        const long long matrix = i * s.p.batches / (DRAWS * DRAWN_PAIRS);
        const unsigned row = (i * 2654435761u + 977u) % m, column = (i * 2246822519u + 3266489917u) % n;
        const long long at_a = packed_matrix(s, 0, matrix) * m + row, at_b = packed_matrix(s, 1, matrix) * n + column;
        RowStats a, b;  // as far as mm32_scale has written them: a prepacked operand's have counts and largest elements too
#pragma unroll
        for (int j = 0; j < 3; j++) {
            reinterpret_cast<uint4*>(&a)[j] = __ldcg(reinterpret_cast<const uint4*>(s.stats[0] + at_a) + j);
            reinterpret_cast<uint4*>(&b)[j] = __ldcg(reinterpret_cast<const uint4*>(s.stats[1] + at_b) + j);
        }
        const unsigned of_a = Scale{a.scale}.flags(), of_b = Scale{b.scale}.flags();
        const TestedRow x = estimated(a, __ldcg(places_of_largest(s, 0) + at_a), test), y = estimated(b, __ldcg(places_of_largest(s, 1) + at_b), test);
        bool reject = !((of_a | of_b) & UNSEEN) && !test.accept(x, y);
        if (reject) reject = !test.accept(x, y, largest_term(operand_of(s, 0, matrix), row, x, operand_of(s, 1, matrix), column, y));
        const bool counts = threadIdx.x < DRAWN_PAIRS;
        if (counts && reject) {
            atomicOr(&rows_seen[0][row / 32 % 8], 1u << row % 32);
            atomicOr(&rows_seen[1][column / 32 % 8], 1u << column % 32);
        }
        rejected += __syncthreads_count(counts && reject);
        meager[0] += __syncthreads_count(counts && of_a & MEAGER), meager[1] += __syncthreads_count(counts && of_b & MEAGER);
    }
    int rows[2] = {0, 0};
#pragma unroll 1
    for (int i = 0; i < 8; i++) rows[0] += __popc(rows_seen[0][i]), rows[1] += __popc(rows_seen[1][i]);
    return (rejected > MOST_REJECTED && min(rows[0], rows[1]) > FEW_ROWS) || max(meager[0], meager[1]) > MOST_MEAGER;
}

// Not inlined into mm32_pack, to which it would cost registers: units of randn took 7 % longer. But mm32_tensorcore has wgmma, around which
// no function may be called.
#if MM32_INLINE_PACK
#define MM32_RARELY __forceinline__
#else
#define MM32_RARELY __noinline__
#endif
__device__ MM32_RARELY bool looks_hopeless(const Params& s, bool small) {
    const unsigned i = threadIdx.x % DRAWN_PAIRS, m = max((unsigned)s.p.m, 1u), n = max((unsigned)s.p.n, 1u);
    const long long matrix = i * s.p.batches / DRAWN_PAIRS;
    const RowStats* const a = s.stats[0] + packed_matrix(s, 0, matrix) * m + (i * 2654435761u + 977u) % m;
    const RowStats* const b = s.stats[1] + packed_matrix(s, 1, matrix) * n + (i * 2246822519u + 3266489917u) % n;
    const uint4 of_a = __ldcg(reinterpret_cast<const uint4*>(a->big[1])), of_b = __ldcg(reinterpret_cast<const uint4*>(b->big[1]));
    const bool seen = !((Scale{__ldcg(&a->scale)}.flags() | Scale{__ldcg(&b->scale)}.flags()) & UNSEEN);
    const unsigned common = (of_a.x & of_b.x) | (of_a.y & of_b.y) | (of_a.z & of_b.z) | (of_a.w & of_b.w);
    return __syncthreads_count(threadIdx.x < DRAWN_PAIRS && common == 0 && seen) > MOST_APART || (small && loses_too_much(s));
}

// By all threads of a block, which has at least DRAWN_PAIRS.
__device__ __forceinline__ bool gives_up(const Params& s, const Flags& flags) {
    return s.early && (flags.may_be_apart() || flags.some_small()) && looks_hopeless(s, flags.some_small() && flags.scaled_lo());
}

// Says so. By one thread of the call.
__device__ __forceinline__ void leave_to_bf16x6(Decision& decision) {
    decision.tier = BF16X6, decision.early = 1;
    store_release(&decision.decided, 1), store_release(&decision.packed, 1);
}
