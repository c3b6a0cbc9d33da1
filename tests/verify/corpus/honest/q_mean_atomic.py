"""Chunks of a row per block, float4 loads with unaligned head and tail, atomicAdd of the partial sums (order
varies).

reference: q_mean
device: cuda
verdict: SAME
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>

#define THREADS 256
#define CHUNK 32768

__global__ void row_sum_kernel(const float* __restrict__ x, float* __restrict__ out, long long n) {
    const long long begin = (long long)blockIdx.x * CHUNK;
    const long long end = begin + CHUNK < n ? begin + CHUNK : n;
    const float* p = x + (long long)blockIdx.y * n + begin;
    const int count = (int)(end - begin);
    // the head up to the next address that a float4 may have
    int head = (int)(((16 - (reinterpret_cast<size_t>(p) & 15)) & 15) / 4);
    if (head > count) head = count;
    const int quads = (count - head) / 4;
    const int tail = head + quads * 4;
    float sum = 0.0f;
    if ((int)threadIdx.x < head) sum += p[threadIdx.x];
    const float4* p4 = reinterpret_cast<const float4*>(p + head);
    for (int i = threadIdx.x; i < quads; i += THREADS) {
        const float4 v = p4[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    for (int i = tail + threadIdx.x; i < count; i += THREADS) sum += p[i];

    __shared__ float partial[THREADS];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) partial[threadIdx.x] += partial[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out + blockIdx.y, partial[0]);
}

torch::Tensor row_mean(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    x = x.contiguous();
    const long long n = x.size(1);
    auto out = torch::zeros({x.size(0)}, x.options());
    dim3 grid((n + CHUNK - 1) / CHUNK, x.size(0));
    row_sum_kernel<<<grid, THREADS>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out.div_((double)n);
}
"""

cpp_source = """
torch::Tensor row_mean(torch::Tensor x);
"""

module = load_inline(
    name="q_mean_atomic",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["row_mean"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.row_mean = module.row_mean

    def forward(self, x):
        return self.row_mean(x)
