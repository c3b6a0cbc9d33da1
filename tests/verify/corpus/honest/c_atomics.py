"""Adds rows to buckets by fp32 atomics, in no fixed order.

reference: c_scatter
device: cuda
verdict: SAME
"""

import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void scatter(const long long* index, const float* src, float* out, int width, int total) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    float* at = out + index[i / width] * width + i % width;
    atomicAdd(at, src[i]);
}
"""


class ModelNew(nn.Module):
    def __init__(self, buckets):
        super().__init__()
        self.buckets = buckets
        self.kernel = None

    def forward(self, index, src):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "scatter")
        index, src = index.contiguous(), src.contiguous()
        out = torch.zeros(self.buckets, src.shape[1], device=src.device, dtype=torch.float32)
        total = src.numel()
        self.kernel(grid=((total + 255) // 256, 1, 1), block=(256, 1, 1), args=[index, src, out, src.shape[1], total])
        return out
