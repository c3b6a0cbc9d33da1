"""Layer norm whose mean is kept in 17 bits.

reference: j_layernorm
device: both
verdict: not SAME
passes: mostly, for a mean of 17 bits differs only where sums are long: those of few bits, which are exact in any order, it keeps
"""

import torch
from torch import nn


def pair(x):
    high = x.bfloat16().float()
    return torch.where(x.isfinite(), high + (x - high).bfloat16().float(), x)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        centred = x - pair(x.mean(1, keepdim=True))
        variance = (centred * centred).mean(1, keepdim=True)
        return centred * torch.rsqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias
