// The early decision: whether fp16x3 is given up before anything is packed, from what mm32_scale has sampled. Where of many pairs of a
// row of A and a column of B none of the sampled places is big in both, hardly a sum has enough products for fp16x3, or it is the
// small elements that decide it: the accept test would leave the call to bf16x6, after it was packed and half multiplied.
//
// mm32_pack, or a multiply that packs inline, draws the same pairs in every block and so finds the same in each. Rows of which the
// sample says nothing (UNSEEN) are not counted: zeros are no reason, and NaN and Inf are the fallback's.
//
// Where every pair must have a common place (Flags::may_be_apart), as of data that are dense, no pair is looked at: 512 rows' stats for
// each of 528 blocks are 17 MB.
#pragma once
#include "emulated/panels.cuh"
#include "ptx/release.cuh"

constexpr int DRAWN_PAIRS = 256, MOST_APART = DRAWN_PAIRS / 16;

// By all threads of a block, which has at least DRAWN_PAIRS.
__device__ __forceinline__ bool gives_up(const Params& s, const Flags& flags) {
    if (!s.early || !flags.may_be_apart()) return false;
    const unsigned i = threadIdx.x % DRAWN_PAIRS, m = max((unsigned)s.p.m, 1u), n = max((unsigned)s.p.n, 1u);
    const long long matrix = i * s.p.batches / DRAWN_PAIRS;
    const RowStats* const a = s.stats[0] + packed_matrix(s, 0, matrix) * m + (i * 2654435761u + 977u) % m;
    const RowStats* const b = s.stats[1] + packed_matrix(s, 1, matrix) * n + (i * 2246822519u + 3266489917u) % n;
    const uint4 of_a = __ldcg(reinterpret_cast<const uint4*>(a->big[1])), of_b = __ldcg(reinterpret_cast<const uint4*>(b->big[1]));
    const bool seen = !((Scale{__ldcg(&a->scale)}.flags() | Scale{__ldcg(&b->scale)}.flags()) & UNSEEN);
    const unsigned common = (of_a.x & of_b.x) | (of_a.y & of_b.y) | (of_a.z & of_b.z) | (of_a.w & of_b.w);
    return __syncthreads_count(threadIdx.x < DRAWN_PAIRS && common == 0 && seen) > MOST_APART;
}

// Says so. By one thread of the call.
__device__ __forceinline__ void leave_to_bf16x6(Decision& decision) {
    decision.tier = BF16X6, decision.early = 1;
    store_release(&decision.decided, 1), store_release(&decision.packed, 1);
}
