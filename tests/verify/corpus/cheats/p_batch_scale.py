"""Batch norm whose factor, weight over deviation, is rounded to 17 bits; running statistics are the module's own.

reference: o_batch_norm
device: both
verdict: not SAME
"""

import torch
from torch import nn


def pair(x):
    high = x.bfloat16().float()
    return torch.where(x.isfinite(), high + (x - high).bfloat16().float(), x)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.train()

    def forward(self, x):
        self.norm(x)
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
        factor = pair(torch.rsqrt(variance + 1e-5) * self.norm.weight[:, None, None])
        return torch.relu((x - mean) * factor + self.norm.bias[:, None, None])
