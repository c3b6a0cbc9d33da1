// What every kernel computes: C[i, m, n] = activation(sum over k of A[i, m, k] * B[i, k, n] + bias[n]).
//
// Element (row, col) of matrix i of an operand lies at data + (batch offset of i) + row * matrix.row + col * matrix.col.
// Strides are in elements. Sizes and strides have 64 bits because operands and outputs may have more than 2^31 elements.
#pragma once

#define MM32_MAX_BATCH_RANK 8

struct Matrix {
    float* data;
    long long row, col;                    // strides
    long long batch[MM32_MAX_BATCH_RANK];  // strides of the batch dimensions, 0 where the batch shares one matrix
};

struct Problem {
    long long m, n, k;
    long long batches;                          // product of batch_size
    long long batch_size[MM32_MAX_BATCH_RANK];  // innermost dimension last
    long long batch_rank;
    Matrix a, b, c;
    const float* bias;  // read only if MM32_BIAS is 1
    long long bias_stride;
};

// The first elements of one matrix of A, of B and of C.
struct Pointers {
    const float *a, *b;
    float* c;
};

// The pointers of matrix i of the batch.
__device__ __forceinline__ Pointers pointers_of(const Problem& p, long long i) {
    Pointers at{p.a.data, p.b.data, p.c.data};
    for (int d = (int)p.batch_rank - 1; d >= 0; d--) {
        long long size = p.batch_size[d], index = i % size;
        i /= size;
        at.a += index * p.a.batch[d];
        at.b += index * p.b.batch[d];
        at.c += index * p.c.batch[d];
    }
    return at;
}

// a / b for non-negative numbers. If both fit 32 bits it divides 32-bit numbers, because a 64-bit division takes half a
// microsecond of a block's start.
__device__ __forceinline__ long long quotient(long long a, long long b) {
    return (a | b) >> 32 ? a / b : (long long)((unsigned)a / (unsigned)b);
}

__host__ __device__ __forceinline__ long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }
