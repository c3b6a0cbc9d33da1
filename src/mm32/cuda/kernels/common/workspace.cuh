// The argument of every kernel that uses a workspace: the problem, and where the parts of the workspace lie. Which parts exist
// depends on the plan; the pointers to the others are never read.
#pragma once
#include "common/problem.cuh"

struct RowStats;  // emulated/stats.cuh
struct Decision;  // emulated/stats.cuh

// Arrays of two hold A's value first, then B's.
struct Params {
    Problem p;
    char* panels[2];           // the packed operands (emulated/panels.cuh)
    RowStats* stats[2];        // one for each row of A and column of B
    unsigned* ready[2];        // counters of packed units: [matrix][ceil(rows / READY_ROWS)][ceil(K-blocks / CHUNK)]
    Decision* decision;        // what the accept test decided
    float* partial_sums;       // split-K: [part][matrix][M][N]; stream-K: partial tiles (fma/stream_k.cuh)
    long long matrices[2];     // how many matrices are packed: 1 if the whole batch shares the operand
    long long parts;           // split-K: how many blocks share K; stream-K: how many blocks share the last tiles
    long long early;           // 1: bf16x6's launches follow and may get the whole call before it is packed (emulated/early.cuh)
    long long first_rows[2];   // how many rows are packed first, for the multiply's first tiles. 0: the multiply waits for all
};

// The index of matrix i of the batch among the packed matrices of operand `side` (0: A, 1: B).
template <typename Index>
__device__ __forceinline__ Index packed_matrix(const Params& s, int side, Index i) {
    return s.matrices[side] == 1 ? 0 : i;
}
