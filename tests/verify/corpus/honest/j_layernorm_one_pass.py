"""Layer norm by the mean of squares minus the square of the mean, of data shifted by their first entry.

reference: j_layernorm
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        z = x - x[:, :1]
        mean = z.mean(1, keepdim=True)
        variance = (z * z).mean(1, keepdim=True) - mean * mean
        return (z - mean) * torch.rsqrt(variance.clamp_min(0) + 1e-5) * self.norm.weight + self.norm.bias
