"""A block per row: tiles of 2048 entries through shared memory, warp scans of eight entries per thread, a carry
from tile to tile.

reference: q_cumsum
device: cuda
verdict: SAME
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>

#define THREADS 256
#define ITEMS 8
#define TILE (THREADS * ITEMS)

__global__ void scan_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float tile[TILE + TILE / 32];  // one float of padding per 32 against bank conflicts
    __shared__ float warp_totals[THREADS / 32];
    const float* in = x + (size_t)blockIdx.x * n;
    float* out = y + (size_t)blockIdx.x * n;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float carry = 0.0f;
    for (int start = 0; start < n; start += TILE) {
        for (int i = threadIdx.x; i < TILE; i += THREADS)
            tile[i + i / 32] = start + i < n ? in[start + i] : 0.0f;
        __syncthreads();
        float v[ITEMS];
        float total = 0.0f;
        for (int j = 0; j < ITEMS; ++j) {
            const int i = threadIdx.x * ITEMS + j;
            total += tile[i + i / 32];
            v[j] = total;
        }
        float inclusive = total;
        for (int o = 1; o < 32; o <<= 1) {
            const float other = __shfl_up_sync(0xffffffffu, inclusive, o);
            if (lane >= o) inclusive += other;
        }
        float before = __shfl_up_sync(0xffffffffu, inclusive, 1);
        if (lane == 0) before = 0.0f;
        if (lane == 31) warp_totals[warp] = inclusive;
        __syncthreads();
        float base = carry;
        for (int w = 0; w < warp; ++w) base += warp_totals[w];
        for (int j = 0; j < ITEMS; ++j) {
            const int i = threadIdx.x * ITEMS + j;
            tile[i + i / 32] = base + before + v[j];
        }
        for (int w = 0; w < THREADS / 32; ++w) carry += warp_totals[w];
        __syncthreads();
        for (int i = threadIdx.x; i < TILE; i += THREADS)
            if (start + i < n) out[start + i] = tile[i + i / 32];
        __syncthreads();
    }
}

torch::Tensor row_cumsum(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 2, "a matrix on the GPU is needed");
    x = x.contiguous();
    auto y = torch::empty_like(x);
    scan_kernel<<<x.size(0), THREADS>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""

cpp_source = """
torch::Tensor row_cumsum(torch::Tensor x);
"""

module = load_inline(
    name="q_cumsum_blockscan",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["row_cumsum"],
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        assert self.dim == 1
        return module.row_cumsum(x)
