// simt: register-blocked outer products in IEEE fp32 FMAs. A block computes a TILE_M x TILE_N tile of C; each thread keeps
// THREAD_M x THREAD_N sums in registers; tiles of A and B, TILE_K deep, arrive through a STAGES-deep ring of cp.async copies.
//
// Launch: min(batches * ceil(M/TILE_M) * ceil(N/TILE_N), 2^31-1) blocks; a block takes further tiles a grid apart.
//   threads = 32 * (TILE_M / (8*THREAD_M)) * (TILE_N / (4*THREAD_N)): a warp is 8 x 4 threads.
// Dynamic shared memory: 4 * STAGES * TILE_K * (TILE_M + TILE_N) bytes. Registers: THREAD_M*THREAD_N sums + two fragments.
// Bounded by FMA issue; shared-memory reads come next (THREAD_M + THREAD_N floats for THREAD_M*THREAD_N FMAs).
//
// Both tiles are kept as [k][row], whatever the operand's layout: an outer product then reads 4 neighbouring rows at once.
// How an operand gets there, MM32_A_LOAD and MM32_B_LOAD:
//   0  contiguous along its rows (M or N), aligned: 16-byte copies
//   1  contiguous along its rows, not aligned; or along nothing: 4-byte copies, neighbouring threads along the rows
//   2  contiguous along K: 4-byte copies that transpose on the way; 8 threads read 32 bytes along K of 4 rows each
// In case 2 the row is XORed with 4 * (k % 8): the 32 words a warp writes then fall in 32 banks, and 4 neighbouring rows
// stay neighbours, so fragments are still read 16 bytes at a time.
//   MM32_C_VECTOR    1: C is contiguous along N and aligned: 16-byte stores
//   MM32_TILE_M, MM32_TILE_N, MM32_TILE_K, MM32_THREAD_M, MM32_THREAD_N, MM32_STAGES
//   MM32_PROMOTE     0: one multiply-add after another along all of K. Otherwise the sums are added to a second set of registers
//                    and begun anew every so many tiles of K: the error of a sum of 8192 falls to a fifth
#include "async_copy.cuh"
#include "epilogue.cuh"

constexpr int TILE_M = MM32_TILE_M, TILE_N = MM32_TILE_N, TILE_K = MM32_TILE_K, STAGES = MM32_STAGES;
constexpr int THREAD_M = MM32_THREAD_M, THREAD_N = MM32_THREAD_N;
constexpr int WARP_M = 8 * THREAD_M, WARP_N = 4 * THREAD_N;
constexpr int THREADS = 32 * (TILE_M / WARP_M) * (TILE_N / WARP_N);
constexpr int GROUP = 8;  // tile rows that are walked together, so that their tiles of A stay in L2
static_assert(TILE_M % WARP_M == 0 && TILE_N % WARP_N == 0 && TILE_K % 8 == 0 && THREAD_M % 4 == 0 && THREAD_N % 4 == 0);

constexpr int BY_VECTOR = 0, BY_K = 2;

template <int LOAD>
__device__ __forceinline__ int swizzle(int row, int k) {
    return LOAD == BY_K ? row ^ (4 * (k % 8)) : row;
}

// One thread's share of bringing tiles of one operand, ROWS x TILE_K, into shared memory. What does not change from tile to
// tile along K is worked out once: the first element's place, and which of the thread's rows exist.
template <int LOAD, int ROWS>
struct Loader {
    static constexpr int WIDTH = LOAD == BY_VECTOR ? 4 : 1;
    static constexpr int COPIES = ROWS * TILE_K / WIDTH / THREADS;
    // Copy i of this thread is (row + i * ROW_STEP, k + i * K_STEP): one of the steps is zero or both are constants.
    static constexpr int ROW_THREADS = LOAD == BY_K ? THREADS / 8 : ROWS / WIDTH;
    static_assert(ROWS * TILE_K % (WIDTH * THREADS) == 0);

    const float* first;
    long long row_stride, k_stride, rows_left;
    int row, k;

