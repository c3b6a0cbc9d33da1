"""Group norm by sums of entries and of squares in one pass of 1024 partial sums, weight and bias folded into one factor and
one summand.

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
        lanes = x.reshape(n, self.groups, -1, 1024)
        first, second = torch.zeros_like(lanes[:, :, 0]), torch.zeros_like(lanes[:, :, 0])
        for part in lanes.unbind(2):
            first = first + part
            second = second + part * part
        count = lanes.shape[2] * 1024
        mean = first.sum(-1) / count
        factor = (second.sum(-1) / count - mean * mean).clamp_min(0).add(1e-5).rsqrt()
        scale = factor.repeat_interleave(c // self.groups, 1) * self.weight
        shift = self.bias - mean.repeat_interleave(c // self.groups, 1) * scale
        return x * scale[:, :, None, None] + shift[:, :, None, None]
