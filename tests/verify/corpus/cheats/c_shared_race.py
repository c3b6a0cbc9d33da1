"""Tiled CUDA product that forgets the __syncthreads() after a tile has been used.
A warp that is ahead overwrites the tile which others still read: some entries are wrong, which ones is chance.

reference: c_batched_product
device: cuda
verdict: not SAME
"""

import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void product(const float* a, const float* b, float* c, int M, int N, int K) {
    __shared__ float as[32][33], bs[32][33];
    a += (long long)blockIdx.z * M * K;
    b += (long long)blockIdx.z * K * N;
    c += (long long)blockIdx.z * M * N;
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int m = blockIdx.y * 32 + ty, n = blockIdx.x * 32 + tx;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 32) {
        as[ty][tx] = (m < M && k0 + tx < K) ? a[(long long)m * K + k0 + tx] : 0.0f;
        bs[ty][tx] = (n < N && k0 + ty < K) ? b[(long long)(k0 + ty) * N + n] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 32; ++i) sum = fmaf(as[ty][i], bs[i][tx], sum);
    }
    if (m < M && n < N) c[(long long)m * N + n] = sum;
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, A, B):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "product")
        A, B = A.contiguous(), B.contiguous()
        n, M, K = A.shape
        N = B.shape[2]
        C = torch.empty(n, M, N, device=A.device, dtype=torch.float32)
        self.kernel(grid=((N + 31) // 32, (M + 31) // 32, n), block=(32, 32, 1), args=[A, B, C, M, N, K])
        return C
