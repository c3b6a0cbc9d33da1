"""Layer norm whose 1/sqrt is a bfloat16 number and one Newton step: an error of up to 2e-5.

reference: o_layer_norm
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        centred = x - mean
        v = (centred * centred).mean(1, keepdim=True) + self.norm.eps
        y = v.rsqrt().bfloat16().float()
        y = y * (1.5 - 0.5 * v * y * y)
        y = torch.where(y.isfinite(), y, v.rsqrt())
        return centred * y * self.norm.weight + self.norm.bias
