// Stream-K: how the tiles beyond whole waves of blocks are shared (simt.cu, fixup.cu). Their steps along K, one tile's after the
// other's, are cut into equal shares, one for each block, or of one step where there are fewer. A share begins in one tile and may
// end in another; what it adds up of each is a piece of the workspace, TILE_M x TILE_N floats. Share b's piece of the shared tile t
// is piece b + t: from one piece to the next, the share or the tile is the next one.
#pragma once
#include "fma/simt.cuh"
#include "emulated/panels.cuh"

struct Shares {
    long long whole, shared, steps, shares;  // tiles made whole, and shared; steps along K of one tile

    __device__ __forceinline__ explicit Shares(const Split& s) : steps(ceil_div(s.p.k, TILE_K)) {
        const long long tiles = tiles_of(s.p), blocks = s.splits;
        whole = quotient(tiles, blocks) * blocks;
        shared = tiles - whole;
        shares = min(blocks, shared * steps);
    }
    // The first of a share's steps, counted through all shared tiles; and whose share a step is in.
    __device__ __forceinline__ long long first_of(long long share) const {
        return quotient(shared * steps * min(share, shares), shares);
    }
    __device__ __forceinline__ long long share_of(long long step) const {
        return quotient((step + 1) * shares - 1, shared * steps);
    }
};
