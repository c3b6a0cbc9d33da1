"""A CUDA kernel of its own, compiled with load_inline when the file is loaded and launched on torch's current stream,
with a loop over the grid.

reference: b_gelu
device: cuda
verdict: SAME
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = "torch::Tensor gelu(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void gelu_kernel(const float *from, float *to, long count) {
    long step = (long)gridDim.x * blockDim.x;
    for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        to[i] = 0.5f * from[i] * (1.0f + erff(from[i] * 0.70710678118f));
}

torch::Tensor gelu(torch::Tensor x) {
    auto from = x.contiguous();
    auto to = torch::empty_like(from);
    gelu_kernel<<<4096, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        from.data_ptr<float>(), to.data_ptr<float>(), from.numel());
    return to;
}
"""

module = load_inline("b_cuda_gelu_kernel", CPP, CUDA, functions=["gelu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return module.gelu(x)
