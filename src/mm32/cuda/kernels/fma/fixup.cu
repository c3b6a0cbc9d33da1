// fixup: adds the partial tiles of simt's stream-K (fma/stream_k.cuh) in a fixed order, applies the epilogue and writes C.
//
// Launch: any number of blocks of as many threads as simt.cu's (grid-stride loop over quads; a quad is 4 neighbouring sums of
// each thread). A thread has the sums of simt's thread of the same number, and so reads what that thread wrote.
// No shared memory; up to 64 registers. Constants: simt.cu's, with STREAM_K = 1.
// Bound by memory: it reads every partial tile once, two or three floats for each element of the shared tiles.
#include "common/partial_sums.cuh"
#include "fma/stream_k.cuh"
#include "ptx/dependent_launch.cuh"

constexpr int QUADS = THREAD_M * (THREAD_N / 4);  // quads of a tile

extern "C" __global__ void __launch_bounds__(THREADS) mm32_fixup(const __grid_constant__ Params s) {
    wait_for_previous_grid();
    const Problem& p = s.p;
    const StreamK stream(s);
    const ThreadOrigin origin = thread_origin();
    for (long long at = blockIdx.x; at < stream.shared_tiles * QUADS; at += gridDim.x) {
        const long long shared = at / QUADS;
        const int quad = (int)(at % QUADS), i = quad / (THREAD_N / 4), j = quad % (THREAD_N / 4) * 4;
        const long long first = stream.share_of(shared * stream.steps);
        const long long last = stream.share_of((shared + 1) * stream.steps - 1);
        float* const partial_tile = s.partial_sums + (first + shared) * (TILE_M * TILE_N);
        const float* const sums = reinterpret_cast<const float*>(in_partial_tile(partial_tile, i, j));
        const auto sum = add_partial_sums<4>(sums, last - first + 1, TILE_M * TILE_N);
        const Tile tile = tile_at<TILE_M, TILE_N, false>(p, stream.whole_tiles + shared);
        const long long m = tile.m0 + origin.m + i / 4 * 32 + i % 4, n = tile.n0 + origin.n + j / 4 * 16;
        float bias[4];
        load_bias(p, n, bias);
        store_four(p, {0, 0, pointers_of(p, tile.matrix).c, p.c.row, p.c.col, nullptr}, m, n, sum.at, bias);
    }
}
