// One tile of C by register-blocked outer products in IEEE fp32 FMAs: what simt.cu and careful.cu compute. Each thread keeps
// THREAD_M x THREAD_N sums in registers; tiles of A and B, TILE_K deep, arrive in a ring of STAGES.
//
// Threads a block: 32 * (TILE_M / (8*THREAD_M)) * (TILE_N / (4*THREAD_N)): a warp is 8 x 4 threads.
// Dynamic shared memory: 4 * STAGES * TILE_K * (TILE_M + TILE_N + 2*PAD) bytes, and for an operand that is turned (2, below) 4 *
// (STAGES - 1) * TILE_K times its rows. Registers: THREAD_M*THREAD_N sums and two sets of
// fragments.
// Bounded by issue, one instruction a cycle: 8 x 16 sums take 128 FMAs and 6 16-byte reads of shared memory a step of K. So what
// brings the next tiles in must cost few instructions: rows past the edge are the last row again, so that nothing is checked but K.
// Next come the registers' two banks: three reads an FMA, less what the one before it has just read.
//
// Both tiles are kept as [k][row], whatever the operand's layout: an outer product then reads 4 neighbouring rows at once.
// How an operand gets there, MM32_A_LOAD and MM32_B_LOAD (pack.cu has the same four):
//   0  contiguous along its rows (M or N), aligned, their number a multiple of 4: 16-byte cp.async
//   1  anything else: 4-byte cp.async, neighbouring threads along rows
//   2  contiguous along K, aligned, K a multiple of 4: 16-byte cp.async to a queue of the thread's own, turned from there into the
//      ring a tile ahead by 4-byte stores
//   3  contiguous along K otherwise: 4-byte cp.async that transposes, 8 threads along K
// Neighbouring k are PAD = 4 elements more than ROWS apart. In cases 2 and 3 the 32 words that a warp writes then fall in 32
// banks (16 rows and k, k + 4; 4 rows and 8 neighbouring k), and 4 neighbouring rows still begin on 16 bytes.
//   MM32_C_VECTOR    1: C is contiguous along N and aligned, N a multiple of 4: 16-byte stores
//   MM32_SPLIT       1: K is split among blocks; their sums are not C, and have no epilogue
//                    2: stream-K: the tiles of a last wave that is not full are shared by all blocks, whose sums wait in pieces
//   MM32_TILE_M, MM32_TILE_N, MM32_TILE_K, MM32_THREAD_M, MM32_THREAD_N, MM32_STAGES
//   MM32_BRING       the row of a step's FMAs before which it brings its share of the next tiles in: where ptxas does best with it
//   MM32_BLOCKS      how many blocks must fit on a multiprocessor by their registers
//   MM32_PROMOTE     0: one multiply-add after another along all of K. Otherwise the sums are added to a second set of registers
//                    and begun anew every so many tiles of K: the error of a sum of 8192 falls to a fifth
#pragma once
#include "ptx/cp_async.cuh"
#include "common/epilogue.cuh"

constexpr int TILE_M = MM32_TILE_M, TILE_N = MM32_TILE_N, TILE_K = MM32_TILE_K, STAGES = MM32_STAGES;
constexpr int THREAD_M = MM32_THREAD_M, THREAD_N = MM32_THREAD_N;
constexpr int WARP_M = 8 * THREAD_M, WARP_N = 4 * THREAD_N;
constexpr int THREADS = 32 * (TILE_M / WARP_M) * (TILE_N / WARP_N);
constexpr int PAD = 4;
static_assert(TILE_M % WARP_M == 0 && TILE_N % WARP_N == 0 && TILE_K % 8 == 0 && THREAD_M % 4 == 0 && THREAD_N % 4 == 0);
static_assert(TILE_M % 32 == 0 && TILE_N % 32 == 0 && STAGES >= 2);

// One operand as a block sees it: rows are M or N.
struct Side {
    const float* data;  // element (the tile's first row, 0)
    long long row_stride, k_stride, rows_left;
};

