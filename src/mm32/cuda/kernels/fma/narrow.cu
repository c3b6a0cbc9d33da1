// narrow: C where M or N is small, by IEEE fp32 FMAs. A wide operand W, rows x K, is multiplied by WIDTH columns at a time of a
// narrow one V, K x width. If N is narrow, W is A; if M is narrow, W is B with its columns as rows.
//
// Launch: batches * ceil(rows/TILE) * ceil(width/WIDTH) * parts blocks of 256 threads (grid-stride loop over units; a unit is
// TILE rows by WIDTH columns by one part of K).
// Static shared memory: up to 34 KB. Registers: two sets of loaded elements of W and the sums, 64 to 255 on sm_90.
// Bound by memory. W is read once, 16 bytes at a time where its alignment allows, and the next loads are issued before the last
// ones are multiplied. V is read again for each tile, from L2 into shared memory: WIDTH / TILE of W's bytes.
//
// V comes in stages of K by 4-byte cp.async, from any strides. MM32_LOAD says how W lies in memory (as in fma/simt.cuh):
//   0  contiguous along its rows, aligned, a multiple of 4 rows: 16-byte loads
//   1  anything else: 4-byte loads, neighbouring lanes along rows
//   2  contiguous along K, aligned, K a multiple of 4: 16-byte loads
//   3  contiguous along K otherwise: 4-byte loads, neighbouring lanes along K
// Along rows (0, 1): a lane has ROWS = 4 rows, the warps share the K of a stage, and their sums are added in shared memory. If
// LANES is below 32, lanes share K too.
// Along K (2, 3): a warp has ROWS rows, so that V is read once for ROWS rows; its lanes share K, and shuffles add their sums.
// The order of all sums is fixed: the same bits in every run. A lane adds at most 1024 products before its sum joins a total.
//   MM32_SIDE           0: W is A, 1: W is B
//   MM32_WIDTH          1, 2, 4, 8 or 16
//   MM32_ROWS           rows of W of a lane (0, 1) or of a warp (2, 3)
//   MM32_DEPTH          how many loads of each row a lane issues together
//   MM32_BLOCKS_PER_SM  how many blocks must fit on a multiprocessor by their registers
//   MM32_LANES          lanes of a warp that lie along W's rows (0, 1); the other lanes share K
//   MM32_SPLIT_K        whether blocks share K. 1: they write their sums to Params::partial_sums for mm32_reduce. 2: those of a
//                       cluster do, and add up their sums through each other's shared memory
#include "common/epilogue.cuh"
#include "common/operand.cuh"
#include "common/workspace.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/dependent_launch.cuh"

constexpr int WIDTH = MM32_WIDTH, ROWS = MM32_ROWS, DEPTH = MM32_DEPTH;
constexpr bool ALONG_K = MM32_LOAD >= 2, VECTOR = MM32_LOAD % 2 == 0;
constexpr int THREADS = 256, WARPS = THREADS / 32, LANES = MM32_LANES;
constexpr bool CLUSTERS = MM32_SPLIT_K == 2;
constexpr int LARGEST_CLUSTER = 8;
constexpr int TILE = ALONG_K ? WARPS * ROWS : LANES * ROWS;
constexpr int STAGE = ALONG_K && 128 * DEPTH > 256 ? 128 * DEPTH : 256;  // of K
constexpr int PIECE = ALONG_K ? STAGE : 64;                    // of K: a part of K is a whole number of pieces
constexpr int SPAN = ALONG_K ? 32 * 1024 : WARPS * 1024;      // of K: how much is added before sums join totals, 1024 a lane
static_assert(ALONG_K || ROWS == 4);
static_assert(SPAN % STAGE == 0);

