// reduce: adds the partial sums of split-K in a fixed order (the same bits in every run), applies the epilogue and writes C.
//
// Launch: any number of blocks of 256 threads (grid-stride loop over the elements of C). A thread computes 4 elements at a time
// if N is a multiple of 4, otherwise 1.
// No shared memory; up to 64 registers on sm_90.
// Bound by memory: it reads `parts` floats and writes one for each element of C.
//   MM32_GUARDED   1: this is the lower tier's reduction, which does something only if the decision asked for that tier
#include "common/epilogue.cuh"
#include "common/partial_sums.cuh"
#include "common/workspace.cuh"
#include "ptx/dependent_launch.cuh"
#if MM32_GUARDED
#include "emulated/stats.cuh"
#endif

template <int WIDTH>
__device__ __forceinline__ void reduce(const Params& s) {
    using Vector = Floats<WIDTH>;
    const Problem& p = s.p;
    const long long in_matrix = p.m * p.n, elements = p.batches * in_matrix;
    for (long long i = (blockIdx.x * 256LL + threadIdx.x) * WIDTH; i < elements; i += gridDim.x * 256LL * WIDTH) {
        Vector sum = add_partial_sums<WIDTH>(s.partial_sums + i, s.parts, elements);
        const long long matrix = p.batches == 1 ? 0 : quotient(i, in_matrix), element = i - matrix * in_matrix;
        const long long m = quotient(element, p.n), n = element - m * p.n;
        float* const c = pointers_of(p, matrix).c + m * p.c.row + n * p.c.col;
#pragma unroll
        for (int v = 0; v < WIDTH; v++) sum.at[v] = epilogue(sum.at[v], bias_at(p, n + v));
        if (p.c.col == 1 && reinterpret_cast<unsigned long long>(c) % sizeof(Vector) == 0) {
            *reinterpret_cast<Vector*>(c) = sum;
        } else {
#pragma unroll
            for (int v = 0; v < WIDTH; v++) c[v * p.c.col] = sum.at[v];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) mm32_reduce(const __grid_constant__ Params s) {
    wait_for_previous_grid();
#if MM32_GUARDED
    if (s.decision->tier != BF16X6) return;
#endif
    if (s.p.n % 4 == 0) reduce<4>(s);
    else reduce<1>(s);
}
