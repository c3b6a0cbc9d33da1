// What the multiply kernels for split panels (tensorcore.cu, mma.cu) have in common: which tile of C and which part of K a block
// works on, and the last step: the scale undone, the epilogue, the store.
//   MM32_TILE_N     64 or 128; 256 with one product
//   MM32_SPLIT      1: K is split among blocks, which write sums to Split::partial for mm32_reduce
//   MM32_C_VECTOR   1: C is contiguous along N and aligned: 16-byte stores
#pragma once
#include "common/epilogue.cuh"
#include "emulated/panels.cuh"

constexpr int TILE_M = 128, TILE_N = MM32_TILE_N;
constexpr int GROUP = 8;  // tile rows walked together, so that their panels stay in L2; also what mm32_pack packs first

struct Tile {
    int split, matrix, m0, n0;
};

// The tiles in their order: by groups of GROUP tile rows, in a group column by column, matrix by matrix, split by split. A block
// goes from each of its own to the next, which are a grid apart. A plan sends no problem here whose M, N, number of K-blocks or of
// tiles passes 2^31 - 1.
struct Walk {
    int matrix, first, in_group;  // counted over splits and batch; first tile row of the group; place in it

    static __device__ __forceinline__ int rows(const Problem& p) { return ((int)p.m + TILE_M - 1) / TILE_M; }
    static __device__ __forceinline__ int columns(const Problem& p) { return ((int)p.n + TILE_N - 1) / TILE_N; }

    __device__ __forceinline__ Walk(const Problem& p, int t) {
        const int all = rows(p) * columns(p), group = GROUP * columns(p);
        matrix = t / all;
        first = t % all / group * GROUP;
        in_group = t % all % group;
    }

    __device__ __forceinline__ bool inside(const Split& s) const { return matrix < (int)(s.splits * s.p.batches); }

    // Without a division, unless groups are small.
    __device__ __forceinline__ void advance(const Problem& p, int by) {
        const int n = columns(p), m = rows(p);
        in_group += by;
        if (GROUP * n < by) {
            *this = Walk(p, matrix * m * n + first * n + in_group);
            return;
        }
        while (in_group >= min(m - first, GROUP) * n) {
            in_group -= min(m - first, GROUP) * n;
            first += GROUP;
            if (first >= m) first = 0, matrix++;
        }
    }

    __device__ __forceinline__ Tile tile(const Problem& p) const {
        const int height = min(rows(p) - first, GROUP);
        const int column = height == GROUP ? in_group / GROUP : in_group / height, row = in_group - column * height;
        const bool one = p.batches == 1;
        const int split = !MM32_SPLIT ? 0 : one ? matrix : matrix / (int)p.batches;
        return {split, one ? 0 : matrix - split * (int)p.batches, (first + row) * TILE_M, column * TILE_N};
    }
};

// Where a split's K-blocks begin: as even as they go. There are 2^24 K-blocks at most, and 255 splits.
__device__ __forceinline__ int split_begin(int blocks, int split, int splits) {
    return MM32_SPLIT ? (int)((unsigned)blocks * (unsigned)split / (unsigned)splits) : split * blocks;
}

// 2^-e in two factors, so that any scale that a row and a column can have together is undone with one rounding: neither the
// product of two first factors nor that of two second ones leaves the range of fp32.
__device__ __forceinline__ float2 undoing(int e) {
    const int half = e >> 1;
    return make_float2(__uint_as_float((unsigned)(127 - half) << 23), __uint_as_float((unsigned)(127 - e + half) << 23));
}

// Two scales that are plain are undone together by one factor, and with the same rounding.
__device__ __forceinline__ bool is_plain(int e) { return e >= -60 && e <= 60; }
__device__ __forceinline__ float plain_undoing(int e) { return __uint_as_float((unsigned)(127 - e) << 23); }

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

// And both factors in one, where the exponent is_plain.
struct PlainColumns : Columns {
    float plain[TILE_N];

    __device__ __forceinline__ void set(int i, const Column& column) {
        Columns::set(i, column);
        plain[i] = plain_undoing(column.exponent);
    }
};

// As `store` with COUNT = TILE_N / 2, of whole rows whose scales are plain (undone by `rows`), by 16-byte stores. `to` is where the
// first of the warp's 16 rows begins. No more than it must: this is half of what a tile of short K costs.
__device__ __forceinline__ void store_plain(float* to, long long stride, const float (&rows)[2], const PlainColumns& columns,
                                            const float (&sum)[TILE_N / 2], float* staging) {
    const int lane = threadIdx.x % 32, quad = lane % 4 * 2;
    float* const in = staging + lane / 4 * 40 + quad;
    const float* const out = staging + lane / 8 * 40 + lane % 8 * 4;
    to += lane / 8 * stride + lane % 8 * 4;
#pragma unroll
    for (int first = 0; first < TILE_N; first += 32) {
        float* row = to + first;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            __syncwarp();  // what was there has left
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 f = *reinterpret_cast<const float2*>(&columns.plain[first + 8 * j + quad]);
                const float2 bias = *reinterpret_cast<const float2*>(&columns.bias[first + 8 * j + quad]);
                const float* const x = sum + (first / 8 + j) * 4 + 2 * h;
                float c0 = x[0] * (rows[h] * f.x), c1 = x[1] * (rows[h] * f.y);
                if (!MM32_SPLIT) c0 = epilogue(c0, bias.x), c1 = epilogue(c1, bias.y);
                *reinterpret_cast<float2*>(in + 8 * j) = make_float2(c0, c1);
            }
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 2; i++) {
                store_columns(row, *reinterpret_cast<const float4*>(out + i * 4 * 40), 4);
                row += 4 * stride;
            }
        }
    }
}
