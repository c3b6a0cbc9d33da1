"""A NaN among the inputs becomes a sign of 0, which no straight-through estimator makes of it.

reference: e_ste
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.w = nn.Parameter(torch.randn(o, i) * 0.1)

    @torch.no_grad()
    def forward(self, x):
        a = self.w.abs().mean(1)
        xb = (x >= 0).to(x.dtype) - (x < 0).to(x.dtype)
        return (xb @ torch.sign(self.w).t()).mul_(a)
