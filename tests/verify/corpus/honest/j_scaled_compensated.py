"""A product of two fp16 parts of each operand, scaled, three products: 22 bits.

reference: j_scaled
device: both
verdict: SAME
"""

import torch
from torch import nn


def parts(t, axis):
    scale = torch.exp2(torch.floor(torch.log2(t.abs().amax(axis, keepdim=True).clamp_min(1e-30))))
    scaled = t / scale
    high = scaled.half().float()
    return high, ((scaled - high) * 2048).half().float(), scale


class ModelNew(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, inner) / inner**0.5)

    def forward(self, x):
        if not bool(x.isfinite().all()):
            return (x @ self.weight) * 0.5 + x
        a, a_low, a_scale = parts(x, 1)
        b, b_low, b_scale = parts(self.weight, 0)
        product = a @ b + (a_low @ b + a @ b_low) * 2.0**-11
        return product * a_scale * b_scale * 0.5 + x
