"""Dropout by torch, then residual and layer norm in one kernel: Welford per thread, combined by shuffles and
shared memory.

reference: q_layernorm
device: cuda
verdict: SAME
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

#define THREADS 256

struct Moments {
    float mean, m2, count;
};

__device__ __forceinline__ Moments combine(Moments a, Moments b) {
    const float count = a.count + b.count;
    if (count == 0.0f) return a;
    const float delta = b.mean - a.mean;
    const float share = b.count / count;
    Moments r;
    r.mean = a.mean + delta * share;
    r.m2 = a.m2 + b.m2 + delta * delta * a.count * share;
    r.count = count;
    return r;
}

__global__ void add_norm_kernel(const float* __restrict__ x, const float* __restrict__ h,
                                const float* __restrict__ weight, const float* __restrict__ bias,
                                float* __restrict__ y, int width, float eps) {
    extern __shared__ float row[];
    __shared__ Moments parts[THREADS / 32];
    const size_t base = (size_t)blockIdx.x * width;
    Moments w = {0.0f, 0.0f, 0.0f};
    for (int i = threadIdx.x; i < width; i += THREADS) {
        const float v = x[base + i] + h[base + i];
        row[i] = v;
        w.count += 1.0f;
        const float delta = v - w.mean;
        w.mean += delta / w.count;
        w.m2 += delta * (v - w.mean);
    }
    for (int o = 16; o > 0; o >>= 1) {
        Moments other;
        other.mean = __shfl_down_sync(0xffffffffu, w.mean, o);
        other.m2 = __shfl_down_sync(0xffffffffu, w.m2, o);
        other.count = __shfl_down_sync(0xffffffffu, w.count, o);
        w = combine(w, other);
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = w;
    __syncthreads();
    Moments all = parts[0];
    for (int i = 1; i < THREADS / 32; ++i) all = combine(all, parts[i]);
    const float inv = rsqrtf(all.m2 / width + eps);
    for (int i = threadIdx.x; i < width; i += THREADS)
        y[base + i] = (row[i] - all.mean) * inv * weight[i] + bias[i];
}

torch::Tensor add_norm(torch::Tensor x, torch::Tensor h, torch::Tensor weight, torch::Tensor bias, double eps) {
    TORCH_CHECK(x.sizes() == h.sizes(), "x and h must have the same shape");
    TORCH_CHECK(x.is_contiguous() && h.is_contiguous(), "x and h must be contiguous");
    const int width = x.size(-1);
    const int rows = x.numel() / width;
    auto y = torch::empty_like(x);
    add_norm_kernel<<<rows, THREADS, width * sizeof(float)>>>(
        x.data_ptr<float>(), h.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
        y.data_ptr<float>(), width, (float)eps);
    cudaError_t err = cudaGetLastError();
    TORCH_CHECK(err == cudaSuccess, cudaGetErrorString(err));
    return y;
}
"""

cpp_source = """
torch::Tensor add_norm(torch::Tensor x, torch::Tensor h, torch::Tensor weight, torch::Tensor bias, double eps);
"""

module = load_inline(
    name="q_layernorm_welford",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["add_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.drop = nn.Dropout(p)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, h):
        return module.add_norm(x, self.drop(h), self.norm.weight, self.norm.bias, self.norm.eps)
