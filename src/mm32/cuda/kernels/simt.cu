// simt: C by IEEE fp32 FMAs, one tile of simt.cuh after another. Where K is split among blocks (SPLIT), their sums go to
// Split::partial, and mm32_reduce adds them up.
//
// Launch: min(parts of K * batches * ceil(M/TILE_M) * ceil(N/TILE_N), 2^31-1) blocks; a block takes further tiles a grid apart.
// Threads, shared memory, registers, constants and what bounds it: simt.cuh.
#include "simt.cuh"
#if MM32_SPLIT
#include "split.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS) mm32_simt(const __grid_constant__ Split s) {
    extern __shared__ __align__(16) float ring[];
    let_next_start();
    const Problem& p = s.p;
    const long long tiles = s.splits * tiles_of(p), steps = ceil_div(p.k, TILE_K);
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        Tile tile = tile_at(p, t);
        const long long split = quotient(tile.matrix, p.batches);
        const long long begin = quotient(steps * split, s.splits) * TILE_K, end = min(quotient(steps * (split + 1), s.splits) * TILE_K, p.k);
        const Part part{begin, end - begin, s.partial + tile.matrix * p.m * p.n, p.n, 1};
        tile.matrix -= split * p.batches;
        multiply_tile(p, tile, part, ring);
    }
}
#else
extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS) mm32_simt(const __grid_constant__ Problem p) {
    extern __shared__ __align__(16) float ring[];
    const long long tiles = tiles_of(p);
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        const Tile tile = tile_at(p, t);
        multiply_tile(p, tile, {0, p.k, locate(p, tile.matrix).c, p.c.row, p.c.col}, ring);
    }
}
#endif
