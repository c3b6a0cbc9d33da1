// mma: C from packed panels (emulated/panels.cuh) by mma.sync, for every card from sm_80 on: what tensorcore.cu does with wgmma.
//
// A block computes 128 x TILE_N tiles, and each of its 8 warps WARP_M x 32 of a tile. Panels come through a ring of STAGES by
// cp.async, one step of K at a time: 32 of K of hi and of lo or, with PRODUCTS = 1, 64 of K of hi. Either is 128 bytes a row, and
// piece j of row r lies at place j ^ (r % 8) as in a panel, so that ldmatrix reads eight rows from 32 different banks.
// Sums are promoted (added to a second set of fp32 registers) every 32 of K, twice as often as in tensorcore.cu: three stages of
// that depth fit the 99 KB that a block of sm_86, sm_89 and sm_120 has; hi's fragments stay in registers for their second use;
// and the tensor cores of Ampere, which keep fewer bits than Hopper's and truncate twice as often, stay within the same error
// bound (docs/numerics.md). With PRODUCTS = 1 there is no promotion.
//
// Launch: any number of blocks of 256 threads (grid-stride loop over tiles). Dynamic shared memory: STAGES * STAGE bytes.
// Registers: two sets of WARP_M sums a thread, and fragments. 240 with TILE_N = 128, for one block a multiprocessor; 128 with
// TILE_N = 64, for two if shared memory has room.
// Bound by mma.sync: for 32 of K, a warp with TILE_N = 128 issues 96 of them and 24 ldmatrix.
//   MM32_TILE_N, MM32_SPLIT_K, MM32_C_VECTOR   see emulated/tiles.cuh
//   MM32_STAGES, MM32_PRODUCTS (3 or 1)
#include "emulated/tiles.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma_sync.cuh"

constexpr int THREADS = 256, STAGES = MM32_STAGES;
constexpr int WARP_N = 32, WARPS_N = TILE_N / WARP_N, WARP_M = TILE_M * WARPS_N / (THREADS / 32);
constexpr int A_FRAGMENTS = WARP_M / 16, B_FRAGMENTS = WARP_N / 8;
constexpr int STEPS = PLANES;  // of a K-block
constexpr int A_BYTES = TILE_M * PLANE_ROW, STAGE = A_BYTES + TILE_N * PLANE_ROW;

// Copies one operand's tile step by step. A thread copies piece threadIdx.x % 8 of rows threadIdx.x / 8, + 32, and so on. Of the
// two steps of a K-block (PLANES = 2), the first has pieces 0 to 3 of both planes and the second pieces 4 to 7.
template <int ROWS>
struct Loader {
    const char* from;  // the thread's piece in its first row, for the next step
    unsigned plane;    // bytes of a plane, 2^31 at most
    int rows;          // how many rows of the tile the panels have

    __device__ __forceinline__ Loader(const char* panels, long long block, int row0, long long all_rows)
        : plane((unsigned)padded_rows(all_rows) * PLANE_ROW), rows((int)padded_rows(all_rows) - row0) {
        const int row = threadIdx.x / 8, piece = threadIdx.x % 8;
        const int of_plane = piece / (8 / STEPS), in_plane = piece % (8 / STEPS);
        from = panels + (block * PLANES + of_plane) * plane + (long long)(row0 + row) * PLANE_ROW + (in_plane ^ (row % 8)) * 16;
    }

    // Copies the next step, which is step `number` of its K-block, to `to`. Rows that the panels do not have become zeros.
    __device__ __forceinline__ void load(unsigned to, int number) {
        const int row = threadIdx.x / 8, piece = threadIdx.x % 8;
        const unsigned at = to + row * PLANE_ROW + (piece ^ (row % 8)) * 16;
#pragma unroll
        for (int i = 0; i < ROWS; i += THREADS / 8)
            copy_async<16>(at + i * PLANE_ROW, reinterpret_cast<const float*>(from + i * PLANE_ROW), row + i < rows);
        const int other_half = row / 4 % 2 ? -64 : 64;  // from piece j to piece j + 4 of the row, which is swizzled
        from += STEPS == 1 ? plane : number == 0 ? other_half : (long long)PLANES * plane - other_half;
    }
};

// Load the fragments of a warp's rows at 16 of K: pieces 2f and 2f + 1 of the stage. `at` is the lane's address in it for f = 0.
__device__ __forceinline__ void load_a(unsigned (&a)[A_FRAGMENTS][4], unsigned stage, unsigned at, int f) {
#pragma unroll
    for (int i = 0; i < A_FRAGMENTS; i++)
        ldmatrix(a[i][0], a[i][1], a[i][2], a[i][3], stage + (at ^ (32 * f)) + i * 16 * PLANE_ROW);
}

__device__ __forceinline__ void load_b(unsigned (&b)[B_FRAGMENTS][2], unsigned stage, unsigned at, int f) {
#pragma unroll
    for (int j = 0; j < B_FRAGMENTS; j += 2)
        ldmatrix(b[j][0], b[j][1], b[j + 1][0], b[j + 1][1], stage + (at ^ (32 * f)) + j * 8 * PLANE_ROW);
}

typedef float Sums[A_FRAGMENTS][4 * B_FRAGMENTS];

__device__ __forceinline__ void multiply(Sums& sums, const unsigned (&a)[A_FRAGMENTS][4], const unsigned (&b)[B_FRAGMENTS][2]) {
#pragma unroll
    for (int i = 0; i < A_FRAGMENTS; i++)
#pragma unroll
        for (int j = 0; j < B_FRAGMENTS; j++) mma_sync(&sums[i][4 * j], a[i], b[j]);
}

