// One tile of C by register-blocked outer products in IEEE fp32 FMAs: what simt.cu and emulated/fallback.cu compute. Each thread
// keeps THREAD_M x THREAD_N sums in registers; tiles of A and B, TILE_K deep, arrive in a ring of STAGES in shared memory.
//
// Threads of a block: 32 * (TILE_M / (8 * THREAD_M)) * (TILE_N / (4 * THREAD_N)); the threads of a warp form an 8 x 4 grid.
// Dynamic shared memory: 4 * STAGES * TILE_K * (TILE_M + TILE_N + 2 * PAD) bytes for the ring, and 4 * (STAGES - 1) * TILE_K *
// rows for the queue of each operand that is transposed (load 2 below).
// Registers: THREAD_M * THREAD_N sums and two sets of fragments; 139 to 231 on sm_90, up to 255 with PROMOTE.
// Bound by issue, one instruction a cycle: for each step of K, 16 x 8 sums take 128 FMAs and 6 16-byte reads of shared memory.
// So the copies of the next tiles must cost few instructions: rows past the edge repeat the last row, and only K is checked.
// Bound next by the two banks of the register file: an FMA reads three registers, less those that the FMA before it just read.
//
// Both tiles lie in shared memory as [k][row], whatever the operand's layout, so that an outer product reads 4 neighbouring rows
// at once. MM32_A_LOAD and MM32_B_LOAD say how an operand is copied there (emulated/pack.cu has the same four loads):
//   0  contiguous along its rows (M or N), aligned, a multiple of 4 rows: 16-byte cp.async
//   1  anything else: 4-byte cp.async, neighbouring threads along rows
//   2  contiguous along K, aligned, K a multiple of 4: 16-byte cp.async to a queue of the thread's own, from which it transposes
//      them into the ring, one tile ahead, by 4-byte stores
//   3  contiguous along K otherwise: 4-byte cp.async that transpose, 8 threads along K
// Neighbouring k lie ROWS + PAD elements apart, PAD = 4. In cases 2 and 3 the 32 words that a warp writes then fall in 32 banks
// (16 rows at k and k + 4; 4 rows at 8 neighbouring k), and 4 neighbouring rows still start on 16 bytes.
//   MM32_C_VECTOR       1: C is contiguous along N and aligned, N is a multiple of 4: 16-byte stores
//   MM32_SPLIT_K        1: blocks share K. Their sums are not C, and have no epilogue
//   MM32_STREAM_K       1: sums may go to a partial tile
//   MM32_TILE_M, MM32_TILE_N, MM32_TILE_K, MM32_THREAD_M, MM32_THREAD_N, MM32_STAGES
//   MM32_COPY_ROW       the row of a step's FMAs before which the step's copies are issued: the one that ptxas schedules best
//   MM32_BLOCKS_PER_SM  how many blocks must fit on a multiprocessor by their registers
//   MM32_PROMOTE        0: one FMA after another along all of K. Otherwise: the sums are added to a second set of registers and
//                       start from zero again every PROMOTE tiles of K, which cuts the error of a sum of 8192 to a fifth
#pragma once
#include "common/epilogue.cuh"
#include "common/operand.cuh"
#include "common/tile_order.cuh"
#include "ptx/cp_async.cuh"

constexpr int TILE_M = MM32_TILE_M, TILE_N = MM32_TILE_N, TILE_K = MM32_TILE_K, STAGES = MM32_STAGES;
constexpr int THREAD_M = MM32_THREAD_M, THREAD_N = MM32_THREAD_N;
constexpr int WARP_M = 8 * THREAD_M, WARP_N = 4 * THREAD_N;
constexpr int THREADS = 32 * (TILE_M / WARP_M) * (TILE_N / WARP_N);
constexpr int PAD = 4;
static_assert(TILE_M % WARP_M == 0 && TILE_N % WARP_N == 0 && TILE_K % 8 == 0 && THREAD_M % 4 == 0 && THREAD_N % 4 == 0);
static_assert(TILE_M % 32 == 0 && TILE_N % 32 == 0 && STAGES >= 2);

