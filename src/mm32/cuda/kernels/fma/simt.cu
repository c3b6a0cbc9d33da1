// simt: C by IEEE fp32 FMAs, in tiles that fma/simt.cuh computes. There are three ways to share the work:
//   each block computes whole tiles
//   split-K     `parts` blocks share a tile's K. Their sums go to Params::partial_sums, and mm32_reduce adds them. For few tiles.
//   stream-K    the tiles that fill the card a whole number of times are computed whole. The remaining tiles are cut into equal
//               shares (fma/stream_k.cuh), and mm32_fixup adds their partial tiles.
//
// Launch: min(parts * batches * ceil(M/TILE_M) * ceil(N/TILE_N), 2^31 - 1) blocks (grid-stride loop over tiles). With stream-K,
// exactly `parts` blocks: as many as the card holds.
// Threads, shared memory, registers, constants and what bounds it: fma/simt.cuh.
//   MM32_SPLIT_K     1: split-K
//   MM32_STREAM_K    1: stream-K
#include "common/workspace.cuh"
#include "fma/simt.cuh"
#include "ptx/dependent_launch.cuh"
#if MM32_STREAM_K
#include "fma/stream_k.cuh"
#endif

#if MM32_SPLIT_K
extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS_PER_SM) mm32_simt(const __grid_constant__ Params s) {
    extern __shared__ __align__(16) float ring[];
    launch_dependents();
    const Problem& p = s.p;
    const long long tiles = s.parts * tiles_of<TILE_M, TILE_N>(p), steps = ceil_div(p.k, TILE_K);
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        Tile tile = tile_at<TILE_M, TILE_N, true>(p, t);
        const long long part = quotient(tile.matrix, p.batches);
        const long long begin = quotient(steps * part, s.parts) * TILE_K;
        const long long end = min(quotient(steps * (part + 1), s.parts) * TILE_K, p.k);
        const Slice slice{begin, end - begin, s.partial_sums + tile.matrix * p.m * p.n, p.n, 1};
        tile.matrix -= part * p.batches;
        multiply_tile(p, tile, slice, ring);
    }
}
#elif MM32_STREAM_K
extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS_PER_SM) mm32_simt(const __grid_constant__ Params s) {
    extern __shared__ __align__(16) float ring[];
    launch_dependents();
    const Problem& p = s.p;
    const StreamK stream(s);
    long long whole = blockIdx.x, step = stream.first_step(blockIdx.x);
    const long long end = stream.first_step(blockIdx.x + 1);
    while (whole < stream.whole_tiles || step < end) {
        long long t = whole;
        Slice slice{0, p.k, nullptr, p.c.row, p.c.col, nullptr};
        if (whole < stream.whole_tiles) {
            whole += s.parts;
        } else {
            const long long shared = quotient(step, stream.steps), in_tile = step - shared * stream.steps;
            const long long count = min(end - step, stream.steps - in_tile);
            t += shared - (whole - stream.whole_tiles);
            slice.begin = in_tile * TILE_K;
            slice.k = min(slice.begin + count * TILE_K, p.k) - slice.begin;
            slice.partial_tile = s.partial_sums + (blockIdx.x + shared) * (TILE_M * TILE_N);
            step += count;
        }
        const Tile tile = tile_at<TILE_M, TILE_N, false>(p, t);
        slice.c = pointers_of(p, tile.matrix).c;
        multiply_tile(p, tile, slice, ring);
    }
}
#else
extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS_PER_SM) mm32_simt(const __grid_constant__ Problem p) {
    extern __shared__ __align__(16) float ring[];
    const long long tiles = tiles_of<TILE_M, TILE_N>(p);
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        const Tile tile = tile_at<TILE_M, TILE_N, false>(p, t);
        multiply_tile(p, tile, {0, p.k, pointers_of(p, tile.matrix).c, p.c.row, p.c.col}, ring);
    }
}
#endif