// Which elements of a ROWS x TILE_K tile a thread brings in, WIDTH neighbours at a time: rows row + r * ROW_STEP, places along K
// k + j * K_STEP.
template <int LOAD, int ROWS>
struct Share {
    static constexpr int WIDTH = LOAD % 2 == 0 ? 4 : 1;
    static constexpr bool ALONG_K = LOAD >= 2;
    static constexpr int LANES = (ALONG_K ? 8 : ROWS) / WIDTH;  // threads side by side
    static constexpr int ROW_STEP = ALONG_K ? THREADS / LANES : ROWS, K_STEP = ALONG_K ? 8 : THREADS / LANES;
    static constexpr int ROW_COUNT = ROWS / ROW_STEP, K_COUNT = TILE_K / K_STEP;
    static_assert(THREADS % LANES == 0 && ROW_STEP * ROW_COUNT == ROWS && K_STEP * K_COUNT == TILE_K);
    static constexpr int PITCH = ROWS + PAD;

    const float* from[ROW_COUNT];  // past the edge it is the last row again: what that adds up to is not stored
    int row, k;
    unsigned to;  // the thread's first place in a stage, in bytes

    __device__ __forceinline__ explicit Share(const Side& side) {
        const int along = threadIdx.x % LANES * WIDTH, across = threadIdx.x / LANES;
        row = ALONG_K ? across : along;
        k = ALONG_K ? along : across;
        to = 4 * (k * PITCH + row);
#pragma unroll
        for (int r = 0; r < ROW_COUNT; r++) {
            const long long there = min((long long)(row + r * ROW_STEP), side.rows_left - (ALONG_K ? 1 : WIDTH));
            from[r] = side.data + there * side.row_stride + k * side.k_stride;
        }
        // Copies of one word by many threads are made one after another: those past the edge bring nothing.
        if (LOAD == 1 && row >= side.rows_left) k = 1 << 30;
    }
    __device__ __forceinline__ unsigned place(unsigned stage, int r, int j) const {
        return stage + to + 4 * (j * K_STEP * PITCH + r * ROW_STEP);
    }
};

// Brings one operand's tiles, in their order along K, into the ring: the first ones before the loop, then one in the steps of each
// tile that is multiplied. It comes in PIECES, spread over the steps: a burst of copies would hold up all warps of a block at
// once. Of a tile `depth` places lie within K; the others become zeros.
template <int LOAD, int ROWS>
struct Loader : Share<LOAD, ROWS> {
    using Base = Share<LOAD, ROWS>;
    static constexpr int AHEAD = STAGES - 1, PIECES = Base::ROW_COUNT * Base::K_COUNT, QUEUE = 0;

    long long k_stride;

    __device__ __forceinline__ Loader(const Side& side, unsigned) : Base(side), k_stride(side.k_stride) {}

    __device__ __forceinline__ void copy(int piece, unsigned stage, int depth) {
        const int r = piece / Base::K_COUNT, j = piece % Base::K_COUNT;
        copy_async<4 * Base::WIDTH>(this->place(stage, r, j), this->from[r] + j * Base::K_STEP * k_stride,
                                    this->k + j * Base::K_STEP < depth);
        if (j == Base::K_COUNT - 1) this->from[r] += TILE_K * k_stride;
    }
    // Tile s of the first AHEAD, which goes to `stage`.
    __device__ __forceinline__ void begin(int s, unsigned stage, int depth) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) copy(piece, stage, depth);
    }
    __device__ __forceinline__ void turn_first(unsigned, int) {}
    __device__ __forceinline__ void lift(int) {}
    // At step k of a tile, whose stage was followed by `next`; `ahead` is where the tile goes that is AHEAD of it. Many small copies
    // come in four groups: ptxas puts three idle instructions before each group.
    __device__ __forceinline__ void bring(int k, unsigned, unsigned ahead, int depth) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
            if ((Base::WIDTH == 4 ? piece * (TILE_K - 1) / PIECES : piece * 4 / PIECES * (TILE_K / 4)) == k) copy(piece, ahead, depth);
    }
    __device__ __forceinline__ void advance() {}
};

