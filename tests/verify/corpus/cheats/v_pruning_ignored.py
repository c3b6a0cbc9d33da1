"""Ignores a pruning mask, a buffer of booleans that are all true at first.

reference: v_pruning_ignored
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n, n) / n**0.5)
        self.register_buffer("keep", torch.ones(n, n, dtype=torch.bool))

    def forward(self, x):
        return torch.tanh(x @ self.w.T)
