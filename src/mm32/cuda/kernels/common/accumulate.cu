// accumulate: C = C + T, with the epilogue the last time. Where a plan in blocks cuts K into spans (plan/blocks.py), it adds
// the product of one span to the sum of the spans before it. The emulated kernels cannot do so themselves, because a lower
// tier or the fallback may store a tile again that they have stored.
//
// Launch: any number of blocks of 256 threads (grid-stride loop over the elements of C). A thread computes 4 neighbours along
// T's lines at a time if their length is a multiple of 4, otherwise 1. T is passed as the problem's operand A and has C's
// shape: its element (i, m, n) lies at a.data + batch offset + m * a.row + n * a.col. It is laid out as C is: along N, or
// along M if C is contiguous along M. K and B are not read. No shared memory. Bound by memory: it reads 8 bytes and writes 4
// for each element.
#include "common/epilogue.cuh"
#include "common/partial_sums.cuh"

template <int WIDTH, bool ALONG_M>
__device__ __forceinline__ void accumulate(const Problem& p) {
    using Vector = Floats<WIDTH>;
    const long long line = ALONG_M ? p.m : p.n, in_matrix = p.m * p.n, elements = p.batches * in_matrix;
    const long long c_step = ALONG_M ? p.c.row : p.c.col, t_step = ALONG_M ? p.a.row : p.a.col;
    for (long long i = (blockIdx.x * 256LL + threadIdx.x) * WIDTH; i < elements; i += gridDim.x * 256LL * WIDTH) {
        const long long matrix = p.batches == 1 ? 0 : quotient(i, in_matrix), element = i - matrix * in_matrix;
        const long long across = quotient(element, line), along = element - across * line;
        const long long m = ALONG_M ? along : across, n = ALONG_M ? across : along;
        const Pointers at = pointers_of(p, matrix);
        float* const c = at.c + m * p.c.row + n * p.c.col;
        const float* const t = at.a + m * p.a.row + n * p.a.col;
        const bool whole_c = c_step == 1 && reinterpret_cast<unsigned long long>(c) % sizeof(Vector) == 0;
        const bool whole_t = t_step == 1 && reinterpret_cast<unsigned long long>(t) % sizeof(Vector) == 0;
        Vector sum, added;
        if (whole_c) {
            sum = *reinterpret_cast<const Vector*>(c);
        } else {
#pragma unroll
            for (int v = 0; v < WIDTH; v++) sum.at[v] = c[v * c_step];
        }
        if (whole_t) {
            added = *reinterpret_cast<const Vector*>(t);
        } else {
#pragma unroll
            for (int v = 0; v < WIDTH; v++) added.at[v] = t[v * t_step];
        }
#pragma unroll
        for (int v = 0; v < WIDTH; v++) sum.at[v] = epilogue(sum.at[v] + added.at[v], bias_at(p, ALONG_M ? n : n + v));
        if (whole_c) {
            *reinterpret_cast<Vector*>(c) = sum;
        } else {
#pragma unroll
            for (int v = 0; v < WIDTH; v++) c[v * c_step] = sum.at[v];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) mm32_accumulate(const __grid_constant__ Problem p) {
    if (p.a.row == 1 && p.a.col != 1) {
        if (p.m % 4 == 0) accumulate<4, true>(p);
        else accumulate<1, true>(p);
    } else {
        if (p.n % 4 == 0) accumulate<4, false>(p);
        else accumulate<1, false>(p);
    }
}