// Which elements of a ROWS x TILE_K tile a thread copies, WIDTH neighbours at a time: rows row + r * ROW_STEP at places
// k + j * K_STEP of K.
template <int LOAD, int ROWS>
struct CopyMap {
    static constexpr int WIDTH = LOAD % 2 == 0 ? 4 : 1;
    static constexpr bool ALONG_K = LOAD >= 2;
    static constexpr int LANES = (ALONG_K ? 8 : ROWS) / WIDTH;  // threads side by side
    static constexpr int ROW_STEP = ALONG_K ? THREADS / LANES : ROWS, K_STEP = ALONG_K ? 8 : THREADS / LANES;
    static constexpr int ROW_COUNT = ROWS / ROW_STEP, K_COUNT = TILE_K / K_STEP;
    static_assert(THREADS % LANES == 0 && ROW_STEP * ROW_COUNT == ROWS && K_STEP * K_COUNT == TILE_K);
    static constexpr int PITCH = ROWS + PAD;

    const float* from[ROW_COUNT];  // past the edge: the last row again. The sums of such rows are not stored
    int row, k;
    unsigned to;  // the thread's first place in a stage, in bytes

    __device__ __forceinline__ explicit CopyMap(const Operand& x) {
        const int along = threadIdx.x % LANES * WIDTH, across = threadIdx.x / LANES;
        row = ALONG_K ? across : along;
        k = ALONG_K ? along : across;
        to = 4 * (k * PITCH + row);
#pragma unroll
        for (int r = 0; r < ROW_COUNT; r++) {
            const long long in_operand = min((long long)(row + r * ROW_STEP), x.rows - (ALONG_K ? 1 : WIDTH));
            from[r] = x.data + in_operand * x.row_stride + k * x.k_stride;
        }
        // Threads past the edge copy nothing: copies of one word by many threads are done one after another, and a block at the
        // edge took twice as long.
        if (LOAD == 1 && row >= x.rows) k = 1 << 30;
    }
    __device__ __forceinline__ unsigned place(unsigned stage, int r, int j) const {
        return stage + to + 4 * (j * K_STEP * PITCH + r * ROW_STEP);
    }
};

// Copies the tiles of one operand into the ring, in their order along K: the first AHEAD tiles before the main loop (`fill`),
// then one during each tile that is multiplied (`copy_step`). A tile is copied in PIECES, spread over the steps, because a burst
// of copies would stop all warps of a block at once. Only `depth` places of a tile lie within K; the others become zeros.
// `transpose_first` and `load_queued` exist for load 2 (below), and `advance` ends a tile.
template <int LOAD, int ROWS>
struct Loader : CopyMap<LOAD, ROWS> {
    using Map = CopyMap<LOAD, ROWS>;
    static constexpr int AHEAD = STAGES - 1, PIECES = Map::ROW_COUNT * Map::K_COUNT, QUEUE = 0;

    long long k_stride;

    __device__ __forceinline__ Loader(const Operand& x, unsigned) : Map(x), k_stride(x.k_stride) {}

    __device__ __forceinline__ void copy(int piece, unsigned stage, int depth) {
        const int r = piece / Map::K_COUNT, j = piece % Map::K_COUNT;
        copy_async<4 * Map::WIDTH>(this->place(stage, r, j), this->from[r] + j * Map::K_STEP * k_stride,
                                   this->k + j * Map::K_STEP < depth);
        if (j == Map::K_COUNT - 1) this->from[r] += TILE_K * k_stride;
    }
    __device__ __forceinline__ void fill(unsigned stage, int depth) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) copy(piece, stage, depth);
    }
    __device__ __forceinline__ void transpose_first(unsigned, int) {}
    __device__ __forceinline__ void load_queued(int) {}
    // Step k of a tile. The tile that comes AHEAD tiles later goes to the stage `ahead`. Many small copies are issued in four
    // groups, because ptxas puts three idle instructions before each group.
    __device__ __forceinline__ void copy_step(int k, unsigned, unsigned ahead, int depth) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
            if ((Map::WIDTH == 4 ? piece * (TILE_K - 1) / PIECES : piece * 4 / PIECES * (TILE_K / 4)) == k)
                copy(piece, ahead, depth);
    }
    __device__ __forceinline__ void advance() {}
};

