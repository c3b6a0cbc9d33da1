// Stream-K: how the tiles beyond whole waves of blocks are shared (simt.cu, fixup.cu). Their steps along K, one tile's after the
// other's, are cut into as many equal shares as there are blocks. A block's share begins in one tile and may end in another; what
// it adds up of each is a piece of the workspace, TILE_M x TILE_N floats. Block b's piece of the shared tile t is piece b + t: from
// one piece to the next, the block or the tile is the next one.
#pragma once
#include "simt.cuh"
#include "split.cuh"

struct Shares {
    long long blocks, whole, shared, steps;  // tiles made whole, and shared; steps along K of one tile

    __device__ __forceinline__ explicit Shares(const Split& s) : blocks(s.splits), steps(ceil_div(s.p.k, TILE_K)) {
        const long long tiles = tiles_of(s.p);
        whole = quotient(tiles, blocks) * blocks;
        shared = tiles - whole;
    }
    // The first step of a block's share, of the steps of all shared tiles; and the block that makes a step.
    __device__ __forceinline__ long long first_of(long long block) const { return quotient(shared * steps * block, blocks); }
    __device__ __forceinline__ long long block_of(long long step) const {
        return quotient((step + 1) * blocks - 1, shared * steps);
    }
};
