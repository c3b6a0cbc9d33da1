// reduce: the sums that blocks made of their parts of K -> C, in a fixed order (the same bits in every run), with the epilogue.
//
// Launch: any number of blocks of 256 threads, a grid apart over the elements of C. Bounded by memory: splits + 1 floats each.
#include "epilogue.cuh"
#include "split.cuh"

extern "C" __global__ void __launch_bounds__(256) mm32_reduce(const __grid_constant__ Split s) {
    wait_for_previous();
    const Problem& p = s.p;
    const long long elements = p.batches * p.m * p.n;
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < elements; i += gridDim.x * 256LL) {
        const long long in_matrix = i % (p.m * p.n), m = in_matrix / p.n, n = in_matrix % p.n;
        float sum = s.partial[i];
#pragma unroll 16  // loads that are under way together: of 256 parts for few outputs each is a wait
        for (long long part = 1; part < s.splits; part++) sum += s.partial[part * elements + i];
        locate(p, i / (p.m * p.n)).c[m * p.c.row + n * p.c.col] = epilogue(sum, bias_at(p, n));
    }
}