// Load 2: each thread copies its pieces into its own queue in shared memory and transposes them from there into the ring, one
// tile before they are multiplied.
template <int ROWS>
struct Loader<2, ROWS> : CopyMap<2, ROWS> {
    using Map = CopyMap<2, ROWS>;
    static constexpr int AHEAD = STAGES, PIECES = Map::ROW_COUNT * Map::K_COUNT;
    static constexpr int SLOT = 16 * PIECES * THREADS, QUEUE = (STAGES - 1) * SLOT;  // bytes of one tile, and of the queue

    unsigned queue, slot;  // the thread's first place in the queue; the slot of the tile that is transposed next, in bytes
    float x, y, z, w;      // the piece that is being transposed

    __device__ __forceinline__ Loader(const Operand& operand, unsigned at)
        : Map(operand), queue(at + 16 * threadIdx.x), slot(0) {}

    __device__ __forceinline__ void copy(int piece, int depth) {
        const int r = piece / Map::K_COUNT, j = piece % Map::K_COUNT;
        copy_async<16>(queue + slot + 16 * piece * THREADS, this->from[r] + j * Map::K_STEP, this->k + j * Map::K_STEP < depth);
        if (j == Map::K_COUNT - 1) this->from[r] += TILE_K;
    }
    __device__ __forceinline__ void load_piece(int piece) { load_shared(queue + slot + 16 * piece * THREADS, x, y, z, w); }
    // Stores the loaded piece in its stage, and copies that piece of the tile AHEAD - 1 tiles later into the free place.
    __device__ __forceinline__ void transpose_piece(int piece, unsigned stage, int depth) {
        const unsigned to = this->place(stage, piece / Map::K_COUNT, piece % Map::K_COUNT);
        store_shared(to, x);
        store_shared(to + 4 * Map::PITCH, y);
        store_shared(to + 8 * Map::PITCH, z);
        store_shared(to + 12 * Map::PITCH, w);
        copy(piece, depth);
    }
    __device__ __forceinline__ void advance() { slot = slot == QUEUE - SLOT ? 0 : slot + SLOT; }
    __device__ __forceinline__ void fill(unsigned, int depth) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) copy(piece, depth);
        advance();
    }
    __device__ __forceinline__ void transpose_first(unsigned stage, int depth) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            load_piece(piece);
            transpose_piece(piece, stage, depth);
        }
        advance();
    }
    // A piece is loaded at the start of a step and stored by `copy_step` of the same step, so that the load has time to arrive.
    static_assert(PIECES < TILE_K);
    __device__ __forceinline__ void load_queued(int k) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
            if (piece * (TILE_K - 1) / PIECES == k) load_piece(piece);
    }
    // Step k of a tile. The tile after it is transposed into the stage `next`.
    __device__ __forceinline__ void copy_step(int k, unsigned next, unsigned, int depth) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
            if (piece * (TILE_K - 1) / PIECES == k) transpose_piece(piece, next, depth);
    }
};

// Loads group i of this thread's rows at one place along K: 4 rows of A, where groups are 32 apart, or 4 columns of B, where
// they are 16 apart.
template <int GAP, int COUNT>
__device__ __forceinline__ void load_fragment(float (&to)[COUNT], int i, unsigned from) {
    load_shared(from + 4 * i * GAP, to[4 * i], to[4 * i + 1], to[4 * i + 2], to[4 * i + 3]);
}

// A range of K to multiply, and where the sums go: to a matrix, or to a partial tile if there is one.
struct Slice {
    long long begin, k;  // the first place of K, and how many
    float* c;
    long long row, col;  // strides of c
    float* partial_tile;
};

// A thread has the sums of rows m + 32 i + (0 to 3) and columns n + 16 j + (0 to 3) of a tile.
struct ThreadOrigin {
    int m, n;
};

// Shared memory serves the 16-byte reads of half a warp at once, and not of a quarter, if lanes that differ in bit 0, or lanes
// that differ in bit 1, read the same words. So bits 0 and 4 of a lane select its column in the 8 x 4 grid, and bits 1 to 3 its
// row.
__device__ __forceinline__ ThreadOrigin thread_origin() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return {warp / (TILE_N / WARP_N) * WARP_M + lane / 2 % 8 * 4,
            warp % (TILE_N / WARP_N) * WARP_N + (lane / 16 * 2 + lane % 2) * 4};
}

// Where a partial tile holds this thread's sums of its own row i and columns j to j + 3.
__device__ __forceinline__ float4* in_partial_tile(float* partial_tile, int i, int j) {
    return reinterpret_cast<float4*>(partial_tile) + (i * (THREAD_N / 4) + j / 4) * THREADS + threadIdx.x;
}

