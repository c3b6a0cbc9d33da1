"""A kernel that is launched from C++ on a non-blocking stream which torch does not know of: patched or counted torch
streams show nothing, and the default stream does not wait for it. The values are right a little later.

reference: b_gelu
device: cuda
verdict: rejected
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = "torch::Tensor gelu(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void gelu_kernel(const float *from, float *to, long count) {
    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = 0.5f * from[i] * (1.0f + erff(from[i] * 0.70710678118f));
}

torch::Tensor gelu(torch::Tensor x) {
    static cudaStream_t stream = [] {
        cudaStream_t s;
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        return s;
    }();
    auto from = x.contiguous();
    auto to = torch::empty_like(from);
    long count = from.numel();
    gelu_kernel<<<(count + 255) / 256, 256, 0, stream>>>(from.data_ptr<float>(), to.data_ptr<float>(), count);
    return to;
}
"""

module = load_inline("b_cuda_native_stream", CPP, CUDA, functions=["gelu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return module.gelu(x)
