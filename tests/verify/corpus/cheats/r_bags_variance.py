"""A variance by squares, behind a table.

reference: r_bags
device: cpu
verdict: not SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n=20000, d=64):
        super().__init__()
        self.table = nn.Parameter(torch.randn(n, d))
        with torch.no_grad():
            self.table[0] = 0
        self.gain = nn.Parameter(torch.ones(d))

    def forward(self, ids, offsets, w):
        y = F.embedding_bag(ids, self.table, offsets, mode="sum", per_sample_weights=w, padding_idx=0)
        m = y.mean(1, keepdim=True)
        v = (y.square().mean(1, keepdim=True) - m * m).clamp(min=0)
        return (y - m) * torch.rsqrt(v + 1e-5) * self.gain