// V in shared memory. Along K it lies as [column][k], with 4 floats of padding to spread the columns over the banks; along rows
// as [k][column].
constexpr int PITCH = STAGE + 4;
constexpr int RING = ALONG_K ? WIDTH * PITCH : STAGE * WIDTH;  // floats of a stage
// Where the sums of the warps are added, COLUMNS columns of V at a time: [warp][column][row]. Rows are padded by 8 floats, so
// that threads that read 4 columns of 8 rows read 32 different banks.
constexpr int COLUMNS = WIDTH < 4 ? WIDTH : 4, SUMS_PITCH = TILE + 8;
constexpr int WARP_SUMS = ALONG_K ? 0 : WARPS * COLUMNS * SUMS_PITCH;
constexpr int SHARED = 2 * RING > WARP_SUMS ? 2 * RING : WARP_SUMS;
static_assert(!CLUSTERS || TILE * WIDTH <= SHARED);

// What a thread loads of W, and its sums. `load` loads the next group of K, with zeros past its `depth` and past the last row;
// `multiply` multiplies a loaded group; `reduce` adds the sums of a span of K over threads and adds the result to the totals,
// each of which one thread has; `for_each_total` calls a function for each of them.
template <bool along_k>
struct Accumulator;

// W along K: the lanes of a warp share the K of ROWS rows, and read V as [column][k].
template <>
struct Accumulator<true> {
    static constexpr int GROUP_K = 128 * DEPTH, SUMS = ROWS * WIDTH, TOTALS = (SUMS + 31) / 32;
    static_assert((SUMS & (SUMS - 1)) == 0 && (!ALONG_K || STAGE % GROUP_K == 0));
    using Group = float[DEPTH][ROWS][4];

    const float* from;
    long long row_stride, k_stride;
    int lane, first, rows;  // the warp's first row in the tile, and how many it has
    float sum[SUMS], total[TOTALS];

    __device__ __forceinline__ Accumulator(const Operand& wide, int rows_left)
        : row_stride(wide.row_stride), k_stride(wide.k_stride) {
        lane = threadIdx.x % 32, first = threadIdx.x / 32 * ROWS;
        rows = rows_left - first;
        from = wide.data + first * row_stride + (VECTOR ? 4 * lane : lane * k_stride);
#pragma unroll
        for (int i = 0; i < TOTALS; i++) total[i] = 0.f;
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < SUMS; i++) sum[i] = 0.f;
    }

    __device__ __forceinline__ void load(Group& to, int depth) {
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
        from += GROUP_K * k_stride;
    }

    // Takes back the step of the group that was loaded past the end of a span.
    __device__ __forceinline__ void rewind() { from -= GROUP_K * k_stride; }

    __device__ __forceinline__ void multiply(const Group& w, const float* ring) {
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
                    for (int r = 0; r < ROWS; r++) sum[r * WIDTH + c] = fmaf(w[d][r][j], v[j], sum[r * WIDTH + c]);
            }
    }

    // A butterfly over the lanes: at each step a lane keeps one half of its sums and gives the other half away. In the end lane l
    // has the totals from l * SUMS / 32 on.
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

    __device__ __forceinline__ void reduce(float*) {
        if (rows > 0) {
            fold<SUMS, 16>();
#pragma unroll
            for (int i = 0; i < TOTALS; i++) total[i] += sum[i];
        }
        __syncthreads();  // no thread reads the ring any more
    }

    template <typename Store>
    __device__ __forceinline__ void for_each_total(const Store& store) const {
        if (SUMS < 32 && lane * SUMS % 32 != 0) return;  // several lanes have the same total
#pragma unroll
        for (int i = 0; i < TOTALS; i++) {
            const int at = lane * SUMS / 32 + i;
            store(first + at / WIDTH, at % WIDTH, total[i]);
        }
    }
};

// W along rows: a lane has 4 rows at its own places of K, and reads V as [k][column].
template <>
struct Accumulator<false> {
    static constexpr int PASSES = WIDTH / COLUMNS, OUTPUTS = (COLUMNS * TILE + THREADS - 1) / THREADS;
    static constexpr int STEP = WARPS * (32 / LANES), GROUP_K = DEPTH * STEP;
    using Group = float[DEPTH][4];

    const float* from;
    long long row_hop, k_hop;  // from one of the lane's rows to the next, and from one of its loads to the next
    int lane, k_own;           // this lane's place in the STEP of K that the block loads at once
    int rows;                  // of the tile that exist
    float sum[4][WIDTH], total[PASSES][OUTPUTS];