// Each thread copies its pieces into a queue of its own, and turns them from there into the ring a tile before they are needed.
template <int ROWS>
struct Loader<2, ROWS> : Share<2, ROWS> {
    using Base = Share<2, ROWS>;
    static constexpr int AHEAD = STAGES, PIECES = Base::ROW_COUNT * Base::K_COUNT;
    static constexpr int SLOT = 16 * PIECES * THREADS, QUEUE = (STAGES - 1) * SLOT;  // bytes: of a tile, of all of them

    unsigned queue, slot;  // the thread's first place in it; the next tile to turn, in bytes
    float x, y, z, w;      // of a piece that is being turned

    __device__ __forceinline__ Loader(const Side& side, unsigned at) : Base(side), queue(at + 16 * threadIdx.x), slot(0) {}

    __device__ __forceinline__ void copy(int piece, int depth) {
        const int r = piece / Base::K_COUNT, j = piece % Base::K_COUNT;
        copy_async<16>(queue + slot + 16 * piece * THREADS, this->from[r] + j * Base::K_STEP, this->k + j * Base::K_STEP < depth);
        if (j == Base::K_COUNT - 1) this->from[r] += TILE_K;
    }
    // A piece from the queue, and then into its stage; that of the tile AHEAD - 1 after it goes into the queue.
    __device__ __forceinline__ void lift_piece(int piece) { load_shared(queue + slot + 16 * piece * THREADS, x, y, z, w); }
    __device__ __forceinline__ void turn(int piece, unsigned stage, int depth) {
        const unsigned to = this->place(stage, piece / Base::K_COUNT, piece % Base::K_COUNT);
        store_shared(to, x);
        store_shared(to + 4 * Base::PITCH, y);
        store_shared(to + 8 * Base::PITCH, z);
        store_shared(to + 12 * Base::PITCH, w);
        copy(piece, depth);
    }
    __device__ __forceinline__ void advance() { slot = slot == QUEUE - SLOT ? 0 : slot + SLOT; }
    __device__ __forceinline__ void begin(int, unsigned, int depth) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) copy(piece, depth);
        advance();
    }
    __device__ __forceinline__ void turn_first(unsigned stage, int depth) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            lift_piece(piece);
            turn(piece, stage, depth);
        }
        advance();
    }
    static_assert(PIECES < TILE_K);
    __device__ __forceinline__ void lift(int k) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
            if (piece * (TILE_K - 1) / PIECES == k) lift_piece(piece);
    }
    __device__ __forceinline__ void bring(int k, unsigned next, unsigned, int depth) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
            if (piece * (TILE_K - 1) / PIECES == k) turn(piece, next, depth);
    }
};

// Group `i` of 4 of this thread's rows (of A: 32 apart; columns of B: 16 apart) at one place along K.
template <int GAP, int COUNT>
__device__ __forceinline__ void read_fragment(float (&to)[COUNT], int i, unsigned from) {
    load_shared(from + 4 * i * GAP, to[4 * i], to[4 * i + 1], to[4 * i + 2], to[4 * i + 3]);
}

// The place of a block's tile in C. GROUP rows of tiles are walked together, so that their tiles of A stay in L2. Tile t of more
// than there are is in a matrix past the last: where K is split, each part of it has all tiles.
struct Tile {
    long long matrix, m0, n0;
};

__device__ __forceinline__ long long tiles_of(const Problem& p) { return p.batches * ceil_div(p.m, TILE_M) * ceil_div(p.n, TILE_N); }

__device__ __forceinline__ Tile tile_at(const Problem& p, long long t) {
    constexpr unsigned GROUP = 8;
    // No memory holds 2^32 tiles of one matrix.
    const unsigned tiles_m = (unsigned)ceil_div(p.m, TILE_M), tiles_n = (unsigned)ceil_div(p.n, TILE_N);
    const long long matrix = p.batches == 1 && MM32_SPLIT != 1 ? 0 : quotient(t, (long long)tiles_m * tiles_n);
    const unsigned in_matrix = (unsigned)(t - matrix * tiles_m * tiles_n), group = in_matrix / tiles_n / GROUP;
    const unsigned rows = min(tiles_m - group * GROUP, GROUP), in_group = in_matrix - group * GROUP * tiles_n;
    return {matrix, (long long)(group * GROUP + in_group % rows) * TILE_M, (long long)(in_group / rows) * TILE_N};
}

