// Cancellation: whether the sums of C cancel term by term, so that another tier must compute it. docs/numerics.md has the argument.
//
// If the terms of the sums have random signs, the sum of the squares of C is about that of the squares of all terms,
// P = sum over k of |A's column k|^2 |B's row k|^2; if they have one sign, it is up to K times that. Where it is far below P, fp32's
// partial sums stay small and so do its errors, while the errors of fp16x3 are relative to the terms. Of 65 families of data the
// root of the ratio was below 0.15 or above 0.8.
// - mm32_scale adds up the squares of each operand's elements at the sampled places of K, of the rows that are watched.
// - mm32_tensorcore makes of them the least sum of squares that is not cancellation, and adds up the squares of C as it stores it;
//   with split-K, of each part of K, which cancels too where term after term does.
// - The launch after it compares: mm32_pack of the lower tier, or without one mm32_fallback.
#pragma once
#include "emulated/panels.cuh"

constexpr float CANCELS = 0.5f;  // of the root of P

// Estimates P, of what is watched of C, from the sampled places of K. Each of the 8 runs of places gives an estimate; of them the fourth smallest counts, because
// the mass of operands that decay along K is in one run. What the samples hold by themselves is a bound from below. By one block's 256
// consumers, before their first tile. `memory`: 2200 floats of shared memory.
__device__ __forceinline__ void find_least_power(const Params& s, float* memory) {
    constexpr int PARTS = 8, ALL = 2 * PARTS * SAMPLES;
    const auto synchronize = [] { asm volatile("bar.sync 8, 256;" ::: "memory"); };
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
#pragma unroll 1
    for (int side = 0; side < 2; side++) {
        const int blocks = scale_blocks(s, side);
        const float4* const from = reinterpret_cast<const float4*>(sampled_power(s, side, 0)) + lane;
        float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 8
        for (int block = part; block < blocks; block += PARTS) {
            const float4 x = __ldcg(from + block * (SAMPLES / 4));
            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
        reinterpret_cast<float4*>(memory)[(side * PARTS + part) * (SAMPLES / 4) + lane] = sum;
    }
    synchronize();
    if (threadIdx.x < SAMPLES) {
        float of[2] = {0.f, 0.f};
#pragma unroll
        for (int i = 0; i < 2 * PARTS; i++) of[i / PARTS] += memory[i * SAMPLES + threadIdx.x];
        memory[ALL + threadIdx.x] = of[0] * of[1];
    }
    synchronize();
    if (threadIdx.x < 8) {
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < RUN; i++) sum += memory[ALL + threadIdx.x * RUN + i];
        memory[threadIdx.x] = sum;
    }
    synchronize();
    if (threadIdx.x == 0) {
        float all = 0.f, fourth = 0.f;
#pragma unroll 1
        for (int i = 0; i < 8; i++) {
            const float mine = memory[i];
            int below = 0;
            for (int j = 0; j < 8; j++) below += memory[j] < mine || (memory[j] == mine && j < i);
            if (below == 3) fourth = mine;
            all += mine;
        }
        if (s.p.k > SAMPLES) all = fmaxf(all, fourth * ((float)s.p.k / RUN));
        const float least = CANCELS * CANCELS * all * ((float)s.p.batches / ((float)s.matrices[0] * (float)s.matrices[1]));
        s.decision->least_power = least > 0x1p-100f && least < 0x1p120f ? least : 0.f;  // elsewhere squares leave fp32's range
    }
    for (int i = 2 * gridDim.x + threadIdx.x; i < MOST_POWERS; i += 256) s.decision->power[i] = 0.f;
    synchronize();
}

// In the launch after the multiply, if the tier is still FIRST_TIER. For whole warps: all find the same, by the same order of sums.
__device__ __forceinline__ bool cancels(const Decision& decision) {
    const float least = decision.least_power;
    if (!(least > 0.f)) return false;
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < MOST_POWERS; i += 32) sum += decision.power[i + threadIdx.x % 32];  // all loads at once
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    return sum < least;
}
