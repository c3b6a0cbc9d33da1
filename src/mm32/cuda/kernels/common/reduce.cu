// reduce: the sums that blocks made of their parts of K -> C, in a fixed order (the same bits in every run), with the epilogue.
//
// Launch: any number of blocks of 256 threads, a grid apart over the elements of C, four to a thread where N is a multiple of 4.
// Bounded by memory: splits + 1 floats an element.
#include "common/epilogue.cuh"
#include "common/partial_sums.cuh"
#include "emulated/panels.cuh"

template <int WIDTH>
__device__ __forceinline__ void add_up(const Split& s) {
    using Some = Neighbours<WIDTH>;
    const Problem& p = s.p;
    const long long in_matrix = p.m * p.n, elements = p.batches * in_matrix;
    for (long long i = (blockIdx.x * 256LL + threadIdx.x) * WIDTH; i < elements; i += gridDim.x * 256LL * WIDTH) {
        Some sum = sum_of_parts<WIDTH>(s.partial + i, s.splits, elements);
        const long long matrix = p.batches == 1 ? 0 : quotient(i, in_matrix), place = i - matrix * in_matrix;
        const long long m = quotient(place, p.n), n = place - m * p.n;
        float* const c = locate(p, matrix).c + m * p.c.row + n * p.c.col;
#pragma unroll
        for (int v = 0; v < WIDTH; v++) sum.at[v] = epilogue(sum.at[v], bias_at(p, n + v));
        if (p.c.col == 1 && reinterpret_cast<unsigned long long>(c) % sizeof(Some) == 0) {
            *reinterpret_cast<Some*>(c) = sum;
        } else {
#pragma unroll
            for (int v = 0; v < WIDTH; v++) c[v * p.c.col] = sum.at[v];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) mm32_reduce(const __grid_constant__ Split s) {
    wait_for_previous();
    if (s.p.n % 4 == 0) add_up<4>(s);
    else add_up<1>(s);
}