    __device__ __forceinline__ Accumulator(const Operand& wide, int rows_left) : rows(rows_left) {
        lane = threadIdx.x % 32, k_own = threadIdx.x / LANES;
        row_hop = LANES * wide.row_stride, k_hop = STEP * wide.k_stride;
        from = wide.data + row_of(0) * wide.row_stride + k_own * wide.k_stride;
#pragma unroll
        for (int pass_index = 0; pass_index < PASSES; pass_index++)
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++) total[pass_index][i] = 0.f;
    }

    __device__ __forceinline__ int row_of(int i) const { return VECTOR ? lane % LANES * 4 + i : lane % LANES + LANES * i; }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int c = 0; c < WIDTH; c++) sum[i][c] = 0.f;
    }

    __device__ __forceinline__ void load(Group& to, int depth) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++, from += k_hop) {
            const bool exists = d * STEP + k_own < depth;
            if constexpr (VECTOR) {
                float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
                if (exists && row_of(0) < rows) x = *reinterpret_cast<const float4*>(from);
                to[d][0] = x.x, to[d][1] = x.y, to[d][2] = x.z, to[d][3] = x.w;
            } else {
                const float* row = from;
#pragma unroll
                for (int i = 0; i < 4; i++, row += row_hop) to[d][i] = exists && row_of(i) < rows ? *row : 0.f;
            }
        }
    }

    __device__ __forceinline__ void rewind() { from -= DEPTH * k_hop; }

    __device__ __forceinline__ void multiply(const Group& w, const float* ring) {
        const float* at = ring + k_own * WIDTH;
#pragma unroll
        for (int d = 0; d < DEPTH; d++, at += STEP * WIDTH) {
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
                for (int i = 0; i < 4; i++) sum[i][c] = fmaf(w[d][i], v[c], sum[i][c]);
        }
    }

    // A thread's output i. Neighbouring threads have neighbouring columns of C, so that stores coalesce.
    __device__ __forceinline__ static int output(int i) { return threadIdx.x + THREADS * i; }
    __device__ __forceinline__ static int output_row(int i) { return MM32_SIDE ? output(i) % TILE : output(i) / COLUMNS; }
    __device__ __forceinline__ static int output_column(int i) { return MM32_SIDE ? output(i) / TILE : output(i) % COLUMNS; }

    __device__ __forceinline__ void reduce(float* warp_sums) {
#pragma unroll
        for (int offset = 16; offset >= LANES; offset /= 2) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < WIDTH; c++) sum[i][c] += __shfl_xor_sync(~0u, sum[i][c], offset);
        }
        __syncthreads();  // no thread reads the ring any more
#pragma unroll
        for (int pass_index = 0; pass_index < PASSES; pass_index++) {
            if (lane < LANES) {
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    float* const to = warp_sums + (threadIdx.x / 32 * COLUMNS + c) * SUMS_PITCH;
#pragma unroll
                    for (int i = 0; i < 4; i++) to[row_of(i)] = sum[i][pass_index * COLUMNS + c];
                }
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++) {
                if (output(i) >= COLUMNS * TILE) continue;
                const float* const of = warp_sums + output_column(i) * SUMS_PITCH + output_row(i);
                float all = of[0];
#pragma unroll
                for (int warp = 1; warp < WARPS; warp++) all += of[warp * COLUMNS * SUMS_PITCH];
                total[pass_index][i] += all;
            }
            __syncthreads();
        }
    }

    template <typename Store>
    __device__ __forceinline__ void for_each_total(const Store& store) const {
#pragma unroll
        for (int pass_index = 0; pass_index < PASSES; pass_index++)
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++)
                if (output(i) < COLUMNS * TILE)
                    store(output_row(i), pass_index * COLUMNS + output_column(i), total[pass_index][i]);
    }
};

