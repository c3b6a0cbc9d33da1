// simt: C by IEEE fp32 FMAs, one tile of simt.cuh after another. Where K is split among blocks (SPLIT = 1), their sums go to
// Split::partial, and mm32_reduce adds them up. Stream-K (SPLIT = 2): as many tiles as fill the card a whole number of times are
// made as ever; the rest are shared out evenly, see stream.cuh, and mm32_fixup adds up what their pieces hold.
//
// Launch: min(parts of K * batches * ceil(M/TILE_M) * ceil(N/TILE_N), 2^31-1) blocks; a block takes further tiles a grid apart.
// With stream-K, Split::splits blocks: as many as the card holds.
// Threads, shared memory, registers, constants and what bounds it: simt.cuh.
#include "fma/simt.cuh"
#if MM32_SPLIT
#include "emulated/panels.cuh"
#endif
#if MM32_SPLIT == 2
#include "fma/stream_k.cuh"
#endif

#if MM32_SPLIT == 1
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
#elif MM32_SPLIT == 2
extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS) mm32_simt(const __grid_constant__ Split s) {
    extern __shared__ __align__(16) float ring[];
    let_next_start();
    const Problem& p = s.p;
    const Shares shares(s);
    long long whole = blockIdx.x, at = shares.first_of(blockIdx.x);
    const long long end = shares.first_of(blockIdx.x + 1);
    while (whole < shares.whole || at < end) {
        long long t = whole;
        Part part{0, p.k, nullptr, p.c.row, p.c.col, nullptr};
        if (whole < shares.whole) {
            whole += s.splits;
        } else {
            const long long shared = quotient(at, shares.steps), step = at - shared * shares.steps;
            const long long count = min(end - at, shares.steps - step);
            t += shared - (whole - shares.whole);
            part.begin = step * TILE_K;
            part.k = min(part.begin + count * TILE_K, p.k) - part.begin;
            part.piece = s.partial + (blockIdx.x + shared) * (TILE_M * TILE_N);
            at += count;
        }
        const Tile tile = tile_at(p, t);
        part.c = locate(p, tile.matrix).c;
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
