// A or B as a kernel reads it. Its rows are M for A and N for B, so that one piece of code serves both operands.
#pragma once
#include "common/problem.cuh"

struct Operand {
    const float* data;  // element (row 0, k 0)
    long long row_stride, k_stride, rows;

    // The operand without its first `row` rows and `k` places along K.
    __device__ __forceinline__ Operand from(long long row, long long k) const {
        return {data + row * row_stride + k * k_stride, row_stride, k_stride, rows - row};
    }
};

// Operand `side` (0: A, 1: B) of the matrices at `at`.
__device__ __forceinline__ Operand operand_of(const Problem& p, const Pointers& at, int side) {
    return side == 0 ? Operand{at.a, p.a.row, p.a.col, p.m} : Operand{at.b, p.b.col, p.b.row, p.n};
}
