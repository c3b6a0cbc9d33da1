// What the launches of an emulated product tell one another about the data: the structs that Params points to. They do not depend
// on a launch's constants, so that launches of different schemes share them. emulated/panels.cuh says how they are used.
#pragma once

struct RowStats {
    unsigned long long big[2];  // bit i: sampled element i, scaled, is at least big_from(K)
    int exponent;
    unsigned small;    // how many elements are not zero and, scaled, below SMALL
    unsigned largest;  // the bits of the largest scaled magnitude
};

// The worst of a group of rows: the most small elements, the bits of the largest element, the most samples that are not big.
struct GroupStats {
    unsigned small, largest, gaps;
};
constexpr int ROW_GROUPS = 512;  // of an operand, at most

// What the accept test decided about a whole call.
struct Decision {
    unsigned fallback_ran;     // 1: mm32_fallback has recomputed a tile of C
    unsigned unsure;           // 1: mm32_fallback must test the tiles that `groups` do not accept
    unsigned finished_blocks;  // blocks of mm32_pack (with inline packing, of mm32_tensorcore) that have finished
    unsigned packed;           // 1: mm32_pack has finished, and `ready` need not be read any more
    GroupStats groups[2][ROW_GROUPS];  // of A and B; written only if unsure
};
