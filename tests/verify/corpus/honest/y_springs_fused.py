"""The chain padded once a step, constants folded.

reference: y_springs
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.k = nn.Parameter(torch.rand(n) + 0.5)

    def forward(self, y):
        out = y.clone()
        n = y.shape[1] // 2
        x, v = out[:, :n], out[:, n:]
        k = self.k * 1e-8
        for _ in range(4):
            d = torch.diff(x, dim=1, prepend=x[:, -1:], append=x[:, :1])
            v.addcmul_(k, d[:, 1:] - d[:, :-1])
            x.add_(v, alpha=1e-3)
        return out
