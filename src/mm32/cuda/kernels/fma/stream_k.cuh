// Stream-K: how the tiles of a last wave that would not fill the card are shared by all blocks (simt.cu, fixup.cu). 256 tiles on
// 132 multiprocessors would otherwise take the time of 264.
//
// The steps along K of the shared tiles are laid end to end and cut into equal shares, one for each block (or of one step each if
// there are fewer steps than blocks). A share usually begins in one tile and ends in another. Its sums for each tile go to a
// partial tile of TILE_M x TILE_N floats in the workspace. Share b's partial tile of shared tile t has index b + t: going through
// the steps in order, each partial tile differs from the one before in its share or in its tile, so the index counts them.
#pragma once
#include "common/workspace.cuh"
#include "fma/simt.cuh"

struct StreamK {
    long long whole_tiles, shared_tiles;
    long long steps;  // along K of one tile
    long long shares;

    __device__ __forceinline__ explicit StreamK(const Params& s) : steps(ceil_div(s.p.k, TILE_K)) {
        const long long tiles = tiles_of<TILE_M, TILE_N>(s.p), blocks = s.parts;
        whole_tiles = quotient(tiles, blocks) * blocks;
        shared_tiles = tiles - whole_tiles;
        shares = min(blocks, shared_tiles * steps);
    }
    // The first step of a share. Steps are counted through all shared tiles.
    __device__ __forceinline__ long long first_step(long long share) const {
        return quotient(shared_tiles * steps * min(share, shares), shares);
    }
    // The share that has a step.
    __device__ __forceinline__ long long share_of(long long step) const {
        return quotient((step + 1) * shares - 1, shared_tiles * steps);
    }
};
