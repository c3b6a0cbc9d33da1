// The epilogue, the last step of every kernel on a finished fp32 sum: bias, then activation. Each activation is torch's function
// of that name, also for NaN: relu and leaky_relu compare in the direction that lets NaN pass through.
//   MM32_BIAS        0 or 1
//   MM32_ACTIVATION  0 none, 1 relu, 2 leaky_relu, 3 gelu, 4 gelu_tanh, 5 silu, 6 tanh, 7 sigmoid
#pragma once
#include "common/problem.cuh"

__device__ __forceinline__ float activate(float x) {
#if MM32_ACTIVATION == 1
    return x < 0.f ? 0.f : x;
#elif MM32_ACTIVATION == 2
    return x < 0.f ? x * 0.01f : x;
#elif MM32_ACTIVATION == 3
    return x * 0.5f * (1.f + erff(x * 0.70710678118654752440f));
#elif MM32_ACTIVATION == 4
    float inner = 0.79788456080286535588f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.f + tanhf(inner));
#elif MM32_ACTIVATION == 5
    return x / (1.f + expf(-x));
#elif MM32_ACTIVATION == 6
    return tanhf(x);
#elif MM32_ACTIVATION == 7
    return 1.f / (1.f + expf(-x));
#else
    return x;
#endif
}

__device__ __forceinline__ float bias_at(const Problem& p, long long n) {
#if MM32_BIAS
    return p.bias[n * p.bias_stride];
#else
    return 0.f;
#endif
}

// The output for a sum and the bias of its column. Without a bias nothing is added, so that -0 stays -0.
__device__ __forceinline__ float epilogue(float sum, float bias) {
#if MM32_BIAS
    sum += bias;
#endif
    return activate(sum);
}
