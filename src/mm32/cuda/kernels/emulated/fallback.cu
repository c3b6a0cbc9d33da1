// careful: computes anew, by IEEE fp32 FMAs, the tiles of C that hold a pair of a row of A and a column of B which the split does
// not suit (docs/numerics.md). The last launch of a tensor-core product; it returns at once where mm32_pack found no doubt.
//
// Launch: any number of blocks, tiles a grid apart. Threads, shared memory, registers and constants as in simt.cuh; the stats of a
// tile's rows of A stand where its ring begins.
#include "fma/simt.cuh"
#include "emulated/panels.cuh"

static_assert(THREADS % TILE_N == 0 && sizeof(RowStats) * TILE_M <= 4 * STAGES * TILE_K * (TILE_M + TILE_N + 2 * PAD));

// Calls of which a tile was computed anew.
extern "C" {
__device__ unsigned long long mm32_careful_runs;
}

// Whether any pair of a tile does not fit, the same for all threads. A thread has a column and looks at every STEP-th row.
__device__ __forceinline__ bool misfit(const Split& s, const Tile& tile, RowStats* a) {
    constexpr int STEP = THREADS / TILE_N;
    const Problem& p = s.p;
    const int rows = (int)min(p.m - tile.m0, (long long)TILE_M), columns = (int)min(p.n - tile.n0, (long long)TILE_N);
    const int column = threadIdx.x % TILE_N;
    const RowStats* const a_rows = s.stats[0] + (s.matrices[0] == 1 ? 0 : tile.matrix) * p.m + tile.m0;
    for (int i = threadIdx.x; i < rows; i += THREADS) a[i] = a_rows[i];
    __syncthreads();
    bool bad = false;
    if (column < columns) {
        const RowStats b = s.stats[1][(s.matrices[1] == 1 ? 0 : tile.matrix) * p.n + tile.n0 + column];
        const float big = big_from(p.k), few = fewest(p.k);
        for (int i = threadIdx.x / TILE_N; i < rows; i += STEP) bad |= !fits(a[i], b, big, few);
    }
    return __syncthreads_or(bad);
}

// The worst of the groups that hold a tile's rows of one side.
__device__ __forceinline__ Worst worst_of(const Split& s, int side, long long matrix, long long first, int count) {
    const long long rows = side ? s.p.n : s.p.m, before = (s.matrices[side] == 1 ? 0 : matrix) * rows;
    const int shift = group_shift(s.matrices[side] * rows);
    const int last = (int)((before + min(first + count, rows) - 1) >> shift);
    Worst worst{0, 0, 0};
    for (int i = (int)((before + first) >> shift); i <= last; i++) {
        const Worst& x = s.verdict->worst[side][i];
        worst = {max(worst.small, x.small), max(worst.largest, x.largest), max(worst.gaps, x.gaps)};
    }
    return worst;
}

extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS) mm32_careful(const __grid_constant__ Split s) {
    extern __shared__ __align__(16) float ring[];
    __shared__ unsigned doubtful[THREADS], count;
    wait_for_previous();
    if (!s.verdict->unsure) return;
    const long long tiles = tiles_of(s.p);
    const float big = big_from(s.p.k), few = fewest(s.p.k);
    for (long long base = blockIdx.x; base < tiles; base += (long long)gridDim.x * THREADS) {
        // First by groups of rows, a thread a tile.
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
        const long long mine = base + (long long)threadIdx.x * gridDim.x;
        if (mine < tiles) {
            const Tile tile = tile_at(s.p, mine);
            const Worst a = worst_of(s, 0, tile.matrix, tile.m0, TILE_M), b = worst_of(s, 1, tile.matrix, tile.n0, TILE_N);
            if (!good(a, b, s.p.k, big, few)) doubtful[atomicAdd(&count, 1u)] = threadIdx.x;
        }
        __syncthreads();
        for (unsigned i = 0; i < count; i++) {
            const Tile tile = tile_at(s.p, base + (long long)doubtful[i] * gridDim.x);
            if (!misfit(s, tile, reinterpret_cast<RowStats*>(ring))) continue;
            if (threadIdx.x == 0 && atomicExch(&s.verdict->careful, 1u) == 0) atomicAdd(&mm32_careful_runs, 1ull);
            multiply_tile(s.p, tile, {0, s.p.k, locate(s.p, tile.matrix).c, s.p.c.row, s.p.c.col}, ring);
        }
        __syncthreads();
    }
}
