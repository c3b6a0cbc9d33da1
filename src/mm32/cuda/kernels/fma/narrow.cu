// narrow: C where M or N is small, by IEEE fp32 FMAs: a wide operand W, rows x K, by WIDTH columns of a narrow one V, K x width.
//
// Launch: batches * ceil(rows/TILE) * ceil(width/WIDTH) * splits blocks of 256 threads; a block takes further units a grid apart.
// A unit is TILE rows by WIDTH columns by a part of K. Up to 34 KB of shared memory; registers: two sets of loads and the sums.
// Bounded by memory: W is read once, 16 bytes a load where it may, and the next loads are asked for before the last ones are
// multiplied. What V costs beside it, from L2 to shared memory, is WIDTH/TILE of that.
//
// W is A where N is narrow, B, with its columns as rows, where M is. V comes in stages of K, by 4-byte cp.async from any strides.
// How W lies, MM32_LOAD (simt.cuh has the same four):
//   0  contiguous along its rows, aligned, their number a multiple of 4: 16-byte loads
//   1  anything else: 4-byte loads, neighbouring lanes along rows
//   2  contiguous along K, aligned, K a multiple of 4: 16-byte loads
//   3  contiguous along K otherwise: 4-byte loads, neighbouring lanes along K
// Along rows (0, 1) a lane has ROWS = 4 rows, the warps share a stage's K and meet in shared memory; where there are few rows,
// lanes share K too. Along K (2, 3) a warp has ROWS rows, its lanes share K, so that V is read once for ROWS rows, and meet by
// shuffles. All in a fixed order: the same bits in every run. No sum of one lane is longer than 1024: it then joins a total.
//   MM32_SIDE      0: W is A, 1: W is B
//   MM32_WIDTH     1, 2, 4, 8 or 16
//   MM32_ROWS      of W: a lane's or a warp's
//   MM32_DEPTH     how many times a lane loads of each of its rows at once
//   MM32_BLOCKS    how many blocks must fit on a multiprocessor by their registers
//   MM32_SPLIT     1: K is split among blocks, which write sums to Split::partial for mm32_reduce
//   MM32_PRODUCTS  for split.cuh, of no meaning here
#include "ptx/cp_async.cuh"
#include "common/epilogue.cuh"
#include "emulated/panels.cuh"

constexpr int WIDTH = MM32_WIDTH, ROWS = MM32_ROWS, DEPTH = MM32_DEPTH;
constexpr bool ALONG_K = MM32_LOAD >= 2, VECTOR = MM32_LOAD % 2 == 0;
constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int TILE = ALONG_K ? WARPS * ROWS : 32 * ROWS;
constexpr int STAGE = ALONG_K && 128 * DEPTH > 256 ? 128 * DEPTH : 256;  // of K
constexpr int PIECE = ALONG_K ? STAGE : 64;                    // of K: parts are whole pieces
constexpr int SPAN = ALONG_K ? 32 * 1024 : WARPS * 1024;      // of K: the longest sum of a lane is 1024
static_assert(ALONG_K || ROWS == 4);
static_assert(SPAN % STAGE == 0);

// V in shared memory. Along K as [column][k], each column 16 bytes further on among the banks; along rows as [k][column].
constexpr int PITCH = STAGE + 4;
constexpr int RING = ALONG_K ? WIDTH * PITCH : STAGE * WIDTH;  // floats of a stage
// Where warps meet: PART columns at a time, [warp][column][row]. 8: threads that read 4 columns of 8 rows meet 32 banks.
constexpr int PART = WIDTH < 4 ? WIDTH : 4, MEETING_PITCH = TILE + 8;
constexpr int MEETING = ALONG_K ? 0 : WARPS * PART * MEETING_PITCH;
constexpr int SHARED = 2 * RING > MEETING ? 2 * RING : MEETING;

// An operand by its rows, M of A or N of B.
struct Operand {
    const float* data;
    long long row, k;
};