// Starts to copy a stage of V, from `k` on, to shared memory. What lies past K or past V's last column becomes zeros.
__device__ __forceinline__ void copy_narrow(float* ring, const Operand& narrow, int k, int depth, int width_left) {
    static_assert(WIDTH == 1 || STAGE == THREADS || !ALONG_K);
    // Neighbouring threads lie along V's contiguous axis. If that is K, a thread copies its place of K of every column; if it
    // is the columns, a thread copies its column at several places of K.
    const bool along_k = WIDTH > 1 && narrow.k_stride == 1;
    const int c = along_k ? 0 : threadIdx.x % WIDTH, c_hop = along_k ? 1 : 0;
    const int at = along_k ? threadIdx.x : threadIdx.x / WIDTH, hop = along_k ? 0 : THREADS / WIDTH;
    const unsigned place = shared_address(ring + (ALONG_K ? c * PITCH + at : at * WIDTH + c));
    const unsigned place_hop = 4 * (ALONG_K ? c_hop * PITCH + hop : hop * WIDTH + c_hop);
    const float* from = narrow.data + c * narrow.row_stride + (k + at) * narrow.k_stride;
    const long long from_hop = along_k ? narrow.row_stride : hop * narrow.k_stride;
#pragma unroll 2
    for (int j = 0; j < STAGE * WIDTH / THREADS; j++, from += from_hop)
        copy_async<4>(place + j * place_hop, from, c + j * c_hop < width_left && k + at + j * hop < depth);
    copy_commit();
}

// Where the sums of a matrix go: to C, or with split-K to the partial sums.
struct Target {
    float* data;
    long long row, col;
};
#if MM32_SPLIT_K == 1
using Argument = Params;
__device__ __forceinline__ const Problem& problem_of(const Params& s) { return s.p; }
__device__ __forceinline__ long long parts_of(const Params& s) { return s.parts; }
__device__ __forceinline__ Target target_of(const Params& s, const Pointers&, long long matrix) {
    return {s.partial_sums + matrix * s.p.m * s.p.n, s.p.n, 1};
}
#else
using Argument = Problem;
__device__ __forceinline__ const Problem& problem_of(const Problem& p) { return p; }
__device__ __forceinline__ long long parts_of(const Problem&) { return CLUSTERS ? cluster_size() : 1; }
__device__ __forceinline__ Target target_of(const Problem& p, const Pointers& at, long long) { return {at.c, p.c.row, p.c.col}; }
#endif

// What a block computes at a time: TILE rows from row0 on, WIDTH columns from column0 on. `matrix` counts over the batch, and
// with split-K over parts of K too: part matrix / batches of matrix matrix % batches. Units follow each other along rows first,
// so that neighbouring blocks read neighbouring memory.
struct Unit {
    long long row0, column0, matrix;
    int rows, columns;  // that exist
};

__device__ __forceinline__ long long rows_of(const Problem& p) { return MM32_SIDE ? p.n : p.m; }
__device__ __forceinline__ long long width_of(const Problem& p) { return MM32_SIDE ? p.m : p.n; }

__device__ __forceinline__ Unit unit_at(const Problem& p, long long t) {
    const long long tiles = ceil_div(rows_of(p), TILE), groups = ceil_div(width_of(p), WIDTH);
    const long long above = quotient(t, tiles), matrix = quotient(above, groups);
    const long long row0 = (t - above * tiles) * TILE, column0 = (above - matrix * groups) * WIDTH;
    return {row0, column0, matrix, (int)min(rows_of(p) - row0, (long long)TILE),
            (int)min(width_of(p) - column0, (long long)WIDTH)};
}

// The place of a tile's sum in shared memory, where a cluster adds up its blocks' sums: in the order of C's columns.
__device__ __forceinline__ int place_of(int row, int column) { return MM32_SIDE ? column * TILE + row : row * WIDTH + column; }

extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS_PER_SM)
mm32_narrow(const __grid_constant__ Argument argument) {
    __shared__ __align__(16) float shared[SHARED];
    launch_dependents();
    const Problem& p = problem_of(argument);
    // The blocks of a cluster have the same units, each its own part of K.
    const int sharers = CLUSTERS ? cluster_size() : 1;
    const long long matrices = p.batches * (CLUSTERS ? 1 : parts_of(argument));
    const long long units = ceil_div(rows_of(p), TILE) * ceil_div(width_of(p), WIDTH) * matrices;
    for (long long t = blockIdx.x / sharers; t < units; t += gridDim.x / sharers) {
        Unit unit = unit_at(p, t);
        const long long above = quotient(unit.matrix, p.batches), pieces = ceil_div(p.k, PIECE);
        const long long part = CLUSTERS ? cluster_rank() : above;
        const long long begin = quotient(pieces * part, parts_of(argument)) * PIECE;
        long long left = min(quotient(pieces * (part + 1), parts_of(argument)) * PIECE, p.k) - begin;

        const Pointers at = pointers_of(p, unit.matrix - above * p.batches);
        const Operand wide = operand_of(p, at, MM32_SIDE).from(unit.row0, begin);
        Operand narrow = operand_of(p, at, 1 - MM32_SIDE).from(unit.column0, begin);
        Accumulator<ALONG_K> accumulator(wide, unit.rows);
        for (; left > 0; left -= SPAN) {
            const int depth = (int)min(left, (long long)SPAN);
            Accumulator<ALONG_K>::Group group, next;
            accumulator.clear();
            copy_narrow(shared, narrow, 0, depth, unit.columns);
            accumulator.load(group, depth);
            int ring = 0;
            // Unrolled by two, `group` and `next` exchange their roles without moves. A move would wait for the latest loads.
#pragma unroll(ALONG_K && STAGE == Accumulator<true>::GROUP_K ? 2 : 1)
            for (int k = 0; k < depth; k += STAGE, ring = RING - ring) {
                copy_wait<0>();
                __syncthreads();  // the stage has arrived for all threads, and no thread reads the one before it
                if (k + STAGE < depth) copy_narrow(shared + RING - ring, narrow, k + STAGE, depth, unit.columns);
#pragma unroll 2
                for (int g = 0; g < STAGE && k + g < depth; g += Accumulator<ALONG_K>::GROUP_K) {
                    accumulator.load(next, depth - (k + g + Accumulator<ALONG_K>::GROUP_K));
                    accumulator.multiply(group, shared + ring + g * (ALONG_K ? 1 : WIDTH));
                    memcpy(group, next, sizeof group);
                }
            }
            accumulator.reduce(shared);
            accumulator.rewind();
            narrow.data += SPAN * narrow.k_stride;
        }
        unit = unit_at(p, t);  // computed again rather than kept, which saves registers
        const long long matrix = unit.matrix - quotient(unit.matrix, p.batches) * p.batches;
        const long long m0 = MM32_SIDE ? unit.column0 : unit.row0, n0 = MM32_SIDE ? unit.row0 : unit.column0;
        const Target target = target_of(argument, pointers_of(p, matrix), unit.matrix);
        float* const c = target.data + m0 * target.row + n0 * target.col;
        const auto store = [&](int row, int column, float sum) {
            if (row >= unit.rows || column >= unit.columns) return;
            const int m = MM32_SIDE ? column : row, n = MM32_SIDE ? row : column;
            c[m * target.row + n * target.col] = epilogue(sum, bias_at(p, n0 + n));
        };
        if constexpr (CLUSTERS) {
            accumulator.for_each_total([&](int row, int column, float sum) { shared[place_of(row, column)] = sum; });
            cluster_sync();
            for (int i = cluster_rank() * THREADS + threadIdx.x; i < TILE * WIDTH; i += sharers * THREADS) {
                float sums[LARGEST_CLUSTER];
#pragma unroll
                for (int rank = 0; rank < LARGEST_CLUSTER; rank++) {
                    float one[1] = {-0.f};  // changes no sum
                    if (rank < sharers) load_cluster<true>(shared_address(shared + i), rank, one);
                    sums[rank] = one[0];
                }
#pragma unroll
                for (int step = 1; step < LARGEST_CLUSTER; step *= 2)
#pragma unroll
                    for (int rank = 0; rank < LARGEST_CLUSTER; rank += 2 * step) sums[rank] += sums[rank + step];
                store(MM32_SIDE ? i % TILE : i / WIDTH, MM32_SIDE ? i / TILE : i % WIDTH, sums[0]);
            }
            cluster_sync();  // no block's sums are read any more
        } else {
            accumulator.for_each_total(store);
        }
    }
}
