// The early decision: whether fp16x3 is given up before anything is packed, from what mm32_scale has sampled. Where of many pairs of a
// row of A and a column of B none of the sampled places is big in both, hardly a sum has enough products for fp16x3, or it is the
// small elements that decide it: the accept test would leave the call to bf16x6, after it was packed and half multiplied.
//
// mm32_pack, or a multiply that packs inline, draws the same pairs in every block and so finds the same in each. Rows of which the
// sample says nothing (UNSEEN) are not counted: zeros are no reason, and NaN and Inf are the fallback's.
#pragma once
#include "emulated/panels.cuh"
#include "ptx/release.cuh"

constexpr int DRAWN_PAIRS = 256, MOST_APART = DRAWN_PAIRS / 16;

// A thread's pair. Which it is, is found before the stats are there to be read, and they are asked for together with what else a launch
// begins with: waiting for them by themselves, a call of 2048 x 8192 x 4096 took 3 of 633 us longer than without this decision.
struct DrawnPair {
    const RowStats *a, *b;
    uint4 of_a, of_b;  // bits of the sampled places that are big
    unsigned flags;

    __device__ __forceinline__ explicit DrawnPair(const Params& s) : of_a{}, of_b{}, flags(UNSEEN) {
        const unsigned i = threadIdx.x % DRAWN_PAIRS, m = max((unsigned)s.p.m, 1u), n = max((unsigned)s.p.n, 1u);
        const long long matrix = i * s.p.batches / DRAWN_PAIRS;
        a = s.stats[0] + packed_matrix(s, 0, matrix) * m + (i * 2654435761u + 977u) % m;
        b = s.stats[1] + packed_matrix(s, 1, matrix) * n + (i * 2246822519u + 3266489917u) % n;
    }
    __device__ __forceinline__ void load() {
        of_a = __ldcg(reinterpret_cast<const uint4*>(a->big[1])), of_b = __ldcg(reinterpret_cast<const uint4*>(b->big[1]));
        flags = Scale{__ldcg(&a->scale)}.flags() | Scale{__ldcg(&b->scale)}.flags();
    }
    __device__ __forceinline__ bool apart() const {
        const unsigned common = (of_a.x & of_b.x) | (of_a.y & of_b.y) | (of_a.z & of_b.z) | (of_a.w & of_b.w);
        return common == 0 && !(flags & UNSEEN);
    }
};

// By all threads of a block, which has at least DRAWN_PAIRS, each with its pair.
__device__ __forceinline__ bool gives_up(const DrawnPair& pair) {
    return __syncthreads_count(threadIdx.x < DRAWN_PAIRS && pair.apart()) > MOST_APART;
}

// Says so. By one thread of the call.
__device__ __forceinline__ void leave_to_bf16x6(Decision& decision) {
    decision.tier = BF16X6, decision.early = 1;
    store_release(&decision.decided, 1), store_release(&decision.packed, 1);
}
