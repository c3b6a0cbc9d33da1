// dot: one block computes one element of C. Its 256 threads share the dot product along K and add their sums in shared memory.
//
// Launch: min(batches * M * N, 2^31 - 1) blocks of 256 threads (grid-stride loop over the elements of C).
// 1 KB of shared memory; 48 registers (60 on sm_100).
// Bound by memory traffic: every block reads a whole row of A and a whole column of B, and only the caches reuse them. It pays
// where C has few elements and K is long.
#include "common/epilogue.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS) mm32_dot(const __grid_constant__ Problem p) {
    __shared__ float partial[THREADS];
    const long long elements = p.batches * p.m * p.n;
    for (long long i = blockIdx.x; i < elements; i += gridDim.x) {
        const long long in_matrix = i % (p.m * p.n);
        const Pointers at = pointers_of(p, i / (p.m * p.n));
        const long long m = in_matrix / p.n, n = in_matrix % p.n;
        const float* a = at.a + m * p.a.row;
        const float* b = at.b + n * p.b.col;
        float sum = 0.f;
        for (long long k = threadIdx.x; k < p.k; k += THREADS) sum = fmaf(a[k * p.a.col], b[k * p.b.row], sum);
        partial[threadIdx.x] = sum;
        __syncthreads();
#pragma unroll
        for (int width = THREADS / 2; width > 0; width /= 2) {  // a fixed order: the same bits in every run
            if (threadIdx.x < width) partial[threadIdx.x] += partial[threadIdx.x + width];
            __syncthreads();
        }
        if (threadIdx.x == 0) at.c[m * p.c.row + n * p.c.col] = epilogue(partial[0], bias_at(p, n));
        // No barrier is needed here: thread 0 reads partial[0] above, and no other thread writes it in the next round.
    }
}
