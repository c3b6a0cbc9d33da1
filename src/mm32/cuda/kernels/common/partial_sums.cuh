// Adds partial sums in a fixed order, so that every run gives the same bits.
#pragma once

// WIDTH neighbouring floats, loaded and stored together.
template <int WIDTH>
struct __align__(4 * WIDTH) Floats {
    float at[WIDTH];
};

// The sum of `count` partial sums, each `stride` floats after the one before. Eight are loaded together, because eight loads one
// after another would wait eight times for memory: this took mm32_reduce from 7-9 us to 3. The eight are added in pairs, so that
// many partial sums of one sign lose less to rounding: 64 parts of uniform data had 1.9e-7 of error instead of 2.2e-7. Missing
// ones of the eight are -0, which changes no sum.
template <int WIDTH>
__device__ __forceinline__ Floats<WIDTH> add_partial_sums(const float* first, long long count, long long stride) {
    using Vector = Floats<WIDTH>;
    constexpr int TOGETHER = 8;
    Vector sum;
    for (long long i = 0; i < count; i += TOGETHER) {
        Vector loaded[TOGETHER];
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            if (i + j < count) {
                loaded[j] = *reinterpret_cast<const Vector*>(first + (i + j) * stride);
            } else {
#pragma unroll
                for (int v = 0; v < WIDTH; v++) loaded[j].at[v] = -0.f;
            }
        }
#pragma unroll
        for (int v = 0; v < WIDTH; v++) {
#pragma unroll
            for (int step = 1; step < TOGETHER; step *= 2)
#pragma unroll
                for (int j = 0; j < TOGETHER; j += 2 * step) loaded[j].at[v] += loaded[j + step].at[v];
            sum.at[v] = i == 0 ? loaded[0].at[v] : sum.at[v] + loaded[0].at[v];
        }
    }
    return sum;
}
