"""Argmax by the maximum of 64-bit keys: the number's bits in order above, the inverted index below, so the first of
equal numbers wins; -0 counts as 0, and NaN is the largest, as in torch.

reference: c_argmax
device: cuda
verdict: SAME
"""

import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void argmax(const float* x, long long* y, int cols) {
    __shared__ unsigned long long best;
    if (threadIdx.x == 0) best = 0ull;
    __syncthreads();
    x += (long long)blockIdx.x * cols;
    unsigned long long mine = 0ull;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        const float v = x[i];
        unsigned int bits = v == 0.0f ? 0u : __float_as_uint(v);
        bits = v != v ? 0xffffffffu : (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
        const unsigned long long key = ((unsigned long long)bits << 32) | (0xffffffffu - (unsigned int)i);
        mine = key > mine ? key : mine;
    }
    atomicMax(&best, mine);
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = 0xffffffffu - (unsigned int)(best & 0xffffffffull);
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "argmax")
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device, dtype=torch.int64)
        self.kernel(grid=(x.shape[0], 1, 1), block=(256, 1, 1), args=[x, y, x.shape[1]])
        return y
