// tiled: a block computes a 32 x 32 tile of C. Tiles of A and B of the same size pass through shared memory, so that every loaded
// element is used 32 times. Each of the 1024 threads computes one element.
//
// Launch: min(batches * ceil(M/32) * ceil(N/32), 2^31 - 1) blocks of 1024 threads (grid-stride loop over tiles).
// 8.25 KB of shared memory; 32 to 44 registers.
// Bound by loads from shared memory: two for each FMA.
// A tile is loaded along the axis that is contiguous in global memory, so that loads coalesce, and is stored as [k][row]. Rows of
// 33 floats keep the transposed store free of bank conflicts.
//   MM32_A_ALONG_K   1: A is contiguous along K, 0: along M or along no axis
//   MM32_B_ALONG_K   1: B is contiguous along K, 0: along N or along no axis
#include "common/epilogue.cuh"

constexpr int TILE = 32;

// Element (r, k) of an operand, or zero outside of it.
__device__ __forceinline__ float load(const float* x, long long r, long long k, long long rows, long long depth,
                                      long long row_stride, long long k_stride) {
    return r < rows && k < depth ? x[r * row_stride + k * k_stride] : 0.f;
}

extern "C" __global__ void __launch_bounds__(TILE * TILE) mm32_tiled(const __grid_constant__ Problem p) {
    __shared__ float a_tile[TILE][TILE + 1], b_tile[TILE][TILE + 1];  // [k][m], [k][n]
    const int fast = threadIdx.x % TILE, slow = threadIdx.x / TILE;
    const int a_m = MM32_A_ALONG_K ? slow : fast, a_k = MM32_A_ALONG_K ? fast : slow;
    const int b_n = MM32_B_ALONG_K ? slow : fast, b_k = MM32_B_ALONG_K ? fast : slow;
    const long long tiles_m = ceil_div(p.m, TILE), tiles_n = ceil_div(p.n, TILE);

    for (long long t = blockIdx.x; t < p.batches * tiles_m * tiles_n; t += gridDim.x) {
        const Pointers at = pointers_of(p, t / (tiles_m * tiles_n));
        const long long m0 = t / tiles_n % tiles_m * TILE, n0 = t % tiles_n * TILE;
        float sum = 0.f;
        for (long long k0 = 0; k0 < p.k; k0 += TILE) {
            a_tile[a_k][a_m] = load(at.a, m0 + a_m, k0 + a_k, p.m, p.k, p.a.row, p.a.col);
            b_tile[b_k][b_n] = load(at.b, n0 + b_n, k0 + b_k, p.n, p.k, p.b.col, p.b.row);
            __syncthreads();
#pragma unroll
            for (int k = 0; k < TILE; k++) sum = fmaf(a_tile[k][slow], b_tile[k][fast], sum);
            __syncthreads();
        }
        const long long m = m0 + slow, n = n0 + fast;
        if (m < p.m && n < p.n) at.c[m * p.c.row + n * p.c.col] = epilogue(sum, bias_at(p, n));
    }
}