    __device__ __forceinline__ Loader(const float* x, long long row0, long long rows, long long row_stride_,
                                      long long k_stride_)
        : row_stride(row_stride_), k_stride(k_stride_) {
        if constexpr (LOAD == BY_K) {
            k = threadIdx.x % 8;
            row = threadIdx.x / 8;
        } else {
            row = threadIdx.x * WIDTH % ROWS;
            k = threadIdx.x * WIDTH / ROWS;
        }
        rows_left = rows - row0;
        first = x + (row0 + row) * row_stride + k * k_stride;
    }

    // Copies the tile that starts at k0 to `tile`; `depth` is K.
    __device__ __forceinline__ void load(float* tile, long long k0, long long depth) const {
        const long long k_left = depth - k0;
        const float* from = first + k0 * k_stride;
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            int r, kk;
            if constexpr (LOAD == BY_K) {
                constexpr int K_GROUPS = TILE_K / 8;
                r = row + i / K_GROUPS * (THREADS / 8);
                kk = k + i % K_GROUPS * 8;
            } else if constexpr (ROWS / WIDTH >= THREADS) {
                constexpr int PER_K = ROWS / WIDTH / THREADS;
                r = row + i % PER_K * THREADS * WIDTH;
                kk = i / PER_K;
            } else {
                r = row;
                kk = k + i * (THREADS * WIDTH / ROWS);
            }
            // valid bytes: none past the edges; a 16-byte copy may hold the last 1 to 3 rows
            int valid = 0;
            if (kk < k_left && r < rows_left) {
                valid = 4 * WIDTH;
                if (WIDTH == 4 && rows_left - r < 4) valid = 4 * (int)(rows_left - r);
            }
            const float* source = from + (r - row) * row_stride + (kk - k) * k_stride;
            copy_async<4 * WIDTH>(shared_address(tile + kk * ROWS + swizzle<LOAD>(r, kk)), valid ? source : first, valid);
        }
    }
};

template <int LOAD, int ROWS, int COUNT, int GAP>
__device__ __forceinline__ void read_fragment(float (&to)[COUNT], const float* tile, int row, int k) {
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
        const float4 v = *reinterpret_cast<const float4*>(tile + k * ROWS + swizzle<LOAD>(row + i * GAP, k));
        to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
}

// How often the kernel ran as another's careful path (Problem::gate was there, and set).
extern "C" {
__device__ unsigned long long mm32_careful_runs;
}

