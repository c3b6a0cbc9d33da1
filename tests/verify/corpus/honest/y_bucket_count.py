"""Counts the edges below.

reference: y_bucket
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.linspace(-2, 2, 17))

    def forward(self, x):
        out = torch.zeros(x.shape, dtype=torch.int64, device=x.device)
        for e in self.edges:
            out += ~(x <= e)
        return out
