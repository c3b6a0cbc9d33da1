// reduce: the sums that blocks made of their parts of K -> C, in a fixed order (the same bits in every run), with the epilogue.
//
// Launch: any number of blocks of 256 threads, a grid apart over the elements of C, four to a thread where N is a multiple of 4.
// Bounded by memory: splits + 1 floats an element.
#include "epilogue.cuh"
#include "split.cuh"

template <int WIDTH>
struct __align__(4 * WIDTH) Neighbours {
    float at[WIDTH];
};

template <int WIDTH>
__device__ __forceinline__ void add_up(const Split& s) {
    using Some = Neighbours<WIDTH>;
    const Problem& p = s.p;
    const long long in_matrix = p.m * p.n, elements = p.batches * in_matrix;
    for (long long i = (blockIdx.x * 256LL + threadIdx.x) * WIDTH; i < elements; i += gridDim.x * 256LL * WIDTH) {
        // Eight parts are asked for together, as each alone would be a wait, and added up by pairs, so that many parts of one sign
        // do not lose what each rounding of a long sum would. -0 adds nothing to anything.
        constexpr int TOGETHER = 8;
        Some sum;
        for (long long part = 0; part < s.splits; part += TOGETHER) {
            Some of[TOGETHER];
#pragma unroll
            for (int j = 0; j < TOGETHER; j++) {
                if (part + j < s.splits) {
                    of[j] = *reinterpret_cast<const Some*>(s.partial + (part + j) * elements + i);
                } else {
#pragma unroll
                    for (int v = 0; v < WIDTH; v++) of[j].at[v] = -0.f;
                }
            }
#pragma unroll
            for (int v = 0; v < WIDTH; v++) {
#pragma unroll
                for (int apart = 1; apart < TOGETHER; apart *= 2)
#pragma unroll
                    for (int j = 0; j < TOGETHER; j += 2 * apart) of[j].at[v] += of[j + apart].at[v];
                sum.at[v] = part == 0 ? of[0].at[v] : sum.at[v] + of[0].at[v];
            }
        }
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