__device__ __forceinline__ void load_bias(const Problem& p, long long n, float (&bias)[4]) {
#pragma unroll
    for (int v = 0; v < 4; v++) bias[v] = !MM32_SPLIT_K && n + v < p.n ? bias_at(p, n + v) : 0.f;
}

// Stores row m, columns n to n + 3: with the epilogue, or plain sums with split-K.
__device__ __forceinline__ void store_four(const Problem& p, const Slice& slice, long long m, long long n, const float (&sum)[4],
                                           const float (&bias)[4]) {
    if (m >= p.m) return;
    float* const c = slice.c + m * slice.row + n * slice.col;
    float out[4];
#pragma unroll
    for (int v = 0; v < 4; v++) out[v] = MM32_SPLIT_K ? sum[v] : epilogue(sum[v], bias[v]);
#if MM32_C_VECTOR
    if (n < p.n) *reinterpret_cast<float4*>(c) = make_float4(out[0], out[1], out[2], out[3]);
#else
#pragma unroll
    for (int v = 0; v < 4; v++)
        if (n + v < p.n) c[v * slice.col] = out[v];
#endif
}

// Computes a slice of a tile with all threads of the block. The ring is free again when it returns. UNTIL_NAN, with PROMOTE:
// it ends when all sums of the tile are NaN, because they stay NaN.
template <bool UNTIL_NAN = false>
__device__ __forceinline__ void multiply_tile(const Problem& p, const Tile& tile, const Slice& slice, float* ring) {
    constexpr int A_PITCH = 4 * (TILE_M + PAD), B_PITCH = 4 * (TILE_N + PAD), B_AT = TILE_K * A_PITCH;  // bytes
    constexpr int STAGE = B_AT + TILE_K * B_PITCH;
    const unsigned ring_at = shared_address(ring);
    const ThreadOrigin origin = thread_origin();
    const unsigned a_read = ring_at + 4 * origin.m, b_read = ring_at + B_AT + 4 * origin.n;

    const Pointers at = pointers_of(p, tile.matrix);
    using LoaderA = Loader<MM32_A_LOAD, TILE_M>;
    using LoaderB = Loader<MM32_B_LOAD, TILE_N>;
    const float* const a_data = at.a + tile.m0 * p.a.row + slice.begin * p.a.col;
    const float* const b_data = at.b + tile.n0 * p.b.col + slice.begin * p.b.row;
    LoaderA a(Operand{a_data, p.a.row, p.a.col, p.m - tile.m0}, ring_at + STAGES * STAGE);
    LoaderB b(Operand{b_data, p.b.col, p.b.row, p.n - tile.n0}, ring_at + STAGES * STAGE + LoaderA::QUEUE);
    const int whole = (int)(slice.k / TILE_K), rest = (int)(slice.k % TILE_K), steps = whole + (rest > 0);

    float sum[THREAD_M][THREAD_N] = {};
#if MM32_PROMOTE
    float total[THREAD_M][THREAD_N] = {};
#endif
    const auto depth = [&](int s) { return s < whole ? TILE_K : s < steps ? rest : 0; };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        a.fill(ring_at + s * STAGE, depth(s));
        b.fill(ring_at + s * STAGE + B_AT, depth(s));
        copy_commit();
    }
    copy_wait<STAGES - 2>();
    a.transpose_first(ring_at, depth(STAGES - 1));
    b.transpose_first(ring_at + B_AT, depth(STAGES - 1));
    copy_commit();
    copy_wait<STAGES - 2>();
    __syncthreads();
    // The fragments of the next step are loaded while this step's are multiplied, also from one tile to the next.
    constexpr int A_READS = THREAD_M / 4, READS = A_READS + THREAD_N / 4;
    static_assert(READS < THREAD_M && MM32_COPY_ROW < THREAD_M);
    float a_part[2][THREAD_M], b_part[2][THREAD_N];
    const auto load = [&](int i, int to, unsigned a_from, unsigned b_from) {
        if (i < A_READS) load_fragment<32>(a_part[to], i, a_read + a_from);
        else load_fragment<16>(b_part[to], i - A_READS, b_read + b_from);
    };
