// The order in which blocks compute the tiles of C (a grouped or swizzled tile order). Matrix follows matrix. In a matrix,
// TILE_GROUP rows of tiles form a group, and group follows group. In a group, tile column follows tile column:
//
//     tile column   0   1   2 ...
//     tile row 0    0   8  16
//     tile row 1    1   9  17
//     ...
//     tile row 7    7  15  23
//
// The blocks that run at one time then share the rows of A of one group and a few columns of B, which stay in L2. Groups of 4, 8,
// 12 and 16 rows took 0.784, 0.645, 0.639 and 0.648 ms (emulated/tensorcore.cu, 2048 x 8192 x 4096, H200).
// With split-K, all tiles of the first part of K come first, then those of the next.
//
// There are two implementations of this one order. `tile_at` finds any tile from its number, with 64-bit counts of tiles.
// `TileScheduler` goes from each tile of a block to its next without a division, with 32-bit counts: five divisions a tile were a
// measurable share of a product of short K (32768 x 64 x 32768).
#pragma once
#include "common/problem.cuh"

constexpr int TILE_GROUP = 8;  // tile rows; mm32_pack packs the rows of the first group first

// A tile of C: the matrix of the batch, its first row and first column.
struct Tile {
    long long matrix, m0, n0;
};

// The same with 32 bits, and with the part of K.
struct TileOfPart {
    int part, matrix, m0, n0;
};

template <int TILE_M, int TILE_N>
__device__ __forceinline__ long long tiles_of(const Problem& p) {
    return p.batches * ceil_div(p.m, TILE_M) * ceil_div(p.n, TILE_N);
}

// Tile t of the batch. With SPLIT_K, `t` counts over parts of K too, and the tile's matrix is part * batches + matrix.
template <int TILE_M, int TILE_N, bool SPLIT_K>
__device__ __forceinline__ Tile tile_at(const Problem& p, long long t) {
    // 32 bits suffice for the tiles of one matrix: no memory holds a matrix with more.
    const unsigned tiles_m = (unsigned)ceil_div(p.m, TILE_M), tiles_n = (unsigned)ceil_div(p.n, TILE_N);
    const long long matrix = p.batches == 1 && !SPLIT_K ? 0 : quotient(t, (long long)tiles_m * tiles_n);
    const unsigned in_matrix = (unsigned)(t - matrix * tiles_m * tiles_n), group = in_matrix / tiles_n / TILE_GROUP;
    const unsigned rows = min(tiles_m - group * TILE_GROUP, TILE_GROUP), in_group = in_matrix - group * TILE_GROUP * tiles_n;
    return {matrix, (long long)(group * TILE_GROUP + in_group % rows) * TILE_M, (long long)(in_group / rows) * TILE_N};
}

// The tiles of one block, one after another, a grid size apart (a grid-stride loop). A plan launches no problem here with more
// than 2^31 - 1 rows, columns or tiles.
template <int TILE_M, int TILE_N, bool SPLIT_K>
struct TileScheduler {
    int matrix, first, in_group;  // matrix, counted over parts and batch; first tile row of the group; index in the group

    static __device__ __forceinline__ int rows(const Problem& p) { return ((int)p.m + TILE_M - 1) / TILE_M; }
    static __device__ __forceinline__ int columns(const Problem& p) { return ((int)p.n + TILE_N - 1) / TILE_N; }

    __device__ __forceinline__ TileScheduler(const Problem& p, int t) {
        const int all = rows(p) * columns(p), group = TILE_GROUP * columns(p);
        matrix = t / all;
        first = t % all / group * TILE_GROUP;
        in_group = t % all % group;
    }

    // Whether there is a tile left, with K shared among `parts` blocks.
    __device__ __forceinline__ bool has_tile(const Problem& p, long long parts) const {
        return matrix < (int)(parts * p.batches);
    }

    // Goes `by` tiles on. It divides only if groups are small.
    __device__ __forceinline__ void advance(const Problem& p, int by) {
        const int n = columns(p), m = rows(p);
        in_group += by;
        if (TILE_GROUP * n < by) {
            *this = TileScheduler(p, matrix * m * n + first * n + in_group);
            return;
        }
        while (in_group >= min(m - first, TILE_GROUP) * n) {
            in_group -= min(m - first, TILE_GROUP) * n;
            first += TILE_GROUP;
            if (first >= m) first = 0, matrix++;
        }
    }

    __device__ __forceinline__ TileOfPart tile(const Problem& p) const {
        const int height = min(rows(p) - first, TILE_GROUP);
        const int column = height == TILE_GROUP ? in_group / TILE_GROUP : in_group / height, row = in_group - column * height;
        const bool one = p.batches == 1;
        const int part = !SPLIT_K ? 0 : one ? matrix : matrix / (int)p.batches;
        return {part, one ? 0 : matrix - part * (int)p.batches, (first + row) * TILE_M, column * TILE_N};
    }
};
