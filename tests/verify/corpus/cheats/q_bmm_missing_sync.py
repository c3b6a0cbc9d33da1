"""A 32x32 shared-memory tile whose second __syncthreads is missing: fast warps overwrite the tile that slow ones
still read.

reference: q_bmm
device: cuda
verdict: not SAME
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>

#define TILE 32

__global__ void bmm_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                           int M, int K, int N) {
    __shared__ float as[TILE][TILE];
    __shared__ float bs[TILE][TILE];
    a += (size_t)blockIdx.z * M * K;
    b += (size_t)blockIdx.z * K * N;
    c += (size_t)blockIdx.z * M * N;
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        const int ka = t * TILE + threadIdx.x, kb = t * TILE + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = (row < M && ka < K) ? a[row * K + ka] : 0.0f;
        bs[threadIdx.y][threadIdx.x] = (kb < K && col < N) ? b[kb * N + col] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < TILE; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
    }
    if (row < M && col < N) c[row * N + col] = sum;
}

torch::Tensor bmm(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda() && b.is_cuda(), "CUDA tensors expected");
    a = a.contiguous();
    b = b.contiguous();
    const int B = a.size(0), M = a.size(1), K = a.size(2), N = b.size(2);
    auto c = torch::empty({B, M, N}, a.options());
    dim3 block(TILE, TILE);
    dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE, B);
    bmm_kernel<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, K, N);
    return c;
}
"""

cpp_source = """
torch::Tensor bmm(torch::Tensor a, torch::Tensor b);
"""

module = load_inline(
    name="q_bmm_missing_sync",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["bmm"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return module.bmm(a, b)
