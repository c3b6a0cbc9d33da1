// What the multiply kernels for split panels (tensorcore.cu, mma.cu) have in common: which tile of C and which part of K a block
// works on, and the last step: the scale undone, the epilogue, the store.
//   MM32_TILE_N     64 or 128
//   MM32_SPLIT      1: K is split among blocks, which write sums to Split::partial for mm32_reduce
//   MM32_C_VECTOR   1: C is contiguous along N, 8-byte aligned, its row stride even: 8-byte stores
#pragma once
#include "epilogue.cuh"
#include "split.cuh"

constexpr int TILE_M = 128, TILE_N = MM32_TILE_N;
constexpr int GROUP = 8;  // tile rows walked together, so that their panels stay in L2; also what mm32_pack packs first

struct Tile {
    int split, matrix, m0, n0;
};

// A plan sends no problem here whose M, N, number of K-blocks or of tiles passes 2^31 - 1.
__device__ __forceinline__ Tile tile_at(const Problem& p, int t) {
    const int rows = ((int)p.m + TILE_M - 1) / TILE_M, columns = ((int)p.n + TILE_N - 1) / TILE_N;
    const int in_matrix = t % (rows * columns), group = in_matrix / (GROUP * columns);
    const int height = min(rows - group * GROUP, GROUP), in_group = in_matrix % (GROUP * columns);
    const int matrix = t / (rows * columns);
    return {matrix / (int)p.batches, matrix % (int)p.batches, (group * GROUP + in_group % height) * TILE_M,
            in_group / height * TILE_N};
}

__device__ __forceinline__ int tiles_of(const Split& s) {
    return (int)(s.splits * s.p.batches * ceil_div(s.p.m, TILE_M) * ceil_div(s.p.n, TILE_N));
}

// The K-blocks of a split: whole chunks, as even as they go.
__device__ __forceinline__ int split_begin(int blocks, int split, int splits) {
    const int chunks = (blocks + CHUNK - 1) / CHUNK;
    return min((int)((long long)chunks * split / splits) * CHUNK, blocks);
}

// x * 2^e for any e that a sum's scale can need, rounded once.
__device__ __forceinline__ float scaled(float x, int e) {
    const int half = e / 2, rest = e - half;
    return x * __uint_as_float((unsigned)(half + 127) << 23) * __uint_as_float((unsigned)(rest + 127) << 23);
}

// What the last step needs to know of a tile's columns, in shared memory.
struct Columns {
    int exponent[TILE_N];
    float bias[TILE_N];
};

// Filled by `threads` threads, of which the caller is number `thread`.
__device__ __forceinline__ void load_columns(const Split& s, const Tile& tile, Columns& columns, int thread, int threads) {
    const Problem& p = s.p;
    const RowStats* const b_rows = s.stats[1] + (s.matrices[1] == 1 ? 0 : tile.matrix) * p.n;
    for (int i = thread; i < TILE_N; i += threads) {
        const int n = tile.n0 + i;
        columns.exponent[i] = n < p.n ? b_rows[n].exponent : 0;
        columns.bias[i] = n < p.n ? bias_at(p, n) : 0.f;
    }
}

// Where a tile's matrix of C lies, or of the partial sums.
struct Target {
    float* matrix;
    long long row, col;
};

__device__ __forceinline__ Target target_of(const Split& s, const Tile& tile) {
    const Problem& p = s.p;
    if (MM32_SPLIT) return {s.partial + (tile.split * p.batches + tile.matrix) * p.m * p.n, p.n, 1};
    return {locate(p, tile.matrix).c, p.c.row, p.c.col};
}

// The part of C that a thread holds of 16 rows x COUNT * 2 columns, as wgmma and mma.sync leave it: rows m and m + 8 (exponents e)
// and, of the tile's columns, column + 8 j + 2 (lane % 4) and the next.
template <int COUNT>
__device__ __forceinline__ void store(const Problem& p, const Tile& tile, const Target& target, int m, int column,
                                      const int (&e)[2], const Columns& columns, const float (&sum)[COUNT]) {
    const int first = column + threadIdx.x % 4 * 2;
    const int rows = (int)p.m - m, width = (int)p.n - tile.n0;
    float* const at = target.matrix + m * target.row + (tile.n0 + first) * target.col;
#pragma unroll
    for (int j = 0; j < COUNT / 4; j++) {
        const int2 f = *reinterpret_cast<const int2*>(&columns.exponent[8 * j + first]);
        const float2 bias = *reinterpret_cast<const float2*>(&columns.bias[8 * j + first]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float* const c = at + 8 * h * target.row + 8 * j * target.col;
            float c0 = scaled(sum[4 * j + 2 * h], -e[h] - f.x), c1 = scaled(sum[4 * j + 2 * h + 1], -e[h] - f.y);
            if (!MM32_SPLIT) c0 = epilogue(c0, bias.x), c1 = epilogue(c1, bias.y);
            if (8 * h >= rows) continue;
            if (MM32_C_VECTOR && 8 * j + first + 1 < width) {
                *reinterpret_cast<float2*>(c) = make_float2(c0, c1);
            } else {
                if (8 * j + first < width) c[0] = c0;
                if (8 * j + first + 1 < width) c[target.col] = c1;
            }
        }
    }
}
