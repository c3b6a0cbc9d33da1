// fallback: recomputes by IEEE fp32 FMAs what the tensor cores cannot keep (emulated/panels.cuh). The last launch of an emulated
// product; it returns at once if all groups of rows were accepted.
//
// - Rows of A and columns of B with NaN, Inf or an element out of range: these rows and columns of C alone, as long as a tile has
//   few of them. A tile's are shared among SLICES blocks.
// - Pairs of a row and a column that are not accepted for another reason: if a tile has few of them, these elements of C alone,
//   otherwise the whole tile.
// - Everything, if the decision's tier is FMA.
//
// Launch: any number of blocks (grid-stride loop over slices of tiles). Threads, dynamic shared memory, registers, constants and
// what bounds it are those of fma/simt.cuh; the stats of a tile's rows of A use the memory of its ring. PRODUCTS as in
// emulated/panels.cuh.
#include "emulated/cancel.cuh"
#include "fma/simt.cuh"
#include "ptx/dependent_launch.cuh"

static_assert(THREADS % TILE_N == 0 && sizeof(TestedRow) * TILE_M <= 4 * STAGES * TILE_K * (TILE_M + TILE_N + 2 * PAD));

// How many calls had their result from fp16x3, fp16x3 with a scaled lo, bf16x6, FMAs; of all but the last, how many had tiles
// recomputed, and how many rows, columns or single elements; and how many had it from fp16.
extern "C" {
__device__ unsigned long long mm32_tier_calls[7];
}

__device__ __forceinline__ void count_call(const Params& s, unsigned tier) {
    const unsigned first = PLANES == 3 ? 2 : PLANES == 2 ? s.decision->scaled_lo : 6;
    atomicAdd(&mm32_tier_calls[tier == FIRST_TIER ? first : tier + 1], 1ull);
}
__device__ __forceinline__ void count_recomputed(const Params& s, unsigned bit) {
    if ((atomicOr(&s.decision->recomputed, 1u << bit) >> bit & 1) == 0) atomicAdd(&mm32_tier_calls[4 + bit], 1ull);
}

constexpr int SLICES = 16;     // of a tile, for rows and columns that are recomputed alone
constexpr int MOST_ALONE = 8;  // rows, and columns, of a tile; with more the whole tile is recomputed
constexpr int MOST_PAIRS = 128;  // the same for pairs

// What a tile needs. All threads of a block find the same.
struct Repair {
    unsigned rows_alone, columns_alone;  // how many
    short row[MOST_ALONE], column[MOST_ALONE];
    unsigned char row_alone[TILE_M];
    unsigned pairs;  // how many
    short pair[MOST_PAIRS][2];
    GroupStats worst[2];  // of the rows and of the columns that are not alone
};
enum { NOTHING, SOME, WHOLE };  // rows, columns and pairs; or all of it

__device__ __forceinline__ int find_repair(const Params& s, const Tile& tile, const AcceptTest& test, bool all_pairs, TestedRow* a,
                                           Repair& repair) {
    constexpr int STEP = THREADS / TILE_N;
    const Problem& p = s.p;
    const int rows = (int)min(p.m - tile.m0, (long long)TILE_M), columns = (int)min(p.n - tile.n0, (long long)TILE_N);
    const int column = threadIdx.x % TILE_N;
    const RowStats* const a_rows = s.stats[0] + packed_matrix(s, 0, tile.matrix) * p.m + tile.m0;
    if (threadIdx.x == 0) repair.rows_alone = repair.columns_alone = repair.pairs = 0;
    if (threadIdx.x < 2) repair.worst[threadIdx.x] = NOTHING_SEEN;
    __syncthreads();
    GroupStats worst[2] = {NOTHING_SEEN, NOTHING_SEEN};
    for (int i = threadIdx.x; i < rows; i += THREADS) {
        const RowStats x = a_rows[i];
        const TestedRow row = test.see(x);
        const bool alone = test.alone(row, Scale{x.scale}.flags());
        a[i] = row, repair.row_alone[i] = alone;
        if (!alone) {
            worst[0].worsen(as_group(row, p.k));
            continue;
        }
        const unsigned place = atomicAdd(&repair.rows_alone, 1u);
        if (place < MOST_ALONE) repair.row[place] = (short)i;
    }
    TestedRow b{};
    bool b_alone = column >= columns;
    if (!b_alone) {
        const RowStats x = s.stats[1][packed_matrix(s, 1, tile.matrix) * p.n + tile.n0 + column];
        b = test.see(x), b_alone = test.alone(b, Scale{x.scale}.flags());
        if (b_alone && threadIdx.x < TILE_N) {
            const unsigned place = atomicAdd(&repair.columns_alone, 1u);
            if (place < MOST_ALONE) repair.column[place] = (short)column;
        }
        if (!b_alone && threadIdx.x < TILE_N) worst[1].worsen(as_group(b, p.k));
    }
    for (int side = 0; side < 2; side++) {
        worst[side].worsen_by_warp();
        if (threadIdx.x % 32 == 0) repair.worst[side].join(worst[side]);
    }
    __syncthreads();
    if (repair.rows_alone > MOST_ALONE || repair.columns_alone > MOST_ALONE) return WHOLE;
    if (all_pairs && !test.accept(repair.worst[0], repair.worst[1])) {
        if (!b_alone) {
            static_assert(TILE_M <= 64 * STEP);
            unsigned long long left = 0;  // in a loop of their own: else all pairs would take as long as these few
#pragma unroll 4
            for (int i = threadIdx.x / TILE_N; i < rows; i += STEP)
                left |= (unsigned long long)!(repair.row_alone[i] || test.accept_at_once(a[i], b)) << (i / STEP);
            for (; left; left &= left - 1) {
                const int i = (__ffsll((long long)left) - 1) * STEP + threadIdx.x / TILE_N;
                if (test.accept(a[i], b)) continue;
                const unsigned place = atomicAdd(&repair.pairs, 1u);
                if (place < MOST_PAIRS) repair.pair[place][0] = (short)i, repair.pair[place][1] = (short)column;
            }
        }
        __syncthreads();
        if (repair.pairs > MOST_PAIRS) return WHOLE;
    }
    return repair.rows_alone + repair.columns_alone + repair.pairs ? SOME : NOTHING;
}

