// Cancellation: whether the sums of C cancel term by term, so that another tier must compute it. docs/accept-test.md has the
// argument.
//
// If the terms of the sums have random signs, the sum of the squares of C is about that of the squares of all terms, P = sum
// over k of |A's column k|^2 |B's row k|^2; if they have one sign, it is up to K times that. Where the sum of the squares is
// far below P, fp32's partial sums stay small and so do its errors, while the errors of fp16x3 are relative to the terms. For
// each of 65 families of data the root of the ratio was below 0.15 or above 0.8.
// - mm32_scale adds up the squares of each operand's elements at the sampled places of K, in the rows that are watched.
// - mm32_tensorcore derives from these the least sum of squares that is not cancellation, and adds up the squares of C as it
//   stores it. With split-K it adds up those of the sums of each part of K, which cancel too where the terms cancel one after
//   another.
// - The launch after it compares the two: mm32_pack of the lower tier, or mm32_fallback if there is none.
#pragma once
#include "emulated/panels.cuh"
#include "ptx/named_barriers.cuh"

constexpr float CANCELS = 0.5f;  // C cancels if the root of its sum of squares is less than this times the root of P

// Estimates P for the watched part of C from the sampled places of K. Each of the 8 runs of places gives an estimate, and the
// fourth smallest is used, because operands that decay along K have their mass in one run. The sum over the samples
// themselves is a lower bound. Called by WARPS warps of one block, which synchronise at named barrier BARRIER. `memory`: 1 KB
// of shared memory, aligned to 16 bytes.
template <int WARPS, int BARRIER>
__device__ __forceinline__ void find_least_power(const Params& s, int thread, float* memory) {
    const auto synchronize = [] { sync_at<BARRIER, 32 * WARPS>(); };
    const int lane = thread % 32, warp = thread / 32;
    float4 sum[2];  // over blocks of mm32_scale, of places 4 * lane to 4 * lane + 3
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const int blocks = scale_blocks(s, side);
        const float4* const from = reinterpret_cast<const float4*>(sampled_power(s, side, 0)) + lane;
        sum[side] = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
        for (int block = warp; block < blocks; block += WARPS) {
            const float4 x = __ldcg(from + block * (SAMPLES / 4));
            sum[side].x += x.x, sum[side].y += x.y, sum[side].z += x.z, sum[side].w += x.w;
        }
    }
    float4* const shared = reinterpret_cast<float4*>(memory) + lane;
#pragma unroll 1
    for (int other = 1; other < WARPS; other++) {  // one after another: the sums are the same in every run
        if (warp == other) shared[0] = sum[0], shared[32] = sum[1];
        synchronize();
        if (warp == 0)
#pragma unroll
            for (int side = 0; side < 2; side++) {
                const float4 x = shared[32 * side];
                sum[side].x += x.x, sum[side].y += x.y, sum[side].z += x.z, sum[side].w += x.w;
            }
        synchronize();
    }
    if (warp != 0) return;
    float run = sum[0].x * sum[1].x + sum[0].y * sum[1].y + (sum[0].z * sum[1].z + sum[0].w * sum[1].w);
    static_assert(RUN == 16);  // in 4 lanes
    run += __shfl_xor_sync(~0u, run, 1), run += __shfl_xor_sync(~0u, run, 2);
    float all = 0.f;
    int below = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float x = __shfl_sync(~0u, run, 4 * i);
        below += x < run || (x == run && i < lane / 4);
        all += x;
    }
    const unsigned fourth = __ballot_sync(~0u, below == 3);
    if (s.p.k > SAMPLES && fourth) all = fmaxf(all, __shfl_sync(~0u, run, __ffs(fourth) - 1) * ((float)s.p.k / RUN));
    const float least = CANCELS * CANCELS * all * ((float)s.p.batches / ((float)s.matrices[0] * (float)s.matrices[1]));
    if (lane == 0)
        s.decision->least_power = least > 0x1p-100f && least < 0x1p120f ? least : 0.f;  // elsewhere squares leave fp32's range
}

// Whether C cancels: for the launch after the multiply, if the tier is still FIRST_TIER. Called by whole warps, which all get
// the same answer, because they add in the same order.
__device__ __forceinline__ bool cancels(const Decision& decision) {
    const float least = decision.least_power;
    if (!(least > 0.f)) return false;
    static_assert(MOST_BLOCKS == 256);
    const float4* const from = reinterpret_cast<const float4*>(decision.power) + threadIdx.x % 32;
    const float4 x = from[0], y = from[32];
    float sum = (x.x + x.y + (x.z + x.w)) + (y.x + y.y + (y.z + y.w));
#pragma unroll 1  // fetching the code of an unrolled loop takes longer
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    return sum < least;
}