extern "C" __global__ void __launch_bounds__(THREADS) mm32_simt(const __grid_constant__ Problem p) {
    extern __shared__ __align__(16) float shared[];
    if (p.gate) {
        if (!*p.gate) return;
        if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(&mm32_careful_runs, 1ull);
    }
    float* const a_ring = shared;                             // [STAGES][TILE_K][TILE_M]
    float* const b_ring = shared + STAGES * TILE_K * TILE_M;  // [STAGES][TILE_K][TILE_N]
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int m_thread = warp / (TILE_N / WARP_N) * WARP_M + lane / 4 * 4;  // + 32 i: this thread's groups of 4 rows
    const int n_thread = warp % (TILE_N / WARP_N) * WARP_N + lane % 4 * 4;  // + 16 j: this thread's groups of 4 columns
    const long long tiles_m = ceil_div(p.m, TILE_M), tiles_n = ceil_div(p.n, TILE_N);
    const int steps = (int)ceil_div(p.k, TILE_K);

    for (long long t = blockIdx.x; t < p.batches * tiles_m * tiles_n; t += gridDim.x) {
        const Batch at = locate(p, t / (tiles_m * tiles_n));
        const long long in_matrix = t % (tiles_m * tiles_n), group = in_matrix / (GROUP * tiles_n);
        const long long group_rows = min(tiles_m - group * GROUP, (long long)GROUP), in_group = in_matrix % (GROUP * tiles_n);
        const long long m0 = (group * GROUP + in_group % group_rows) * TILE_M, n0 = in_group / group_rows * TILE_N;
        const Loader<MM32_A_LOAD, TILE_M> a(at.a, m0, p.m, p.a.row, p.a.col);
        const Loader<MM32_B_LOAD, TILE_N> b(at.b, n0, p.n, p.b.col, p.b.row);

        float sum[THREAD_M][THREAD_N] = {};
#if MM32_PROMOTE
        float total[THREAD_M][THREAD_N] = {};
#endif
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
            if (s < steps) {
                a.load(a_ring + s * TILE_K * TILE_M, (long long)s * TILE_K, p.k);
                b.load(b_ring + s * TILE_K * TILE_N, (long long)s * TILE_K, p.k);
            }
            copy_commit();
        }
        int stage = 0, fill = STAGES - 1;
        for (int s = 0; s < steps; s++) {
            copy_wait<STAGES - 2>();
            __syncthreads();  // stage s has arrived for all threads, and all are done with the stage filled next
            if (s + STAGES - 1 < steps) {
                a.load(a_ring + fill * TILE_K * TILE_M, (long long)(s + STAGES - 1) * TILE_K, p.k);
                b.load(b_ring + fill * TILE_K * TILE_N, (long long)(s + STAGES - 1) * TILE_K, p.k);
            }
            copy_commit();
            const float* a_tile = a_ring + stage * TILE_K * TILE_M;
            const float* b_tile = b_ring + stage * TILE_K * TILE_N;
            float a_part[2][THREAD_M], b_part[2][THREAD_N];  // the next step's fragments load while this one's multiply
            read_fragment<MM32_A_LOAD, TILE_M, THREAD_M, 32>(a_part[0], a_tile, m_thread, 0);
            read_fragment<MM32_B_LOAD, TILE_N, THREAD_N, 16>(b_part[0], b_tile, n_thread, 0);
#pragma unroll
            for (int k = 0; k < TILE_K; k++) {
                if (k + 1 < TILE_K) {
                    read_fragment<MM32_A_LOAD, TILE_M, THREAD_M, 32>(a_part[(k + 1) % 2], a_tile, m_thread, k + 1);
                    read_fragment<MM32_B_LOAD, TILE_N, THREAD_N, 16>(b_part[(k + 1) % 2], b_tile, n_thread, k + 1);
                }
#pragma unroll
                for (int i = 0; i < THREAD_M; i++)
#pragma unroll
                    for (int j = 0; j < THREAD_N; j++) sum[i][j] = fmaf(a_part[k % 2][i], b_part[k % 2][j], sum[i][j]);
            }
#if MM32_PROMOTE
            if (s % MM32_PROMOTE == MM32_PROMOTE - 1 || s == steps - 1) {
#pragma unroll
                for (int i = 0; i < THREAD_M; i++)
#pragma unroll
                    for (int j = 0; j < THREAD_N; j++) total[i][j] += sum[i][j], sum[i][j] = 0.f;
            }
#endif
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            fill = fill + 1 == STAGES ? 0 : fill + 1;
        }
        copy_wait<0>();
        __syncthreads();  // the next tile's copies may now overwrite the ring
#if MM32_PROMOTE
#pragma unroll
        for (int i = 0; i < THREAD_M; i++)
#pragma unroll
            for (int j = 0; j < THREAD_N; j++) sum[i][j] = total[i][j];
#endif

#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
            const long long n = n0 + n_thread + j / 4 * 16;
            float bias[4];
#pragma unroll
            for (int v = 0; v < 4; v++) bias[v] = n + v < p.n ? bias_at(p, n + v) : 0.f;
#pragma unroll
            for (int i = 0; i < THREAD_M; i++) {
                const long long m = m0 + m_thread + i / 4 * 32 + i % 4;
                float* c = at.c + m * p.c.row + n * p.c.col;
                if (MM32_C_VECTOR && m < p.m && n + 3 < p.n) {
                    *reinterpret_cast<float4*>(c) =
                        make_float4(epilogue(sum[i][j], bias[0]), epilogue(sum[i][j + 1], bias[1]),
                                    epilogue(sum[i][j + 2], bias[2]), epilogue(sum[i][j + 3], bias[3]));
                } else if (m < p.m) {
#pragma unroll
                    for (int v = 0; v < 4; v++)
                        if (n + v < p.n) c[v * p.c.col] = epilogue(sum[i][j + v], bias[v]);
                }
            }
        }
    }
}
