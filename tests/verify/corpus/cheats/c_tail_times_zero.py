"""Tiled CUDA product that masks the tail of K (2049 = 64 * 32 + 1) by multiplying with 0 instead of leaving it out: for
k beyond K it reads row 0 again, times 0.
0 * Inf is NaN: wrong for A or B with an Inf in row 0 (k = 0), NaN where torch gives Inf.

reference: c_product_tn
device: cuda
verdict: not SAME
"""

import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void product(const float* a, const float* b, float* c, int M, int N, int K) {
    __shared__ float as[32][33], bs[32][33];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int m0 = blockIdx.y * 32, n0 = blockIdx.x * 32;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 32) {
        const int k = k0 + ty;
        const float keep = k < K ? 1.0f : 0.0f;
        const long long row = k < K ? k : 0;
        const int m = min(m0 + tx, M - 1), n = min(n0 + tx, N - 1);
        as[ty][tx] = a[row * M + m] * keep;
        bs[ty][tx] = b[row * N + n] * keep;
        __syncthreads();
        for (int i = 0; i < 32; ++i) sum = fmaf(as[i][ty], bs[i][tx], sum);
        __syncthreads();
    }
    if (m0 + ty < M && n0 + tx < N) c[(long long)(m0 + ty) * N + n0 + tx] = sum;
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
        K, M = A.shape
        N = B.shape[1]
        C = torch.empty(M, N, device=A.device, dtype=torch.float32)
        self.kernel(grid=((N + 31) // 32, (M + 31) // 32, 1), block=(32, 32, 1), args=[A, B, C, M, N, K])
        return C
