"""Each pass adds what lies twice as far back.

reference: l_ema
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.w = nn.Parameter(torch.randn(C))

    def forward(self, x):
        a = torch.sigmoid(self.w)
        y = (1 - a) * x
        s = 1
        while s < x.shape[1]:
            y = torch.cat([y[:, :s], y[:, s:] + a * y[:, :-s]], 1)
            a = a * a
            s *= 2
        return y
