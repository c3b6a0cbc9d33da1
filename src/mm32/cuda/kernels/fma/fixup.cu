// fixup: the tiles of C that simt's blocks shared (stream.cuh), from their pieces, in a fixed order, with the epilogue.
//
// Launch: any number of blocks of as many threads as simt.cu's, a grid apart over shared tiles and rows of SLICES; a thread has the
// place that it has there, so that it reads what a thread of the same number wrote. Constants: simt.cu's.
// Bounded by memory: the pieces once, two or three floats an element where a wave is nearly full.
#include "common/partial_sums.cuh"
#include "fma/stream_k.cuh"

constexpr int SLICES = THREAD_M * (THREAD_N / 4);

extern "C" __global__ void __launch_bounds__(THREADS) mm32_fixup(const __grid_constant__ Split s) {
    wait_for_previous();
    const Problem& p = s.p;
    const Shares shares(s);
    const Place in_tile = place_of_thread();
    for (long long at = blockIdx.x; at < shares.shared * SLICES; at += gridDim.x) {
        const long long shared = at / SLICES;
        const int slice = (int)(at % SLICES), i = slice / (THREAD_N / 4), j = slice % (THREAD_N / 4) * 4;
        const long long first = shares.share_of(shared * shares.steps), last = shares.share_of((shared + 1) * shares.steps - 1);
        float* const piece = s.partial + (first + shared) * (TILE_M * TILE_N);
        const auto sum = sum_of_parts<4>(reinterpret_cast<const float*>(in_piece(piece, i, j)), last - first + 1, TILE_M * TILE_N);
        const Tile tile = tile_at(p, shares.whole + shared);
        const long long m = tile.m0 + in_tile.m + i / 4 * 32 + i % 4, n = tile.n0 + in_tile.n + j / 4 * 16;
        float bias[4];
        read_bias(p, n, bias);
        store_four(p, {0, 0, locate(p, tile.matrix).c, p.c.row, p.c.col, nullptr}, m, n, sum.at, bias);
    }
}
