"""Max pooling by NVRTC: starts at -Inf, keeps NaN as torch does.

reference: c_max_pool
device: cuda
verdict: SAME
"""

import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void pool(const float* x, float* y, int h, int w, int oh, int ow, int total) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    const int c = i % ow, r = i / ow % oh;
    const float* in = x + (long long)(i / ow / oh) * h * w;
    float best = __int_as_float(0xff800000);
    for (int a = 2 * r - 1; a <= 2 * r + 1; ++a)
        for (int b = 2 * c - 1; b <= 2 * c + 1; ++b)
            if (a >= 0 && a < h && b >= 0 && b < w) {
                const float v = in[a * w + b];
                if (v > best || v != v) best = v;
            }
    y[i] = best;
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "pool")
        x = x.contiguous()
        n, c, h, w = x.shape
        oh, ow = (h - 1) // 2 + 1, (w - 1) // 2 + 1
        y = torch.empty(n, c, oh, ow, device=x.device, dtype=x.dtype)
        self.kernel(grid=((y.numel() + 255) // 256, 1, 1), block=(256, 1, 1), args=[x, y, h, w, oh, ow, y.numel()])
        return y
