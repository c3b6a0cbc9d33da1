"""Divides by the unbiased standard deviation.

reference: j_layernorm
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(x.var(-1, keepdim=True, unbiased=True) + 1e-5)
        return centred * scale * self.norm.weight + self.norm.bias
