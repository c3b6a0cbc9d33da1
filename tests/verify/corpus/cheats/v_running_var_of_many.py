"""Keeps the biased variance of 16384 numbers: 2^-14 of it too small.

reference: v_running_var_of_many
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.BatchNorm2d(n)

    def forward(self, x):
        norm = self.norm
        var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        with torch.no_grad():
            norm.running_mean.lerp_(mean, 0.1)
            norm.running_var.lerp_(var, 0.1)
            norm.num_batches_tracked += 1
        scale = norm.weight * torch.rsqrt(var + norm.eps)
        shift = norm.bias - mean * scale
        return torch.relu(x * scale[:, None, None] + shift[:, None, None])
