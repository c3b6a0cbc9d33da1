"""Mean over the middle axis: each block sums a part of it, the last block to finish (by a counter, which it puts back to
0) adds up the parts in a fixed order.

reference: c_mean
device: cuda
verdict: SAME
"""

import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void mean(const float* x, float* y, float* parts, int* counters, int b, int c, int per) {
    const int slab = blockIdx.x, part = blockIdx.y, n = gridDim.y;
    const int col = threadIdx.x;  // blockDim.x == c
    const float* in = x + (long long)slab * b * c;
    const int last = min(b, (part + 1) * per);
    float s = 0.0f;
    for (int i = part * per; i < last; ++i) s += in[(long long)i * c + col];
    parts[((long long)slab * n + part) * c + col] = s;
    __threadfence();
    __shared__ int done;
    __syncthreads();
    if (threadIdx.x == 0) done = atomicAdd(counters + slab, 1);
    __syncthreads();
    if (done != n - 1) return;
    __threadfence();
    const volatile float* mine = parts + (long long)slab * n * c + col;
    s = 0.0f;
    for (int i = 0; i < n; ++i) s += mine[(long long)i * c];
    y[(long long)slab * c + col] = s / (float)b;
    if (threadIdx.x == 0) counters[slab] = 0;
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, x):
        a, b, c = x.shape
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "mean")
            self.counters = torch.zeros(a, device=x.device, dtype=torch.int32)
        n = 64
        x = x.contiguous()
        parts = torch.empty(a, n, c, device=x.device, dtype=torch.float32)
        y = torch.empty(a, c, device=x.device, dtype=torch.float32)
        self.kernel(grid=(a, n, 1), block=(c, 1, 1), args=[x, y, parts, self.counters, b, c, (b + n - 1) // n])
        return y
