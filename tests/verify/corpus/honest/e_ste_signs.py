"""A straight-through estimator left out: the signs themselves, which the reference gets as x + (signs - x).

reference: e_ste
device: both
verdict: SAME
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
        xb = (x >= 0).to(x.dtype).mul_(2).sub_(1)
        return (xb @ torch.sign(self.w).t()).mul_(a)