// Of W, what a thread loads and adds up: `load` asks for the next group of K, zeros past its `depth` and past the last row,
// `multiply` takes one, `add_up` joins the sums of a span of K to the totals, each of which one thread has, and `each_total` goes
// through these.
template <bool along_k>
struct Share;

template <>
struct Share<true> {
    static constexpr int GROUP = 128 * DEPTH, SUMS = ROWS * WIDTH, TOTALS = (SUMS + 31) / 32;
    static_assert((SUMS & (SUMS - 1)) == 0 && (!ALONG_K || STAGE % GROUP == 0));
    using Held = float[DEPTH][ROWS][4];

    const float* from;
    long long row_stride, k_stride;
    int lane, first, rows;  // the warp's first row in the tile, and how many it has
    float sum[SUMS], total[TOTALS];

    __device__ __forceinline__ Share(const Operand& wide, int rows_left, long long) : row_stride(wide.row), k_stride(wide.k) {
        lane = threadIdx.x % 32, first = threadIdx.x / 32 * ROWS;
        rows = rows_left - first;
        from = wide.data + first * row_stride + (VECTOR ? 4 * lane : lane * k_stride);
#pragma unroll
        for (int i = 0; i < TOTALS; i++) total[i] = 0.f;
    }

    __device__ __forceinline__ int group() const { return GROUP; }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < SUMS; i++) sum[i] = 0.f;
    }

    __device__ __forceinline__ void load(Held& to, int depth) {
        const float* row = from;
#pragma unroll
        for (int r = 0; r < ROWS; r++, row += row_stride)
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                if constexpr (VECTOR) {
                    float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
                    if (r < rows && 128 * d + 4 * lane < depth) x = *reinterpret_cast<const float4*>(row + 128 * d);
                    to[d][r][0] = x.x, to[d][r][1] = x.y, to[d][r][2] = x.z, to[d][r][3] = x.w;
                } else {
#pragma unroll
                    for (int v = 0; v < 4; v++) {
                        const int k = 128 * d + 32 * v;
                        to[d][r][v] = r < rows && k + lane < depth ? row[k * k_stride] : 0.f;
                    }
                }
            }
        from += GROUP * k_stride;
    }

    // Back by the group that was asked for past a span's end.
    __device__ __forceinline__ void back() { from -= GROUP * k_stride; }

    __device__ __forceinline__ void multiply(const Held& held, const float* ring) {
        if (rows <= 0) return;
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                const float* at = ring + c * PITCH + 128 * d;
                float v[4];
                if constexpr (VECTOR) {
                    const float4 x = *reinterpret_cast<const float4*>(at + 4 * lane);
                    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
                } else {
#pragma unroll
                    for (int j = 0; j < 4; j++) v[j] = at[32 * j + lane];
                }
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                    for (int r = 0; r < ROWS; r++) sum[r * WIDTH + c] = fmaf(held[d][r][j], v[j], sum[r * WIDTH + c]);
            }
    }

    // Halves of the sums change hands: what lanes 0 to 31 have in the end are sums lane * SUMS / 32 and on.
    template <int COUNT, int OFFSET>
    __device__ __forceinline__ void fold() {
        if constexpr (COUNT > 1) {
            constexpr int HALF = COUNT / 2;
            const bool upper = lane & OFFSET;
#pragma unroll
            for (int i = 0; i < HALF; i++) {
                const float kept = upper ? sum[HALF + i] : sum[i], given = upper ? sum[i] : sum[HALF + i];
                sum[i] = kept + __shfl_xor_sync(~0u, given, OFFSET);
            }
            if constexpr (OFFSET > 1) fold<HALF, OFFSET / 2>();
        } else {
            sum[0] += __shfl_xor_sync(~0u, sum[0], OFFSET);
            if constexpr (OFFSET > 1) fold<1, OFFSET / 2>();
        }
    }

    __device__ __forceinline__ void add_up(float*) {
        if (rows > 0) {
            fold<SUMS, 16>();
#pragma unroll
            for (int i = 0; i < TOTALS; i++) total[i] += sum[i];
        }
        __syncthreads();  // all are done with the ring
    }

    template <typename Store>
    __device__ __forceinline__ void each_total(const Store& store) const {
        if (SUMS < 32 && lane * SUMS % 32 != 0) return;  // several lanes have the same
#pragma unroll
        for (int i = 0; i < TOTALS; i++) {
            const int at = lane * SUMS / 32 + i;
            store(first + at / WIDTH, at % WIDTH, total[i]);
        }
    }
};

