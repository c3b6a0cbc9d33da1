// The one argument every kernel takes: C[i, m, n] = act(sum_k A[i, m, k] * B[i, k, n] + bias[n]).
// Element (row, col) of an operand's matrix i lies at data + i's batch offset + row * row_stride + col * col_stride. Strides
// and sizes are 64-bit: operands and outputs may pass 2^31 elements.
#pragma once

#define MM32_MAX_BATCH_RANK 8

struct Matrix {
    float* data;
    long long row, col;
    long long batch[MM32_MAX_BATCH_RANK];
};

struct Problem {
    long long m, n, k;
    long long batches;                          // product of batch_size
    long long batch_size[MM32_MAX_BATCH_RANK];  // innermost last
    long long batch_rank;
    Matrix a, b, c;
    const float* bias;  // read only where MM32_BIAS is 1
    long long bias_stride;
};

// Where matrix i of each operand starts.
struct Batch {
    const float *a, *b;
    float* c;
};

__device__ __forceinline__ Batch locate(const Problem& p, long long i) {
    Batch at{p.a.data, p.b.data, p.c.data};
    for (int d = (int)p.batch_rank - 1; d >= 0; d--) {
        long long size = p.batch_size[d], index = i % size;
        i /= size;
        at.a += index * p.a.batch[d];
        at.b += index * p.b.batch[d];
        at.c += index * p.c.batch[d];
    }
    return at;
}

// Of what is not negative. A division of 64 bits is half a microsecond of a block's start.
__device__ __forceinline__ long long quotient(long long a, long long b) {
    return (a | b) >> 32 ? a / b : (long long)((unsigned)a / (unsigned)b);
}

__host__ __device__ __forceinline__ long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }
