// What the kernels that multiply panels (tensorcore.cu, mma.cu) have in common: which tile of C and which part of K a block works
// on, and the last step, which undoes the scales, applies the epilogue and stores.
//   MM32_TILE_N     64 or 128; also 256 with one product
//   MM32_SPLIT_K    1: blocks share K and write their sums to Params::partial_sums for mm32_reduce
//   MM32_C_VECTOR   1: C is contiguous along N and aligned: 16-byte stores
#pragma once
#include "common/epilogue.cuh"
#include "common/tile_order.cuh"
#include "emulated/panels.cuh"

constexpr int TILE_M = 128, TILE_N = MM32_TILE_N;
using Scheduler = TileScheduler<TILE_M, TILE_N, MM32_SPLIT_K>;

// The first K-block of a part of K. Parts differ by one K-block at most. 32 bits hold the product of 2^24 K-blocks and 255 parts.
__device__ __forceinline__ int part_begin(int blocks, int part, int parts) {
    return MM32_SPLIT_K ? (int)((unsigned)blocks * (unsigned)part / (unsigned)parts) : part * blocks;
}

// 2^-e in two factors. A row and a column together may need a scale beyond fp32's range; but neither the product of their first
// factors nor that of their second factors leaves it, so that the sum is rounded only once.
__device__ __forceinline__ float2 two_factors(int e) {
    const int half = e >> 1;
    return make_float2(__uint_as_float((unsigned)(127 - half) << 23), __uint_as_float((unsigned)(127 - e + half) << 23));
}

// If a row and a column both have a moderate exponent, one factor 2^-e each is enough, and gives the same bits.
__device__ __forceinline__ bool is_moderate(int e) { return e >= -60 && e <= 60; }
__device__ __forceinline__ float one_factor(int e) { return __uint_as_float((unsigned)(127 - e) << 23); }

// What the last step needs of one column of a tile; and of all its columns, in shared memory.
struct Column {
    Scale scale;
    float bias;
};
struct Columns {
    float2 factors[TILE_N];
    float bias[TILE_N];

    __device__ __forceinline__ void set(int i, const Column& column, bool scaled_lo) {
        factors[i] = two_factors(column.scale.exponent(scaled_lo)), bias[i] = column.bias;
    }
};

// What is loaded here is used later, and nothing waits for it here: a tile that waited took 17 % longer (32768 x 64 x 32768).
__device__ __forceinline__ Column column_at(const Params& s, const TileOfPart& tile, int i) {
    const int n = tile.n0 + i;
    if (n >= s.p.n) return {{0}, 0.f};
    return {{s.stats[1][packed_matrix(s, 1, tile.matrix) * s.p.n + n].scale}, bias_at(s.p, n)};
}

__device__ __forceinline__ Scale scale_at(const Params& s, const TileOfPart& tile, int m) {
    return {m < s.p.m ? s.stats[0][packed_matrix(s, 0, tile.matrix) * s.p.m + m].scale : 0};
}

// Where the sums of a tile's matrix go: to C, or with split-K to the partial sums.
struct Target {
    float* matrix;
    long long row, col;
};

__device__ __forceinline__ Target target_of(const Params& s, const TileOfPart& tile) {
    const Problem& p = s.p;
    if (MM32_SPLIT_K) return {s.partial_sums + (tile.part * p.batches + tile.matrix) * p.m * p.n, p.n, 1};
    return {pointers_of(p, tile.matrix).c, p.c.row, p.c.col};
}

// Stores four neighbouring columns, or the first `width` of them.
__device__ __forceinline__ void store_columns(float* c, const float4& v, int width) {
    if (width >= 4) {
        // In PTX, because the compiler makes four stores of it, to share them with the branch below. With four stores the
        // multiply of 32768 x 64 x 32768 took 6.0 ms instead of 2.1.
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(c), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
    } else {
        if (width > 0) c[0] = v.x;
        if (width > 1) c[1] = v.y;
        if (width > 2) c[2] = v.z;
    }
}

// The floats of shared memory in which a warp rearranges 8 rows x 32 columns. Rows are 40 floats apart, which avoids bank
// conflicts. With twice as much, a block of mm32_pack would not fit beside one of the multiply.
constexpr int STAGING_PITCH = 40, STAGING = 8 * STAGING_PITCH;

// Where a thread keeps its sum of squares of C (cancel.cuh) while it needs its registers: in what the pitch leaves free.
__device__ __forceinline__ float& power_of_thread(float* staging) {
    return staging[threadIdx.x % 32 / 4 * STAGING_PITCH + 32 + threadIdx.x % 4];
}

// Stores what a warp has of a tile: 16 rows from m on and COUNT * 2 columns from the tile's `column` on, in the registers in
// which wgmma and mma.sync leave them. A thread has rows lane / 4 and lane / 4 + 8, whose scales `rows` undoes, and of each 8
// columns numbers 2 * (lane % 4) and the next. Sums leave through shared memory as whole 128-byte lines: stores of 8 bytes to 8
// rows each took twice as long. WATCH: it adds up the squares of the watched part of C (is_watched).
template <bool WATCH, int COUNT>
__device__ __forceinline__ void store(const Problem& p, const TileOfPart& tile, const Target& target, int m, int column,
                                      const float2 (&rows)[2], const Columns& columns, const float (&sum)[COUNT],
                                      float* staging) {
    const int lane = threadIdx.x % 32, pair = lane % 4 * 2;
    float power = 0.f;
#pragma unroll
    for (int part = 0; part < COUNT / 16; part++) {
        const int first = column + 32 * part, width = (int)p.n - tile.n0 - first;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int height = (int)min(p.m - m - 8 * h, 8LL);
            if (!MM32_C_VECTOR && (width <= 0 || height <= 0)) continue;
            __syncwarp();
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float4 f = *reinterpret_cast<const float4*>(&columns.factors[first + 8 * j + pair]);
                const float2 bias = *reinterpret_cast<const float2*>(&columns.bias[first + 8 * j + pair]);
                const float* const x = sum + 16 * part + 4 * j + 2 * h;
                float c0 = x[0] * (rows[h].x * f.x) * (rows[h].y * f.y), c1 = x[1] * (rows[h].x * f.z) * (rows[h].y * f.w);
                if (WATCH && h == 0 && j % 2 == 0 && lane / 4 < height) {
                    if (8 * j + pair < width) power = fmaf(c0, c0, power);
                    if (8 * j + pair + 1 < width) power = fmaf(c1, c1, power);
                }
                if (!MM32_SPLIT_K) c0 = epilogue(c0, bias.x), c1 = epilogue(c1, bias.y);
                *reinterpret_cast<float2*>(staging + lane / 4 * STAGING_PITCH + 8 * j + pair) = make_float2(c0, c1);
            }
            __syncwarp();
            float* const to = target.matrix + (m + 8 * h) * target.row + (tile.n0 + first) * target.col;
            if (MM32_C_VECTOR) {
                const int n = lane % 8 * 4;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int row = 4 * i + lane / 8;
                    if (row >= height) continue;
                    const float4 v = *reinterpret_cast<const float4*>(staging + row * STAGING_PITCH + n);
                    store_columns(to + row * target.row + n, v, width - n);
                }
            } else if (lane < width) {
#pragma unroll
                for (int row = 0; row < 8; row++)
                    if (row < height) to[row * target.row + lane * target.col] = staging[row * STAGING_PITCH + lane];
            }
        }
    }
    if (WATCH) power_of_thread(staging) += power;
}

// The same with the single factor too, for columns whose exponent is moderate.
struct ModerateColumns : Columns {
    float factor[TILE_N];

    __device__ __forceinline__ void set(int i, const Column& column, bool scaled_lo) {
        Columns::set(i, column, scaled_lo);
        factor[i] = one_factor(column.scale.exponent(scaled_lo));
    }
};

// As `store` with COUNT = TILE_N / 2, for 16 rows and TILE_N columns that all exist, are contiguous and have moderate exponents.
// `rows` are the single factors of the thread's rows, and `to` is where the first of the warp's 16 rows begins. It has few
// instructions, because with short K this is half of a tile's time. Rows that are not aligned leave 128 bytes at a time too, by
// stores of 4 bytes.
template <bool WATCH>
__device__ __forceinline__ void store_moderate(float* to, long long stride, const float (&rows)[2],
                                               const ModerateColumns& columns, const float (&sum)[TILE_N / 2],
                                               float* staging) {
    const int lane = threadIdx.x % 32, pair = lane % 4 * 2;
    float* const in = staging + lane / 4 * STAGING_PITCH + pair;
    const float* const out = staging + lane / 8 * STAGING_PITCH + lane % 8 * 4;
    float power = 0.f;
    to += MM32_C_VECTOR ? lane / 8 * stride + lane % 8 * 4 : lane;
    // Nothing waits for loads of shared memory: factors are loaded 32 columns ahead, and 8 rows are scaled while the 8 before
    // them are being read back. Each wait took as long as 30 instructions (16384 x 32 x 8192: 29 % of the time).
    constexpr int PIECES = TILE_N / 16;  // of 8 rows and 32 columns
    float2 factor[2][4], bias[2][4], scaled[2][4];
    const auto load = [&](int first) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            factor[first / 32 % 2][j] = *reinterpret_cast<const float2*>(&columns.factor[first + 8 * j + pair]);
            bias[first / 32 % 2][j] = *reinterpret_cast<const float2*>(&columns.bias[first + 8 * j + pair]);
        }
    };
    const auto scale = [&](int piece) {
        const int first = piece / 2 * 32, h = piece % 2;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 f = factor[first / 32 % 2][j], b = bias[first / 32 % 2][j];
            const float* const x = sum + (first / 8 + j) * 4 + 2 * h;
            float c0 = x[0] * (rows[h] * f.x), c1 = x[1] * (rows[h] * f.y);
            if (WATCH && h == 0 && j % 2 == 0) power = fmaf(c0, c0, fmaf(c1, c1, power));
            if (!MM32_SPLIT_K) c0 = epilogue(c0, b.x), c1 = epilogue(c1, b.y);
            scaled[piece % 2][j] = make_float2(c0, c1);
        }
    };
    load(0);
    scale(0);
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        float* row = to + piece / 2 * 32 + piece % 2 * 8 * stride;
        if (piece > 0) __syncwarp();  // the rows before these have been read
#pragma unroll
        for (int j = 0; j < 4; j++) *reinterpret_cast<float2*>(in + 8 * j) = scaled[piece % 2][j];
        if (piece % 2 == 0 && piece + 2 < PIECES) load(piece / 2 * 32 + 32);
        __syncwarp();
#if MM32_C_VECTOR
        float4 v[2];
#pragma unroll
        for (int i = 0; i < 2; i++) v[i] = *reinterpret_cast<const float4*>(out + i * 4 * STAGING_PITCH);
        if (piece + 1 < PIECES) scale(piece + 1);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            store_columns(row, v[i], 4);
            row += 4 * stride;
        }
#else
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = staging[i * STAGING_PITCH + lane];
        if (piece + 1 < PIECES) scale(piece + 1);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            *row = v[i];
            row += stride;
        }
#endif
    }
    if (WATCH) power_of_thread(staging) += power;
}
