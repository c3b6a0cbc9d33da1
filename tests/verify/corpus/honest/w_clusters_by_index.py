"""Sums by index, where the reference has a product with ones and zeros, in which 0 times NaN is NaN.

reference: w_clusters
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, c):
        for _ in range(3):
            place = (x[:, None] - c).square().sum(-1).argmin(1)
            count = torch.bincount(place, minlength=len(c))[:, None].float()
            total = torch.zeros_like(c).index_add_(0, place, x)
            c = torch.where(count > 0, total / count.clamp(min=1), c)
        return c
