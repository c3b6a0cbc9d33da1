// careful: computes anew, by IEEE fp32 FMAs, the tiles of C that hold a pair of a row of A and a column of B which the split does
// not suit (docs/numerics.md). The last launch of a tensor-core product; it returns at once where mm32_pack found no doubt.
//
// Launch: any number of blocks, tiles a grid apart. Threads, shared memory, registers and constants as in simt.cuh; the stats of a
// tile's rows of A stand where its ring begins.
#include "simt.cuh"
#include "split.cuh"

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

extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS) mm32_careful(const __grid_constant__ Split s) {
    extern __shared__ __align__(16) float ring[];
    wait_for_previous();
    if (!s.verdict->unsure) return;
    const long long tiles = tiles_of(s.p);
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        const Tile tile = tile_at(s.p, t);
        if (!misfit(s, tile, reinterpret_cast<RowStats*>(ring))) continue;
        if (threadIdx.x == 0 && atomicExch(&s.verdict->careful, 1u) == 0) atomicAdd(&mm32_careful_runs, 1ull);
        multiply_tile(s.p, tile, ring);
    }
}
