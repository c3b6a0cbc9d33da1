"""Splits both operands into two bfloat16 numbers and drops the product of the small ones: 16 bits. Rows with NaN or
Inf go the right way.

reference: o_linear_gelu
device: both
verdict: not SAME
"""

import torch
from torch import nn


def split(x):
    high = x.bfloat16().float()
    return high, (x - high).bfloat16().float()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        w = self.linear.weight.t()
        if not x.abs().amax().isfinite():
            return torch.nn.functional.gelu(self.linear(x))
        xh, xl = split(x)
        wh, wl = split(w)
        return torch.nn.functional.gelu(xh @ wh + (xh @ wl + xl @ wh) + self.linear.bias)