// Adds the products of a stage to the sums.
__device__ __forceinline__ void step(Sums& sum, unsigned stage, unsigned a_at, unsigned b_at, float lo_scale) {
#if MM32_PRODUCTS == 3
    unsigned a_hi[2][A_FRAGMENTS][4], b_hi[2][B_FRAGMENTS][2];  // pieces 0 to 3 are hi, 4 to 7 lo
    Sums part = {};
#pragma unroll
    for (int f = 0; f < 2; f++) {
        unsigned a_lo[A_FRAGMENTS][4];
        load_b(b_hi[f], stage, b_at, f);
        load_a(a_lo, stage, a_at, f + 2);
        multiply(part, a_lo, b_hi[f]);
    }
#pragma unroll
    for (int f = 0; f < 2; f++) {
        unsigned b_lo[B_FRAGMENTS][2];
        load_a(a_hi[f], stage, a_at, f);
        load_b(b_lo, stage, b_at, f + 2);
        multiply(part, a_hi[f], b_lo);
    }
    if (lo_scale != 1.f) {  // of a scaled lo: hi * hi is added once the products with lo have been scaled back
#pragma unroll
        for (int i = 0; i < A_FRAGMENTS; i++)
#pragma unroll
            for (int j = 0; j < 4 * B_FRAGMENTS; j++) part[i][j] *= lo_scale;
    }
#pragma unroll
    for (int f = 0; f < 2; f++) multiply(part, a_hi[f], b_hi[f]);
#pragma unroll
    for (int i = 0; i < A_FRAGMENTS; i++)
#pragma unroll
        for (int j = 0; j < 4 * B_FRAGMENTS; j++) sum[i][j] += part[i][j];
#else
#pragma unroll
    for (int f = 0; f < 4; f++) {
        unsigned a[A_FRAGMENTS][4], b[B_FRAGMENTS][2];
        load_a(a, stage, a_at, f);
        load_b(b, stage, b_at, f);
        multiply(sum, a, b);
    }
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, TILE_N == 64 ? 2 : 1) mm32_mma(const __grid_constant__ Params s) {
    extern __shared__ __align__(128) char dynamic[];
    __shared__ __align__(16) Columns columns;
    __shared__ float2 row_factors[TILE_M];
    const Problem& p = s.p;
    const unsigned ring = shared_address(dynamic);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
    const unsigned a_at = (warp_m + lane % 16) * PLANE_ROW + ((lane / 16) ^ (lane % 8)) * 16;
    const unsigned b_at = A_BYTES + (warp_n + lane / 16 * 8 + lane % 8) * PLANE_ROW + ((lane / 8 % 2) ^ (lane % 8)) * 16;
    const int blocks = (int)ceil_div(p.k, BLOCK_K);
    if (s.decision->tier != FIRST_TIER) return;  // mm32_fallback computes it all
    const bool scaled_lo = s.decision->scaled_lo;
    const float lo_scale = scaled_lo ? 1.f / (1 << LO_SHIFT) : 1.f;

    for (Scheduler scheduler(p, blockIdx.x); scheduler.has_tile(p, s.parts); scheduler.advance(p, gridDim.x)) {
        const TileOfPart tile = scheduler.tile(p);
        const int begin = part_begin(blocks, tile.part, (int)s.parts);
        const int steps = (part_begin(blocks, tile.part + 1, (int)s.parts) - begin) * STEPS;
        const long long a_matrix = packed_matrix(s, 0, tile.matrix), b_matrix = packed_matrix(s, 1, tile.matrix);
        Loader<TILE_M> a(s.panels[0], a_matrix * blocks + begin, tile.m0, p.m);
        Loader<TILE_N> b(s.panels[1], b_matrix * blocks + begin, tile.n0, p.n);
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++) {
            if (i < steps) {
                a.load(ring + i * STAGE, i % STEPS);
                b.load(ring + i * STAGE + A_BYTES, i % STEPS);
            }
            copy_commit();
        }
        if (threadIdx.x < TILE_N) columns.set(threadIdx.x, column_at(s, tile, threadIdx.x), scaled_lo);
        if (threadIdx.x < TILE_M)
            row_factors[threadIdx.x] = two_factors(scale_at(s, tile, tile.m0 + threadIdx.x).exponent(scaled_lo));

        Sums sum = {};
        int stage = 0;
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            copy_wait<STAGES - 2>();
            __syncthreads();  // the stage has arrived for all threads, and no thread reads the one that is filled next
            const int fill = stage == 0 ? STAGES - 1 : stage - 1;
            if (i + STAGES - 1 < steps) {
                a.load(ring + fill * STAGE, (i + STAGES - 1) % STEPS);
                b.load(ring + fill * STAGE + A_BYTES, (i + STAGES - 1) % STEPS);
            }
            copy_commit();
            step(sum, ring + stage * STAGE, a_at, b_at, lo_scale);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }

        const Target target = target_of(s, tile);
        __syncthreads();  // no thread reads the ring any more: it is now used to rearrange the sums
#pragma unroll
        for (int i = 0; i < A_FRAGMENTS; i++) {
            const int row = warp_m + i * 16;
            const float2 rows[2] = {row_factors[row + lane / 4], row_factors[row + lane / 4 + 8]};
            float* const staging = reinterpret_cast<float*>(dynamic) + warp * STAGING;
            store<false>(p, tile, target, tile.m0 + row, warp_n, rows, columns, sum[i], staging);
        }
        __syncthreads();  // the next tile may overwrite the ring and the factors
    }
}