// Elements of C, COUNT that share a row of A or a column of B, by LANES neighbouring threads, which share K. `one` is what they share,
// `others` are the rows of the other operand.
template <int LANES, int COUNT>
__device__ __forceinline__ void dot_products(const float* one, long long one_step, const float* const (&others)[COUNT],
                                             long long other_step, long long k_count, float (&sum)[COUNT]) {
    const int lane = threadIdx.x % LANES;
    one += lane * one_step;
    const float* other[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) sum[i] = 0.f, other[i] = others[i] + lane * other_step;
#pragma unroll 8
    for (long long k = lane; k < k_count; k += LANES) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sum[i] = fmaf(*one, *other[i], sum[i]);
            other[i] += LANES * other_step;
        }
        one += LANES * one_step;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset /= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], offset);
}

constexpr int AT_ONCE = 4;  // rows or columns that are recomputed together

__device__ __forceinline__ void recompute_alone(const Params& s, const Tile& tile, int slice, const Repair& repair) {
    constexpr int COLUMNS = TILE_N / SLICES, ROWS = TILE_M / SLICES;  // of a slice
    constexpr int COLUMN_LANES = THREADS / COLUMNS, ROW_LANES = THREADS / ROWS;
    const Problem& p = s.p;
    const Pointers at = pointers_of(p, tile.matrix);
    for (int first = 0; first < (int)repair.rows_alone; first += AT_ONCE) {
        const long long n = tile.n0 + slice * COLUMNS + threadIdx.x / COLUMN_LANES, column = min(n, p.n - 1);
        const float* rows[AT_ONCE];
        float sum[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) rows[i] = at.a + (tile.m0 + repair.row[min(first + i, (int)repair.rows_alone - 1)]) * p.a.row;
        dot_products<COLUMN_LANES>(at.b + column * p.b.col, p.b.row, rows, p.a.col, p.k, sum);
        if (threadIdx.x % COLUMN_LANES != 0 || n >= p.n) continue;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i < (int)repair.rows_alone)
                at.c[(tile.m0 + repair.row[first + i]) * p.c.row + n * p.c.col] = epilogue(sum[i], bias_at(p, n));
    }
    for (int first = 0; first < (int)repair.columns_alone; first += AT_ONCE) {
        const int in_tile = slice * ROWS + threadIdx.x / ROW_LANES;
        const long long m = tile.m0 + in_tile, row = min(m, p.m - 1);
        const float* columns[AT_ONCE];
        float sum[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            columns[i] = at.b + (tile.n0 + repair.column[min(first + i, (int)repair.columns_alone - 1)]) * p.b.col;
        dot_products<ROW_LANES>(at.a + row * p.a.row, p.a.col, columns, p.b.row, p.k, sum);
        // Not what a row alone computes: each element has one order of sums.
        if (threadIdx.x % ROW_LANES != 0 || m >= p.m || repair.row_alone[in_tile]) continue;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i < (int)repair.columns_alone) {
                const long long n = tile.n0 + repair.column[first + i];
                at.c[m * p.c.row + n * p.c.col] = epilogue(sum[i], bias_at(p, n));
            }
    }
}

