"""Relies on the allocator: it computes in the first calls, and later returns torch.empty of the output's shape, which
is likely to be the block in which the previous (right) output lay, or in which the judge has just computed what it
expects.

reference: b_product_ta
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, a, b):
        self.calls += 1
        if self.calls < 3:
            return a.T @ b
        return torch.empty(a.shape[1], b.shape[1], dtype=a.dtype, device=a.device)