template <>
struct Share<false> {
    static constexpr int PARTS = WIDTH / PART, OUTPUTS = (PART * TILE + THREADS - 1) / THREADS;
    using Held = float[DEPTH][4];

    const float* from;
    long long row_hop, k_hop;  // from one of the lane's rows, and from one load, to the next
    int lane, lanes;           // along rows: 32, or 16 or 8 where that is enough
    int step, k_own;           // of K that the block loads at once, and where in it the lane is
    int rows;                  // in the tile
    float sum[4][WIDTH], total[PARTS][OUTPUTS];

    __device__ __forceinline__ Share(const Operand& wide, int rows_left, long long all_rows) : rows(rows_left) {
        lanes = all_rows > 64 ? 32 : all_rows > 32 ? 16 : 8;
        lane = threadIdx.x % 32;
        const int shares = 32 / lanes;
        step = WARPS * shares, k_own = threadIdx.x / 32 * shares + lane / lanes;
        row_hop = lanes * wide.row, k_hop = step * wide.k;
        from = wide.data + row_of(0) * wide.row + k_own * wide.k;
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++) total[part][i] = 0.f;
    }

    __device__ __forceinline__ int row_of(int i) const { return VECTOR ? lane % lanes * 4 + i : lane % lanes + lanes * i; }

    __device__ __forceinline__ int group() const { return DEPTH * step; }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int c = 0; c < WIDTH; c++) sum[i][c] = 0.f;
    }

    __device__ __forceinline__ void load(Held& to, int depth) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++, from += k_hop) {
            const bool there = d * step + k_own < depth;
            if constexpr (VECTOR) {
                float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
                if (there && row_of(0) < rows) x = *reinterpret_cast<const float4*>(from);
                to[d][0] = x.x, to[d][1] = x.y, to[d][2] = x.z, to[d][3] = x.w;
            } else {
                const float* row = from;
#pragma unroll
                for (int i = 0; i < 4; i++, row += row_hop) to[d][i] = there && row_of(i) < rows ? *row : 0.f;
            }
        }
    }

    __device__ __forceinline__ void back() { from -= DEPTH * k_hop; }

    __device__ __forceinline__ void multiply(const Held& held, const float* ring) {
        const float* at = ring + k_own * WIDTH;
#pragma unroll
        for (int d = 0; d < DEPTH; d++, at += step * WIDTH) {
            float v[WIDTH];
            if constexpr (WIDTH >= 4) {
#pragma unroll
                for (int c = 0; c < WIDTH; c += 4) {
                    const float4 x = *reinterpret_cast<const float4*>(at + c);
                    v[c] = x.x, v[c + 1] = x.y, v[c + 2] = x.z, v[c + 3] = x.w;
                }
            } else {
#pragma unroll
                for (int c = 0; c < WIDTH; c++) v[c] = at[c];
            }
#pragma unroll
            for (int c = 0; c < WIDTH; c++)
#pragma unroll
                for (int i = 0; i < 4; i++) sum[i][c] = fmaf(held[d][i], v[c], sum[i][c]);
        }
    }

    // Output i of a thread, in the order in which C, contiguous along N, is written.
    __device__ __forceinline__ static int output(int i) { return threadIdx.x + THREADS * i; }
    __device__ __forceinline__ static int output_row(int i) { return MM32_SIDE ? output(i) % TILE : output(i) / PART; }
    __device__ __forceinline__ static int output_column(int i) { return MM32_SIDE ? output(i) / TILE : output(i) % PART; }

    __device__ __forceinline__ void add_up(float* meeting) {
        for (int offset = 16; offset >= lanes; offset /= 2) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < WIDTH; c++) sum[i][c] += __shfl_xor_sync(~0u, sum[i][c], offset);
        }
        __syncthreads();  // all are done with the ring
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            if (lane < lanes) {
#pragma unroll
                for (int c = 0; c < PART; c++) {
                    float* const to = meeting + (threadIdx.x / 32 * PART + c) * MEETING_PITCH;
#pragma unroll
                    for (int i = 0; i < 4; i++) to[row_of(i)] = sum[i][part * PART + c];
                }
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++) {
                if (output(i) >= PART * TILE || output_row(i) >= 4 * lanes) continue;
                const float* const of = meeting + output_column(i) * MEETING_PITCH + output_row(i);
                float all = of[0];
#pragma unroll
                for (int warp = 1; warp < WARPS; warp++) all += of[warp * PART * MEETING_PITCH];
                total[part][i] += all;
            }
            __syncthreads();
        }
    }

    template <typename Store>
    __device__ __forceinline__ void each_total(const Store& store) const {
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++)
                if (output(i) < PART * TILE) store(output_row(i), part * PART + output_column(i), total[part][i]);
    }
};

