// naive: one thread computes one element of C. The kernel to start reading with.
//
// Launch: min(ceil(batches * M * N / 128), 2^31 - 1) blocks of 128 threads (grid-stride loop over the elements of C).
// No shared memory; 46 to 48 registers.
// Bound by load instructions: each step of K takes two loads for one FMA, so the FMA units mostly wait.
//   MM32_ALONG_M     the output axis along which neighbouring threads lie, chosen so that an operand's loads coalesce:
//                    0: N (B's loads coalesce), 1: M (A's loads coalesce)
#include "common/epilogue.cuh"

extern "C" __global__ void __launch_bounds__(128) mm32_naive(const __grid_constant__ Problem p) {
    const long long elements = p.batches * p.m * p.n;
    for (long long i = blockIdx.x * 128LL + threadIdx.x; i < elements; i += gridDim.x * 128LL) {
        const long long in_matrix = i % (p.m * p.n);
        const Pointers at = pointers_of(p, i / (p.m * p.n));
#if MM32_ALONG_M
        const long long m = in_matrix % p.m, n = in_matrix / p.m;
#else
        const long long m = in_matrix / p.n, n = in_matrix % p.n;
#endif
        const float* a = at.a + m * p.a.row;
        const float* b = at.b + n * p.b.col;
        float sum = 0.f;
        for (long long k = 0; k < p.k; k++) {
            sum = fmaf(*a, *b, sum);
            a += p.a.col;
            b += p.b.row;
        }
        at.c[m * p.c.row + n * p.c.col] = epilogue(sum, bias_at(p, n));
    }
}
