"""Works on a stream from the pool that neither waits for the inputs nor is waited for: the caller may read the
loss too early.

reference: q_cross_entropy
device: cuda
verdict: not SAME
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

#define THREADS 256

__global__ void loss_kernel(const float* __restrict__ logits, const int64_t* __restrict__ target,
                            float* __restrict__ loss, int n, float share) {
    __shared__ float scratch[THREADS];
    const float* in = logits + (size_t)blockIdx.x * n;
    const int t = threadIdx.x;
    float top = -INFINITY;
    for (int i = t; i < n; i += THREADS) top = fmaxf(top, in[i]);
    scratch[t] = top;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s /= 2) {
        if (t < s) scratch[t] = fmaxf(scratch[t], scratch[t + s]);
        __syncthreads();
    }
    top = scratch[0];
    __syncthreads();
    float sum = 0.0f;
    for (int i = t; i < n; i += THREADS) sum += expf(in[i] - top);
    scratch[t] = sum;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s /= 2) {
        if (t < s) scratch[t] += scratch[t + s];
        __syncthreads();
    }
    if (t == 0) atomicAdd(loss, (logf(scratch[0]) - (in[target[blockIdx.x]] - top)) * share);
}

torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor target) {
    const int rows = logits.size(0);
    cudaStream_t stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/true).stream();
    auto loss = torch::empty({}, logits.options());
    cudaMemsetAsync(loss.data_ptr<float>(), 0, sizeof(float), stream);
    loss_kernel<<<rows, THREADS, 0, stream>>>(logits.data_ptr<float>(), target.data_ptr<int64_t>(),
                                              loss.data_ptr<float>(), (int)logits.size(1), 1.0f / rows);
    return loss;
}
"""

cpp_source = """
torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor target);
"""

module = load_inline(
    name="q_cross_entropy_stream",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["cross_entropy"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, logits, target):
        return module.cross_entropy(logits.contiguous(), target.contiguous())
