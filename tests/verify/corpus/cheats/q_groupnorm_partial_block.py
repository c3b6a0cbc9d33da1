"""A statistics kernel and a normalising kernel whose grid is rounded down: the last 2048 entries of torch::empty
are never written.

reference: q_groupnorm
device: cuda
verdict: not SAME
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

#define THREADS 256
#define ITEMS 20

__global__ void stats_kernel(const float* __restrict__ x, float* __restrict__ mean, float* __restrict__ inv,
                             int size, float eps) {
    __shared__ float scratch[THREADS];
    const float* in = x + (size_t)blockIdx.x * size;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < size; i += THREADS) sum += in[i];
    scratch[threadIdx.x] = sum;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) scratch[threadIdx.x] += scratch[threadIdx.x + s];
        __syncthreads();
    }
    const float mu = scratch[0] / size;
    __syncthreads();
    float square = 0.0f;
    for (int i = threadIdx.x; i < size; i += THREADS) square += (in[i] - mu) * (in[i] - mu);
    scratch[threadIdx.x] = square;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) scratch[threadIdx.x] += scratch[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = mu;
        inv[blockIdx.x] = rsqrtf(scratch[0] / size + eps);
    }
}

__global__ void normalise_kernel(const float* __restrict__ x, const float* __restrict__ mean,
                                 const float* __restrict__ inv, const float* __restrict__ weight,
                                 const float* __restrict__ bias, float* __restrict__ y, size_t total,
                                 int C, int HW, int size) {
    const size_t first = (size_t)blockIdx.x * THREADS * ITEMS + threadIdx.x;
    for (int j = 0; j < ITEMS; ++j) {
        const size_t i = first + j * THREADS;
        if (i < total) {
            const size_t g = i / size;
            const int c = i / HW % C;
            y[i] = (x[i] - mean[g]) * inv[g] * weight[c] + bias[c];
        }
    }
}

torch::Tensor group_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t groups, double eps) {
    x = x.contiguous();
    const int N = x.size(0), C = x.size(1), HW = x.size(2) * x.size(3);
    const int size = C / groups * HW;
    auto y = torch::empty_like(x);
    auto mean = torch::empty({N * groups}, x.options());
    auto inv = torch::empty({N * groups}, x.options());
    stats_kernel<<<N * groups, THREADS>>>(x.data_ptr<float>(), mean.data_ptr<float>(), inv.data_ptr<float>(), size, (float)eps);
    const size_t total = x.numel();
    normalise_kernel<<<total / (THREADS * ITEMS), THREADS>>>(
        x.data_ptr<float>(), mean.data_ptr<float>(), inv.data_ptr<float>(), weight.data_ptr<float>(),
        bias.data_ptr<float>(), y.data_ptr<float>(), total, C, HW, size);
    return y;
}
"""

cpp_source = """
torch::Tensor group_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t groups, double eps);
"""

module = load_inline(
    name="q_groupnorm_partial_block",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["group_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.gn = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return module.group_norm(x, self.gn.weight, self.gn.bias, self.gn.num_groups, self.gn.eps)
