// fallback: recomputes, by IEEE fp32 FMAs, the tiles of C whose row of A and column of B the accept test rejects for any element
// (emulated/panels.cuh). It is the last launch of an emulated product, and returns at once if all groups of rows were accepted.
//
// Launch: any number of blocks (grid-stride loop over tiles). fma/simt.cuh describes its threads, dynamic shared memory,
// registers, constants and what bounds it; emulated/panels.cuh describes PRODUCTS. The stats of a tile's rows of A use the memory
// of its ring.
#include "emulated/panels.cuh"
#include "fma/simt.cuh"
#include "ptx/dependent_launch.cuh"

static_assert(THREADS % TILE_N == 0 && sizeof(RowStats) * TILE_M <= 4 * STAGES * TILE_K * (TILE_M + TILE_N + 2 * PAD));

// How many calls have recomputed a tile.
extern "C" {
__device__ unsigned long long mm32_fallback_runs;
}

// Whether any row and column of a tile are rejected; all threads return the same. A thread tests a column with every STEP-th row.
__device__ __forceinline__ bool any_rejected(const Params& s, const Tile& tile, RowStats* a) {
    constexpr int STEP = THREADS / TILE_N;
    const Problem& p = s.p;
    const int rows = (int)min(p.m - tile.m0, (long long)TILE_M), columns = (int)min(p.n - tile.n0, (long long)TILE_N);
    const int column = threadIdx.x % TILE_N;
    const RowStats* const a_rows = s.stats[0] + packed_matrix(s, 0, tile.matrix) * p.m + tile.m0;
    for (int i = threadIdx.x; i < rows; i += THREADS) a[i] = a_rows[i];
    __syncthreads();
    bool rejected = false;
    if (column < columns) {
        const RowStats b = s.stats[1][packed_matrix(s, 1, tile.matrix) * p.n + tile.n0 + column];
        const float big = big_from(p.k), required = required_places(p.k);
        for (int i = threadIdx.x / TILE_N; i < rows; i += STEP) rejected |= !accept_rows(a[i], b, big, required);
    }
    return __syncthreads_or(rejected);
}

// The worst of the groups that hold the rows of one operand that a tile needs.
__device__ __forceinline__ GroupStats worst_of(const Params& s, int side, long long matrix, long long first, int count) {
    const long long rows = side ? s.p.n : s.p.m, before = packed_matrix(s, side, matrix) * rows;
    const int shift = group_shift(s.matrices[side] * rows);
    const int last = (int)((before + min(first + count, rows) - 1) >> shift);
    GroupStats worst{0, 0, 0};
    for (int i = (int)((before + first) >> shift); i <= last; i++) {
        const GroupStats& x = s.decision->groups[side][i];
        worst = {max(worst.small, x.small), max(worst.largest, x.largest), max(worst.gaps, x.gaps)};
    }
    return worst;
}

extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS_PER_SM) mm32_fallback(const __grid_constant__ Params s) {
    extern __shared__ __align__(16) float ring[];
    __shared__ unsigned to_test[THREADS], count;
    wait_for_previous_grid();
    if (!s.decision->unsure) return;
    const long long tiles = tiles_of<TILE_M, TILE_N>(s.p);
    const float big = big_from(s.p.k), required = required_places(s.p.k);
    for (long long base = blockIdx.x; base < tiles; base += (long long)gridDim.x * THREADS) {
        // First each thread tests one tile by its groups of rows; then the block tests the rejected tiles row by row.
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
        const long long mine = base + (long long)threadIdx.x * gridDim.x;
        if (mine < tiles) {
            const Tile tile = tile_at<TILE_M, TILE_N, false>(s.p, mine);
            const GroupStats a = worst_of(s, 0, tile.matrix, tile.m0, TILE_M), b = worst_of(s, 1, tile.matrix, tile.n0, TILE_N);
            if (!accept_groups(a, b, s.p.k, big, required)) to_test[atomicAdd(&count, 1u)] = threadIdx.x;
        }
        __syncthreads();
        for (unsigned i = 0; i < count; i++) {
            const Tile tile = tile_at<TILE_M, TILE_N, false>(s.p, base + (long long)to_test[i] * gridDim.x);
            if (!any_rejected(s, tile, reinterpret_cast<RowStats*>(ring))) continue;
            if (threadIdx.x == 0 && atomicExch(&s.decision->fallback_ran, 1u) == 0) atomicAdd(&mm32_fallback_runs, 1ull);
            multiply_tile(s.p, tile, {0, s.p.k, pointers_of(s.p, tile.matrix).c, s.p.c.row, s.p.c.col}, ring);
        }
        __syncthreads();
    }
}