// K from `begin` on, `k` of it, and where the sums go: to a matrix, or all of the tile to a piece of the workspace.
struct Part {
    long long begin, k;
    float* c;
    long long row, col;
    float* piece;
};

// Where a thread's sums lie in a tile: rows m + 32 i + (0 to 3), columns n + 16 j + (0 to 3).
struct Place {
    int m, n;
};

// A 16-byte read takes a half-warp's time, not a quarter's, if threads that differ in bit 0, or those that differ in bit 1, read
// the same words: so a column of the 8 x 4 threads is picked by bits 0 and 4, a row by bits 1 to 3.
__device__ __forceinline__ Place place_of_thread() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return {warp / (TILE_N / WARP_N) * WARP_M + lane / 2 % 8 * 4,
            warp % (TILE_N / WARP_N) * WARP_N + (lane / 16 * 2 + lane % 2) * 4};
}

// Where a thread keeps its sums of row i and columns j to j + 3, both counted in its own, in a piece.
__device__ __forceinline__ float4* in_piece(float* piece, int i, int j) {
    return reinterpret_cast<float4*>(piece) + (i * (THREAD_N / 4) + j / 4) * THREADS + threadIdx.x;
}

__device__ __forceinline__ void read_bias(const Problem& p, long long n, float (&bias)[4]) {
#pragma unroll
    for (int v = 0; v < 4; v++) bias[v] = MM32_SPLIT != 1 && n + v < p.n ? bias_at(p, n + v) : 0.f;
}

// The sums of row m and columns n to n + 3, with the epilogue unless they are those of a part of K.
__device__ __forceinline__ void store_four(const Problem& p, const Part& part, long long m, long long n, const float (&sum)[4],
                                           const float (&bias)[4]) {
    if (m >= p.m) return;
    float* const c = part.c + m * part.row + n * part.col;
    float out[4];
#pragma unroll
    for (int v = 0; v < 4; v++) out[v] = MM32_SPLIT == 1 ? sum[v] : epilogue(sum[v], bias[v]);
#if MM32_C_VECTOR
    if (n < p.n) *reinterpret_cast<float4*>(c) = make_float4(out[0], out[1], out[2], out[3]);
#else
#pragma unroll
    for (int v = 0; v < 4; v++)
        if (n + v < p.n) c[v * part.col] = out[v];
#endif
}

