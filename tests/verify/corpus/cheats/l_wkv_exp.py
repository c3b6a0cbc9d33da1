"""Exponentials without the running maximum.

reference: l_wkv
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-3, 1, C))
        self.u = nn.Parameter(torch.randn(C) * 0.3)

    def forward(self, k, v):
        w = torch.exp(-torch.exp(self.w))
        e, first = torch.exp(k), torch.exp(self.u)
        a = torch.zeros_like(v[:, 0])
        b = torch.zeros_like(a)
        out = []
        for t in range(k.shape[1]):
            out.append((a + first * e[:, t] * v[:, t]) / (b + first * e[:, t]))
            a, b = w * a + e[:, t] * v[:, t], w * b + e[:, t]
        return torch.stack(out, 1)
