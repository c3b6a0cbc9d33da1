"""Sums by index_add, and its own layer norm.

reference: r_bags
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n=20000, d=64):
        super().__init__()
        self.table = nn.Parameter(torch.randn(n, d))
        with torch.no_grad():
            self.table[0] = 0
        self.gain = nn.Parameter(torch.ones(d))

    def forward(self, ids, offsets, w):
        n = len(offsets)
        bag = torch.searchsorted(offsets, torch.arange(len(ids), device=ids.device), right=True) - 1
        keep = (ids != 0).nonzero()[:, 0]
        y = torch.zeros(n, self.table.shape[1], device=ids.device).index_add_(
            0, bag[keep], self.table[ids[keep]] * w[keep, None]
        )
        y = y - y.mean(1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(1, keepdim=True) + 1e-5) * self.gain