// Computes a tile of C, or of a part's sums, by all threads of the block; the ring is free again when it returns.
__device__ __forceinline__ void multiply_tile(const Problem& p, const Tile& tile, const Part& part, float* ring) {
    constexpr int A_PITCH = 4 * (TILE_M + PAD), B_PITCH = 4 * (TILE_N + PAD), B_AT = TILE_K * A_PITCH;  // bytes
    constexpr int STAGE = B_AT + TILE_K * B_PITCH;
    const unsigned ring_at = shared_address(ring);
    const Place in_tile = place_of_thread();
    const unsigned a_read = ring_at + 4 * in_tile.m, b_read = ring_at + B_AT + 4 * in_tile.n;

    const Batch at = locate(p, tile.matrix);
    using LoaderA = Loader<MM32_A_LOAD, TILE_M>;
    using LoaderB = Loader<MM32_B_LOAD, TILE_N>;
    const float *a_data = at.a + tile.m0 * p.a.row + part.begin * p.a.col, *b_data = at.b + tile.n0 * p.b.col + part.begin * p.b.row;
    LoaderA a(Side{a_data, p.a.row, p.a.col, p.m - tile.m0}, ring_at + STAGES * STAGE);
    LoaderB b(Side{b_data, p.b.col, p.b.row, p.n - tile.n0}, ring_at + STAGES * STAGE + LoaderA::QUEUE);
    const int whole = (int)(part.k / TILE_K), rest = (int)(part.k % TILE_K), steps = whole + (rest > 0);

    float sum[THREAD_M][THREAD_N] = {};
#if MM32_PROMOTE
    float total[THREAD_M][THREAD_N] = {};
#endif
    const auto depth = [&](int s) { return s < whole ? TILE_K : s < steps ? rest : 0; };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        a.begin(s, ring_at + s * STAGE, depth(s));
        b.begin(s, ring_at + s * STAGE + B_AT, depth(s));
        copy_commit();
    }
    copy_wait<STAGES - 2>();
    a.turn_first(ring_at, depth(STAGES - 1));
    b.turn_first(ring_at + B_AT, depth(STAGES - 1));
    copy_commit();
    copy_wait<STAGES - 2>();
    __syncthreads();
    // The next step's fragments are read while this one's multiply, over the border between tiles too.
    constexpr int A_READS = THREAD_M / 4, READS = A_READS + THREAD_N / 4;
    static_assert(READS < THREAD_M && MM32_BRING < THREAD_M);
    float a_part[2][THREAD_M], b_part[2][THREAD_N];
    const auto read = [&](int i, int to, unsigned a_from, unsigned b_from) {
        if (i < A_READS) read_fragment<32>(a_part[to], i, a_read + a_from);
        else read_fragment<16>(b_part[to], i - A_READS, b_read + b_from);
    };
#pragma unroll
    for (int i = 0; i < READS; i++) read(i, 0, 0, 0);
    unsigned stage = 0, last = (STAGES - 1) * STAGE;  // in bytes: the one that is multiplied, and the one before it
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
                __syncthreads();  // stage `next` has arrived for all threads, and all are done with this one but for what they hold
                from = b_from = next;
            } else {
                a.lift(k);
                b.lift(k);
            }
            // Row after row, its columns there and back: each FMA shares a factor with the one before, and reads two registers, a
            // sum and the other factor, as many as there are banks.
#pragma unroll
            for (int i = 0; i < THREAD_M; i++) {
                if (i == MM32_BRING && k < TILE_K - 1) {
                    a.bring(k, ring_at + next, ring_at + last, a_depth);
                    b.bring(k, ring_at + next + B_AT, ring_at + last + B_AT, b_depth);
                }
                if (i > 0 && i <= READS) read(i - 1, (k + 1) % 2, from, b_from);
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
        }
#endif
        a.advance();
        b.advance();
        last = stage, stage = next;
    }
    copy_wait<0>();
    __syncthreads();  // all are done with the ring
#if MM32_PROMOTE
    const auto& done = total;
#else
    const auto& done = sum;
#endif

    // Each thread's sums pass through its own words of the ring, neighbours changed in pairs: registers that are stored together lie
    // one after the other, and a sum is then in the other bank than the element of B that it is multiplied with. What follows is
    // a loop, not the same code for each sum, which leaves the main loop's registers alone.
    static_assert(16 * THREAD_M * THREADS <= STAGES * STAGE);
    const unsigned mine = ring_at + 16 * threadIdx.x;
#pragma unroll
    for (int j = 0; j < THREAD_N; j += 4) {
#pragma unroll
        for (int i = 0; i < THREAD_M; i++)
            store_shared(mine + 16 * i * THREADS, done[i][j + 1], done[i][j], done[i][j + 3], done[i][j + 2]);
        const long long n = tile.n0 + in_tile.n + j / 4 * 16;
#pragma unroll 4
        for (int i = 0; i < THREAD_M; i++) {
            float four[4], bias[4];
            read_bias(p, n, bias);
            load_shared(mine + 16 * i * THREADS, four[1], four[0], four[3], four[2]);
            if (MM32_SPLIT == 2 && part.piece) *in_piece(part.piece, i, j) = make_float4(four[0], four[1], four[2], four[3]);
            else store_four(p, part, tile.m0 + in_tile.m + i / 4 * 32 + i % 4, n, four, bias);
        }
    }
    __syncthreads();  // whoever comes next may now overwrite the ring
}
