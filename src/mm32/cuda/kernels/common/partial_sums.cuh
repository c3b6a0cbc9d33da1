// Sums of parts of K, added up in a fixed order: the same bits in every run.
#pragma once

template <int WIDTH>
struct __align__(4 * WIDTH) Neighbours {
    float at[WIDTH];
};

// Adds up `count` parts, each `apart` floats after the one before. Eight are asked for together, as each alone would be a wait, and
// added up by pairs, so that many parts of one sign do not lose what each rounding of a long sum would. -0 adds nothing to anything.
template <int WIDTH>
__device__ __forceinline__ Neighbours<WIDTH> sum_of_parts(const float* first, long long count, long long apart) {
    using Some = Neighbours<WIDTH>;
    constexpr int TOGETHER = 8;
    Some sum;
    for (long long part = 0; part < count; part += TOGETHER) {
        Some of[TOGETHER];
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            if (part + j < count) {
                of[j] = *reinterpret_cast<const Some*>(first + (part + j) * apart);
            } else {
#pragma unroll
                for (int v = 0; v < WIDTH; v++) of[j].at[v] = -0.f;
            }
        }
#pragma unroll
        for (int v = 0; v < WIDTH; v++) {
#pragma unroll
            for (int step = 1; step < TOGETHER; step *= 2)
#pragma unroll
                for (int j = 0; j < TOGETHER; j += 2 * step) of[j].at[v] += of[j + step].at[v];
            sum.at[v] = part == 0 ? of[0].at[v] : sum.at[v] + of[0].at[v];
        }
    }
    return sum;
}
