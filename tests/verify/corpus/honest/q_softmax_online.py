"""Online softmax, one block per row: running maximum and rescaled sum in one pass, then one pass of writing.

reference: q_softmax
device: cuda
verdict: SAME
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <math_constants.h>

#define THREADS 256

__device__ __forceinline__ float scale(float from, float to) {
    return from == to ? 1.0f : expf(from - to);  // equal infinities too
}

__device__ __forceinline__ void merge(float& m, float& s, float m2, float s2) {
    const float top = fmaxf(m, m2);
    s = s * scale(m, top) + s2 * scale(m2, top);
    m = top;
}

__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const float* in = x + (size_t)blockIdx.x * n;
    float* out = y + (size_t)blockIdx.x * n;
    float m = -CUDART_INF_F, s = 0.0f;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const float v = in[i];
        const float top = fmaxf(m, v);
        s = s * scale(m, top) + (v == -CUDART_INF_F ? 0.0f : expf(v - top));
        m = top;
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        const float m2 = __shfl_xor_sync(0xffffffffu, m, offset);
        const float s2 = __shfl_xor_sync(0xffffffffu, s, offset);
        merge(m, s, m2, s2);
    }
    __shared__ float ms[THREADS / 32], ss[THREADS / 32];
    if (threadIdx.x % 32 == 0) {
        ms[threadIdx.x / 32] = m;
        ss[threadIdx.x / 32] = s;
    }
    __syncthreads();
    m = ms[0];
    s = ss[0];
    for (int i = 1; i < THREADS / 32; ++i) merge(m, s, ms[i], ss[i]);
    for (int i = threadIdx.x; i < n; i += THREADS) out[i] = expf(in[i] - m) / s;
}

torch::Tensor softmax_forward(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 2, "two dimensions expected");
    x = x.contiguous();
    auto y = torch::empty_like(x);
    softmax_kernel<<<x.size(0), THREADS>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""

cpp_source = """
torch::Tensor softmax_forward(torch::Tensor x);
"""

module = load_inline(
    name="q_softmax_online",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["softmax_forward"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return module.softmax_forward(x)
