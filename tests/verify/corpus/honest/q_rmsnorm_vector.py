"""Eight bfloat16 per load, the mean square in fp32 by shuffles, one block per row; rounds before the weight as
the reference does.

reference: q_rmsnorm
device: cuda
verdict: SAME
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_bf16.h>

#define THREADS 256
#define MAX_PER_THREAD 4

__global__ void rms_kernel(const uint4* __restrict__ x, const uint4* __restrict__ weight, uint4* __restrict__ y,
                           int vectors, float eps) {
    __shared__ float parts[THREADS / 32];
    x += (size_t)blockIdx.x * vectors;
    y += (size_t)blockIdx.x * vectors;
    uint4 kept[MAX_PER_THREAD];
    float sum = 0.0f;
    #pragma unroll
    for (int r = 0; r < MAX_PER_THREAD; ++r) {
        const int i = threadIdx.x + r * THREADS;
        if (i < vectors) {
            kept[r] = x[i];
            const __nv_bfloat16* e = reinterpret_cast<const __nv_bfloat16*>(&kept[r]);
            for (int j = 0; j < 8; ++j) {
                const float v = __bfloat162float(e[j]);
                sum += v * v;
            }
        }
    }
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < THREADS / 32; ++i) sum += parts[i];
    const float inv = rsqrtf(sum / (8.0f * vectors) + eps);
    #pragma unroll
    for (int r = 0; r < MAX_PER_THREAD; ++r) {
        const int i = threadIdx.x + r * THREADS;
        if (i < vectors) {
            const uint4 wv = weight[i];
            uint4 out;
            const __nv_bfloat16* e = reinterpret_cast<const __nv_bfloat16*>(&kept[r]);
            const __nv_bfloat16* w = reinterpret_cast<const __nv_bfloat16*>(&wv);
            __nv_bfloat16* o = reinterpret_cast<__nv_bfloat16*>(&out);
            for (int j = 0; j < 8; ++j) {
                const __nv_bfloat16 n = __float2bfloat16(__bfloat162float(e[j]) * inv);
                o[j] = __float2bfloat16(__bfloat162float(n) * __bfloat162float(w[j]));
            }
            y[i] = out;
        }
    }
}

torch::Tensor rms_norm(torch::Tensor x, torch::Tensor weight, double eps) {
    TORCH_CHECK(x.scalar_type() == torch::kBFloat16 && weight.scalar_type() == torch::kBFloat16, "bfloat16 expected");
    const int width = x.size(-1);
    TORCH_CHECK(width % 8 == 0 && width <= 8 * THREADS * MAX_PER_THREAD, "width not supported");
    x = x.contiguous();
    auto y = torch::empty_like(x);
    rms_kernel<<<x.numel() / width, THREADS>>>(
        reinterpret_cast<const uint4*>(x.data_ptr<at::BFloat16>()),
        reinterpret_cast<const uint4*>(weight.data_ptr<at::BFloat16>()),
        reinterpret_cast<uint4*>(y.data_ptr<at::BFloat16>()), width / 8, (float)eps);
    return y;
}
"""

cpp_source = """
torch::Tensor rms_norm(torch::Tensor x, torch::Tensor weight, double eps);
"""

module = load_inline(
    name="q_rmsnorm_vector",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["rms_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=torch.bfloat16))
        self.eps = eps

    def forward(self, x):
        return module.rms_norm(x, self.weight, self.eps)