__device__ __forceinline__ void recompute_pairs(const Params& s, const Tile& tile, const Repair& repair) {
    const Problem& p = s.p;
    const Pointers at = pointers_of(p, tile.matrix);
    for (unsigned i = threadIdx.x / 32; i < repair.pairs; i += THREADS / 32) {
        const long long m = tile.m0 + repair.pair[i][0], n = tile.n0 + repair.pair[i][1];
        const float* columns[1] = {at.b + n * p.b.col};
        float sum[1];
        dot_products<32>(at.a + m * p.a.row, p.a.col, columns, p.b.row, p.k, sum);
        if (threadIdx.x % 32 == 0) at.c[m * p.c.row + n * p.c.col] = epilogue(sum[0], bias_at(p, n));
    }
}

// The group that holds the rows of one operand that a tile needs.
__device__ __forceinline__ const GroupStats& group_of(const Params& s, int side, long long matrix, long long first) {
    static_assert(READY_ROWS % TILE_M == 0 && READY_ROWS % TILE_N == 0);
    const long long tile = row_tile(s, side, packed_matrix(s, side, matrix), first);
    return s.decision->groups[side][tile >> group_shift(row_tiles(s, side))];
}

extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS_PER_SM) mm32_fallback(const __grid_constant__ Params s) {
    extern __shared__ __align__(16) float ring[];
    __shared__ unsigned to_test[THREADS], count;
    __shared__ Repair repair;
    wait_for_previous_grid();
    bool cancelled = cancels(*s.decision);
    cancelled = cancelled && s.decision->tier == FIRST_TIER;  // and no lower tier has computed it since
    const unsigned tier = cancelled ? FMA : s.decision->tier;
    if (blockIdx.x == 0 && threadIdx.x == 0) count_call(s, tier);
    if (!s.decision->unsure && !cancelled) return;
    AcceptTest test(s, s.decision->scaled_lo);
    // Of bf16x6 pairs are tested only if there were tiny elements, and then for one place at which both are big: next to that, what
    // is lost of a tiny element is nothing.
    const bool all_pairs = tier == FIRST_TIER || s.decision->tiny;
    if (tier == BF16X6) test.limit = LARGEST_BF16X6, test.loss = 0x1p-100f, test.required = 0;
    const long long tiles = tiles_of<TILE_M, TILE_N>(s.p);
    // Whole tiles and pairs; then, if there are rows or columns to recompute alone, slices of tiles that have them.
    for (int phase = 0; phase < (tier != FMA && s.decision->alone[0] + s.decision->alone[1] ? 2 : 1); phase++) {
        const long long units = phase ? tiles * SLICES : tiles;
        for (long long base = blockIdx.x; base < units; base += (long long)gridDim.x * THREADS) {
            // First each thread tests one unit's tile by its groups of rows; then the block tests the rejected tiles row by row.
            if (threadIdx.x == 0) count = 0;
            __syncthreads();
            const long long mine = base + (long long)threadIdx.x * gridDim.x;
            if (mine < units) {
                const Tile tile = tile_at<TILE_M, TILE_N, false>(s.p, phase ? mine / SLICES : mine);
                const GroupStats a = group_of(s, 0, tile.matrix, tile.m0), b = group_of(s, 1, tile.matrix, tile.n0);
                const bool alone = a.alone || b.alone;
                const bool in_range = __uint_as_float(a.largest) <= test.limit && __uint_as_float(b.largest) <= test.limit;
                if (phase ? alone || !in_range : tier == FMA || alone || !in_range || (all_pairs && !test.accept(a, b))) to_test[atomicAdd(&count, 1u)] = threadIdx.x;
            }
            __syncthreads();
            for (unsigned i = 0; i < count; i++) {
                const long long at = base + (long long)to_test[i] * gridDim.x;
                const Tile tile = tile_at<TILE_M, TILE_N, false>(s.p, phase ? at / SLICES : at);
                const int needed = tier == FMA ? WHOLE : find_repair(s, tile, test, all_pairs, reinterpret_cast<TestedRow*>(ring), repair);
                if (needed == SOME) {
                    if (threadIdx.x == 0) count_recomputed(s, 1);
                    if (phase) recompute_alone(s, tile, (int)(at % SLICES), repair);
                    else recompute_pairs(s, tile, repair);
                } else if (needed == WHOLE && phase == 0) {
                    if (threadIdx.x == 0 && tier != FMA) count_recomputed(s, 0);
                    multiply_tile(s.p, tile, {0, s.p.k, pointers_of(s.p, tile.matrix).c, s.p.c.row, s.p.c.col}, ring);
                }
                __syncthreads();  // `repair` and the ring are free again
            }
            __syncthreads();
        }
    }
}