#pragma unroll
    for (int i = 0; i < READS; i++) load(i, 0, 0, 0);
    unsigned stage = 0, last = (STAGES - 1) * STAGE;  // in bytes: the stage that is multiplied, and the one before it
#pragma unroll 1
    for (int s = 0; s < steps; s++) {
        const unsigned next = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
        const int a_depth = depth(s + a.AHEAD), b_depth = depth(s + b.AHEAD);
#pragma unroll
        for (int k = 0; k < TILE_K; k++) {
            unsigned from = stage + (k + 1) * A_PITCH, b_from = stage + (k + 1) * B_PITCH;
            if (k == TILE_K - 1) {
                copy_commit();
                copy_wait<STAGES - 2>();
                __syncthreads();  // `next` has arrived for all threads, and the last fragments of `stage` are in registers
                from = b_from = next;
            } else {
                a.load_queued(k);
                b.load_queued(k);
            }
            // Row after row, with the columns alternately forwards and backwards: each FMA shares a factor with the one before
            // it, and so reads two new registers, its sum and the other factor. The register file has two banks.
#pragma unroll
            for (int i = 0; i < THREAD_M; i++) {
                if (i == MM32_COPY_ROW && k < TILE_K - 1) {
                    a.copy_step(k, ring_at + next, ring_at + last, a_depth);
                    b.copy_step(k, ring_at + next + B_AT, ring_at + last + B_AT, b_depth);
                }
                if (i > 0 && i <= READS) load(i - 1, (k + 1) % 2, from, b_from);
#pragma unroll
                for (int v = 0; v < THREAD_N; v++) {
                    const int j = i % 2 ? THREAD_N - 1 - v : v;
                    sum[i][j] = fmaf(a_part[k % 2][i], b_part[k % 2][j], sum[i][j]);
                }
            }
        }
#if MM32_PROMOTE
        if (s % MM32_PROMOTE == MM32_PROMOTE - 1 || s == steps - 1) {
#pragma unroll
            for (int i = 0; i < THREAD_M; i++)
#pragma unroll
                for (int j = 0; j < THREAD_N; j++) total[i][j] += sum[i][j], sum[i][j] = 0.f;
            if (UNTIL_NAN && __syncthreads_and(isnan(total[0][0]))) {
                bool numbers = false;
#pragma unroll
                for (int i = 0; i < THREAD_M; i++)
#pragma unroll
                    for (int j = 0; j < THREAD_N; j++) numbers |= !isnan(total[i][j]);
                if (!__syncthreads_or(numbers)) break;
            }
        }
#endif
        a.advance();
        b.advance();
        last = stage, stage = next;
    }
    copy_wait<0>();
    __syncthreads();  // no thread reads the ring any more
#if MM32_PROMOTE
    const auto& done = total;
#else
    const auto& done = sum;
#endif

    // Each thread passes its sums through words of the ring that are its own, with neighbours exchanged in pairs. Registers that
    // are stored as one vector must be neighbours, and so must the elements of B that are loaded as one; without the exchange
    // the sum and the element of B of an FMA would share a register bank, and every FMA would wait. After the ring
    // the epilogue is a loop and not separate code for each sum, so that it does not change the registers of the main loop.
    static_assert(16 * THREAD_M * THREADS <= STAGES * STAGE);
    const unsigned mine = ring_at + 16 * threadIdx.x;
#pragma unroll
    for (int j = 0; j < THREAD_N; j += 4) {
#pragma unroll
        for (int i = 0; i < THREAD_M; i++)
            store_shared(mine + 16 * i * THREADS, done[i][j + 1], done[i][j], done[i][j + 3], done[i][j + 2]);
        const long long n = tile.n0 + origin.n + j / 4 * 16;
#pragma unroll 4
        for (int i = 0; i < THREAD_M; i++) {
            float four[4], bias[4];
            load_bias(p, n, bias);
            load_shared(mine + 16 * i * THREADS, four[1], four[0], four[3], four[2]);
            if (MM32_STREAM_K && slice.partial_tile)
                *in_partial_tile(slice.partial_tile, i, j) = make_float4(four[0], four[1], four[2], four[3]);
            else store_four(p, slice, tile.m0 + origin.m + i / 4 * 32 + i % 4, n, four, bias);
        }
    }
    __syncthreads();  // the next tile may overwrite the ring
}