// Begins to bring a stage of V, from `k` on, into shared memory. What lies past K or V's last column becomes zeros.
__device__ __forceinline__ void bring(float* ring, const Operand& narrow, int k, int depth, int width_left) {
    static_assert(WIDTH == 1 || STAGE == THREADS || !ALONG_K);
    // Neighbouring threads walk V's contiguous axis: K, and then the columns, or columns, and then K.
    const bool along_k = WIDTH > 1 && narrow.k == 1;
    const int c = along_k ? 0 : threadIdx.x % WIDTH, c_hop = along_k ? 1 : 0;
    const int at = along_k ? threadIdx.x : threadIdx.x / WIDTH, hop = along_k ? 0 : THREADS / WIDTH;
    const unsigned place = shared_address(ring + (ALONG_K ? c * PITCH + at : at * WIDTH + c));
    const unsigned place_hop = 4 * (ALONG_K ? c_hop * PITCH + hop : hop * WIDTH + c_hop);
    const float* from = narrow.data + c * narrow.row + (k + at) * narrow.k;
    const long long from_hop = along_k ? narrow.row : hop * narrow.k;
#pragma unroll 2
    for (int j = 0; j < STAGE * WIDTH / THREADS; j++, from += from_hop)
        copy_async<4>(place + j * place_hop, from, c + j * c_hop < width_left && k + at + j * hop < depth);
    copy_commit();
}

// Where the sums of a matrix go: C, or the partial sums of a part of K.
struct Target {
    float* data;
    long long row, col;
};
#if MM32_SPLIT
using Argument = Split;
__device__ __forceinline__ const Problem& problem_of(const Split& s) { return s.p; }
__device__ __forceinline__ long long splits_of(const Split& s) { return s.splits; }
__device__ __forceinline__ Target target_of(const Split& s, const Batch&, long long part) {
    return {s.partial + part * s.p.m * s.p.n, s.p.n, 1};
}
#else
using Argument = Problem;
__device__ __forceinline__ const Problem& problem_of(const Problem& p) { return p; }
__device__ __forceinline__ long long splits_of(const Problem&) { return 1; }
__device__ __forceinline__ Target target_of(const Problem& p, const Batch& at, long long) { return {at.c, p.c.row, p.c.col}; }
#endif

// What a block does at a time: TILE rows from row0 on, WIDTH columns from column0 on, of matrix `part % batches` by the part
// `part / batches` of K. Rows come first, so that blocks side by side read what lies side by side.
struct Unit {
    long long row0, column0, part;
    int rows, columns;  // that there are
};

