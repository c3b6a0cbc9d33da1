"""Group norm whose deviation is kept in 17 bits between two kernels.

reference: o_group_norm
device: both
verdict: not SAME
"""

import torch
from torch import nn


def pair(x):
    high = x.bfloat16().float()
    return torch.where(x.isfinite(), high + (x - high).bfloat16().float(), x)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        n, c, h, w = x.shape
        g = x.reshape(n, self.groups, -1)
        variance, mean = torch.var_mean(g, -1, correction=0, keepdim=True)
        deviation = pair(torch.rsqrt(variance + 1e-5))
        y = ((g - mean) * deviation).reshape(n, c, h, w)
        return y * self.weight.view(1, c, 1, 1) + self.bias.view(1, c, 1, 1)
