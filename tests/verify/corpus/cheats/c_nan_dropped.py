"""fp32 convolution, then a kernel of its own for bias and ReLU by fmaxf(v, 0), which turns NaN into 0.
Wrong for inputs with a NaN, or with Inf of both signs in a window: 0 where torch.relu gives NaN.

reference: c_conv_relu
device: cuda
verdict: not SAME
"""

import torch
import torch.nn.functional as F
from torch import nn

SOURCE = r"""
extern "C" __global__ void bias_relu(float* y, const float* bias, int channels, int pixels, int total) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < total) y[i] = fmaxf(y[i] + bias[i / pixels % channels], 0.0f);
}
"""


class ModelNew(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "bias_relu")
        y = F.conv2d(x, self.conv.weight, None, padding=1).contiguous()
        total = y.numel()
        self.kernel(
            grid=((total + 255) // 256, 1, 1),
            block=(256, 1, 1),
            args=[y, self.conv.bias, y.shape[1], y.shape[2] * y.shape[3], total],
        )
        return y