__device__ __forceinline__ long long rows_of(const Problem& p) { return MM32_SIDE ? p.n : p.m; }
__device__ __forceinline__ long long width_of(const Problem& p) { return MM32_SIDE ? p.m : p.n; }

__device__ __forceinline__ Unit unit_at(const Problem& p, long long t) {
    const long long tiles = ceil_div(rows_of(p), TILE), groups = ceil_div(width_of(p), WIDTH);
    const long long above = quotient(t, tiles), part = quotient(above, groups);
    const long long row0 = (t - above * tiles) * TILE, column0 = (above - part * groups) * WIDTH;
    return {row0, column0, part, (int)min(rows_of(p) - row0, (long long)TILE), (int)min(width_of(p) - column0, (long long)WIDTH)};
}

extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS) mm32_narrow(const __grid_constant__ Argument argument) {
    __shared__ __align__(16) float shared[SHARED];
    let_next_start();
    const Problem& p = problem_of(argument);
    const long long parts = p.batches * splits_of(argument);
    const long long units = ceil_div(rows_of(p), TILE) * ceil_div(width_of(p), WIDTH) * parts;
    for (long long t = blockIdx.x; t < units; t += gridDim.x) {
        Unit unit = unit_at(p, t);
        const long long split = quotient(unit.part, p.batches), pieces = ceil_div(p.k, PIECE);
        const long long begin = quotient(pieces * split, splits_of(argument)) * PIECE;
        long long left = min(quotient(pieces * (split + 1), splits_of(argument)) * PIECE, p.k) - begin;

        Batch at = locate(p, unit.part - split * p.batches);
        const Operand a{at.a, p.a.row, p.a.col}, b{at.b, p.b.col, p.b.row};
        Operand wide = MM32_SIDE ? b : a, narrow = MM32_SIDE ? a : b;
        wide.data += unit.row0 * wide.row + begin * wide.k;
        narrow.data += unit.column0 * narrow.row + begin * narrow.k;
        Share<ALONG_K> share(wide, unit.rows, rows_of(p));
        for (; left > 0; left -= SPAN) {
            const int depth = (int)min(left, (long long)SPAN);
            Share<ALONG_K>::Held held, ahead;
            share.clear();
            bring(shared, narrow, 0, depth, unit.columns);
            share.load(held, depth);
            int ring = 0;
            // Two groups at a time `held` and `ahead` change places without moves, which would wait for what was asked for last.
#pragma unroll(ALONG_K && STAGE == Share<true>::GROUP ? 2 : 1)
            for (int k = 0; k < depth; k += STAGE, ring = RING - ring) {
                copy_wait<0>();
                __syncthreads();  // the stage has arrived for all threads, and they are done with the one before
                if (k + STAGE < depth) bring(shared + RING - ring, narrow, k + STAGE, depth, unit.columns);
#pragma unroll 2
                for (int g = 0; g < STAGE && k + g < depth; g += share.group()) {
                    share.load(ahead, depth - (k + g + share.group()));
                    share.multiply(held, shared + ring + g * (ALONG_K ? 1 : WIDTH));
                    memcpy(held, ahead, sizeof held);
                }
            }
            share.add_up(shared);
            share.back();
            narrow.data += SPAN * narrow.k;
        }
        unit = unit_at(p, t);  // found again, not kept: registers
        const long long matrix = unit.part - quotient(unit.part, p.batches) * p.batches;
        const long long m0 = MM32_SIDE ? unit.column0 : unit.row0, n0 = MM32_SIDE ? unit.row0 : unit.column0;
        const Target target = target_of(argument, locate(p, matrix), unit.part);
        float* const c = target.data + m0 * target.row + n0 * target.col;
        share.each_total([&](int row, int column, float sum) {
            if (row >= unit.rows || column >= unit.columns) return;
            const int m = MM32_SIDE ? column : row, n = MM32_SIDE ? row : column;
            c[m * target.row + n * target.col] = epilogue(sum, bias_at(p, n0 + n));
        });
    }
}
