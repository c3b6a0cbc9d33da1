// What the multiply kernels for split panels (tensorcore.cu, mma.cu) have in common: which tile of C and which part of K a block
// works on, and the last step: the scale undone, the epilogue, the store.
//   MM32_TILE_N     64 or 128
//   MM32_SPLIT      1: K is split among blocks, which write sums to Split::partial for mm32_reduce
//   MM32_C_VECTOR   1: C is contiguous along N and aligned: 16-byte stores
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
    if (!MM32_SPLIT) return split * blocks;
    const unsigned chunks = (blocks + CHUNK - 1) / CHUNK;  // 2^21 at most, and 128 splits
    return min((int)(chunks * split / splits * CHUNK), blocks);
}

// 2^-e in two factors, so that any scale that a row and a column can have together is undone with one rounding: neither the
// product of two first factors nor that of two second ones leaves the range of fp32.
__device__ __forceinline__ float2 undoing(int e) {
    const int half = e >> 1;
    return make_float2(__uint_as_float((unsigned)(127 - half) << 23), __uint_as_float((unsigned)(127 - e + half) << 23));
}

// What the last step needs to know of a tile's columns, in shared memory, and of one of them on the way there.
struct Column {
    int exponent;
    float bias;
};
struct Columns {
    float2 undo[TILE_N];
    float bias[TILE_N];

    __device__ __forceinline__ void set(int i, const Column& column) { undo[i] = undoing(column.exponent), bias[i] = column.bias; }
};

__device__ __forceinline__ Column column_at(const Split& s, const Tile& tile, int i) {
    const int n = tile.n0 + i;
    if (n >= s.p.n) return {0, 0.f};
    return {s.stats[1][(s.matrices[1] == 1 ? 0 : tile.matrix) * s.p.n + n].exponent, bias_at(s.p, n)};
}

__device__ __forceinline__ int exponent_at(const Split& s, const Tile& tile, int m) {
    return m < s.p.m ? s.stats[0][(s.matrices[0] == 1 ? 0 : tile.matrix) * s.p.m + m].exponent : 0;
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

// The first `width` of four neighbouring columns, or all of them.
__device__ __forceinline__ void store_columns(float* c, const float4& v, int width) {
    if (width >= 4) {
        // In PTX: the compiler makes four stores of it, to share them with the branch below.
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(c), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
    } else {
        if (width > 0) c[0] = v.x;
        if (width > 1) c[1] = v.y;
        if (width > 2) c[2] = v.z;
    }
}

// Floats of shared memory in which a warp turns 8 rows x 32 columns; 40: no bank conflicts. Twice as much, and no block of mm32_pack
// would fit beside one of the multiply.
constexpr int STAGING = 8 * 40;

// The part of C that a warp holds of 16 rows from m on x COUNT * 2 columns, as wgmma and mma.sync leave it: a thread has rows
// lane / 4 and 8 further on (`rows` undoes their scales) and, of the tile's columns, column + 8 j + 2 (lane % 4) and the next.
// It leaves as whole 128-byte lines: stores of 8 bytes to 8 rows each took twice as long.
template <int COUNT>
__device__ __forceinline__ void store(const Problem& p, const Tile& tile, const Target& target, int m, int column,
                                      const float2 (&rows)[2], const Columns& columns, const float (&sum)[COUNT], float* staging) {
    const int lane = threadIdx.x % 32, quad = lane % 4 * 2;
#pragma unroll
    for (int part = 0; part < COUNT / 16; part++) {
        const int first = column + 32 * part, width = (int)p.n - tile.n0 - first;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int height = (int)min(p.m - m - 8 * h, 8LL);
            __syncwarp();
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float4 f = *reinterpret_cast<const float4*>(&columns.undo[first + 8 * j + quad]);
                const float2 bias = *reinterpret_cast<const float2*>(&columns.bias[first + 8 * j + quad]);
                const float* const x = sum + 16 * part + 4 * j + 2 * h;
                float c0 = x[0] * (rows[h].x * f.x) * (rows[h].y * f.y), c1 = x[1] * (rows[h].x * f.z) * (rows[h].y * f.w);
                if (!MM32_SPLIT) c0 = epilogue(c0, bias.x), c1 = epilogue(c1, bias.y);
                *reinterpret_cast<float2*>(staging + lane / 4 * 40 + 8 * j + quad) = make_float2(c0, c1);
            }
            __syncwarp();
            float* const to = target.matrix + (m + 8 * h) * target.row + (tile.n0 + first) * target.col;
            if (MM32_C_VECTOR) {
                const int n = lane % 8 * 4;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int row = 4 * i + lane / 8;
                    if (row >= height) continue;
                    const float4 v = *reinterpret_cast<const float4*>(staging + row * 40 + n);
                    store_columns(to + row * target.row + n, v, width - n);
                }
            } else if (lane < width) {
#pragma unroll
                for (int row = 0; row < 8; row++)
                    if (row < height) to[row * target.row + lane * target.col] = staging[row * 40 + lane];
            }
        }
    }
}
