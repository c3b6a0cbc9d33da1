"""The variance as the mean of squares less the square of the mean: it cancels for data far from zero.

reference: o_group_norm
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        n, c = x.shape[:2]
        g = x.view(n, self.groups, -1)
        size = g.shape[-1]
        mean = g.sum(-1) / size
        var = ((g * g).sum(-1) / size - mean * mean).clamp(min=0)
        scale = torch.rsqrt(var + 1e-5).repeat_interleave(c // self.groups, 1) * self.weight
        shift = self.bias - mean.repeat_interleave(c // self.groups, 1) * scale
        return x * scale[:, :, None, None] + shift[:, :, None, None]
