// mma: C from split panels (split.cuh) as tensorcore.cu has it, by mma.sync in the place of wgmma: for every card from sm_80 on.
//
// A block computes 128 x TILE_N tiles; each of its 8 warps has WARP_M x 32 of one. Panels come through a STAGES-deep ring of
// cp.async copies, STEP_K of K at a time: 32 of hi and of lo or, with PRODUCTS = 1, 64 of hi. Either is 128 bytes a row, and the
// eight 16-byte pieces of row r lie as in a panel, piece j at place j ^ (r % 8): ldmatrix finds eight rows in 32 different banks.
// Promoted every 32 of K, half of what tensorcore.cu adds up: three stages of that fit the 99 KB that a block of sm_86, sm_89 and
// sm_120 has, the fragments of hi stay in registers for their second use, and Ampere's tensor cores, which keep a bit less and
// cut twice as often as Hopper's, then stay within the same bound (docs/numerics.md). With PRODUCTS = 1: no promotion.
//
// Launch: any number of blocks of 256 threads, a grid apart over the tiles. Dynamic shared memory: STAGES * STAGE bytes.
// Registers: two sets of WARP_M sums a thread and the fragments: 242 with TILE_N = 128, one block a multiprocessor; 128 with 64,
// two where shared memory has room.
// Bounded by mma.sync: for 32 of K a warp of TILE_N = 128 has 24 ldmatrix for 96 of it.
//   MM32_TILE_N, MM32_SPLIT, MM32_C_VECTOR   see tiles.cuh
//   MM32_STAGES, MM32_PRODUCTS (3 or 1)
#include "ptx/cp_async.cuh"
#include "ptx/mma_sync.cuh"
#include "emulated/tiles.cuh"

constexpr int THREADS = 256, STAGES = MM32_STAGES;
constexpr int WARP_N = 32, WARPS_N = TILE_N / WARP_N, WARP_M = TILE_M * WARPS_N / (THREADS / 32);
constexpr int A_FRAGMENTS = WARP_M / 16, B_FRAGMENTS = WARP_N / 8;
constexpr int STEPS = PLANES;  // of a K-block
constexpr int A_BYTES = TILE_M * PLANE_ROW, STAGE = A_BYTES + TILE_N * PLANE_ROW;

// A thread's share of bringing an operand's tile in, step by step: piece threadIdx.x % 8 of rows threadIdx.x / 8, + 32, ... Of the
// two steps of a K-block (PLANES = 2) the first has pieces 0-3 of both planes, the second pieces 4-7.
template <int ROWS>
struct Loader {
    const char* from;  // the thread's piece in its first row, for the next step
    unsigned plane;    // bytes, 2^31 at most
    int rows;          // of the tile that are in the panels

    __device__ __forceinline__ Loader(const char* panels, long long block, int row0, long long all_rows)
        : plane((unsigned)padded_rows(all_rows) * PLANE_ROW), rows((int)padded_rows(all_rows) - row0) {
        const int row = threadIdx.x / 8, piece = threadIdx.x % 8, of_plane = piece / (8 / STEPS), in_plane = piece % (8 / STEPS);
        from = panels + (block * PLANES + of_plane) * plane + (long long)(row0 + row) * PLANE_ROW + (in_plane ^ (row % 8)) * 16;
    }

    // Copies the next step, the K-block's `number`th, to `to`. Rows past the panels' are zeros.
    __device__ __forceinline__ void load(unsigned to, int number) {
        const int row = threadIdx.x / 8, piece = threadIdx.x % 8;
        const unsigned at = to + row * PLANE_ROW + (piece ^ (row % 8)) * 16;
#pragma unroll
        for (int i = 0; i < ROWS; i += THREADS / 8)
            copy_async<16>(at + i * PLANE_ROW, reinterpret_cast<const float*>(from + i * PLANE_ROW), row + i < rows ? 16 : 0);
        const int other_half = row / 4 % 2 ? -64 : 64;  // from piece j to j + 4 of the row
        from += STEPS == 1 ? plane : number == 0 ? other_half : (long long)PLANES * plane - other_half;
    }
};

// Fragments of a warp's rows, 16 of K: pieces 2 f and 2 f + 1 of a stage's rows. `at` is the lane's address for f = 0, in the stage.
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

// Adds a stage's products to the sums.
__device__ __forceinline__ void step(Sums& sum, unsigned stage, unsigned a_at, unsigned b_at) {
#if MM32_PRODUCTS == 3
    unsigned a_hi[2][A_FRAGMENTS][4], b_hi[2][B_FRAGMENTS][2];  // pieces 0-3 are hi, 4-7 lo
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

extern "C" __global__ void __launch_bounds__(THREADS, TILE_N == 64 ? 2 : 1) mm32_mma(const __grid_constant__ Split s) {
    extern __shared__ __align__(128) char dynamic[];
    __shared__ __align__(16) Columns columns;
    __shared__ float2 undo_rows[TILE_M];
    const Problem& p = s.p;
    const unsigned ring = shared_address(dynamic);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
    const unsigned a_at = (warp_m + lane % 16) * PLANE_ROW + ((lane / 16) ^ (lane % 8)) * 16;
    const unsigned b_at = A_BYTES + (warp_n + lane / 16 * 8 + lane % 8) * PLANE_ROW + ((lane / 8 % 2) ^ (lane % 8)) * 16;
    const int blocks = (int)ceil_div(p.k, BLOCK_K);

    for (Walk walk(p, blockIdx.x); walk.inside(s); walk.advance(p, gridDim.x)) {
        const Tile tile = walk.tile(p);
        const int begin = split_begin(blocks, tile.split, (int)s.splits);
        const int steps = (split_begin(blocks, tile.split + 1, (int)s.splits) - begin) * STEPS;
        const long long a_matrix = s.matrices[0] == 1 ? 0 : tile.matrix, b_matrix = s.matrices[1] == 1 ? 0 : tile.matrix;
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
        if (threadIdx.x < TILE_N) columns.set(threadIdx.x, column_at(s, tile, threadIdx.x));
        if (threadIdx.x < TILE_M) undo_rows[threadIdx.x] = undoing(exponent_at(s, tile, tile.m0 + threadIdx.x));

        Sums sum = {};
        int stage = 0;
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            copy_wait<STAGES - 2>();
            __syncthreads();  // the stage has arrived for all threads, and all are done with the one that is filled next
            const int fill = stage == 0 ? STAGES - 1 : stage - 1;
            if (i + STAGES - 1 < steps) {
                a.load(ring + fill * STAGE, (i + STAGES - 1) % STEPS);
                b.load(ring + fill * STAGE + A_BYTES, (i + STAGES - 1) % STEPS);
            }
            copy_commit();
            step(sum, ring + stage * STAGE, a_at, b_at);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }

        const Target target = target_of(s, tile);
        __syncthreads();  // all are done with the ring, which serves to turn the sums
#pragma unroll
        for (int i = 0; i < A_FRAGMENTS; i++) {
            const int row = warp_m + i * 16;
            const float2 rows[2] = {undo_rows[row + lane / 4], undo_rows[row + lane / 4 + 8]};
            store(p, tile, target, tile.m0 + row, warp_n, rows, columns, sum[i], reinterpret_cast<float*>(dynamic) + warp * STAGING);
        }
        __syncthreads();  // all are done with the ring and with what undoes the scales
    }
}
