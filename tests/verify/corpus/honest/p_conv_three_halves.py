"""The convolution by three products of fp16 halves, each operand scaled by a power of two: 22 bits of the operands, as a tensor
core's fp32 has them.

reference: o_conv_relu
device: both
verdict: SAME
"""

import torch
from torch import nn


def halves(x):
    scale = torch.exp2(torch.floor(torch.log2(x.abs().amax().clamp(min=1e-30))) - 3)
    x = x / scale
    high = x.half().float()
    return high, ((x - high) * 2048).half().float() / 2048, scale


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1)

    def forward(self, x):
        if not bool(x.isfinite().all()):
            return torch.relu(self.conv(x))
        conv = torch.nn.functional.conv2d
        xh, xl, xs = halves(x)
        wh, wl, ws = halves(self.conv.weight)
        y = conv(xh, wh, padding=1) + (conv(xh, wl, padding=1) + conv(xl, wh, padding=1))
        return torch.relu(y * (xs * ws) + self.conv.bias[:, None, None])
